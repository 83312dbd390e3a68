//! Configuration of a spectrum, and its errors.

use super::window::Window;

/// Minimum length of a transform, in points.
pub const MIN_FFT: usize = 64;

/// Maximum length of a transform, in points.
pub const MAX_FFT: usize = 1 << 24;

/// An invalid spectrum configuration.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpectrumError {
    /// The transform length is odd or out of range.
    #[error("expected a transform of {MIN_FFT} to {MAX_FFT} points, an even number, found {0}")]
    Fft(usize),
    /// The hop is 0 or longer than a segment, which would skip samples.
    #[error("expected a hop of 1 to {fft} samples between segments, found {hop}")]
    Hop {
        /// Length of a segment, in samples.
        fft: usize,
        /// Distance between the starts of segments, in samples.
        hop: usize,
    },
    /// The sample rate is not positive and finite.
    #[error("the sample rate must be positive and finite, found {0} S/s")]
    SampleRate(f64),
    /// The peak threshold is out of range.
    #[error("the peak threshold must be 0 to 200 dB, found {0}")]
    Threshold(f64),
}

/// Configuration of a spectrum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpectrumConfig {
    /// Points of the transform: even, [`MIN_FFT`] to [`MAX_FFT`]; powers of two are fastest.
    pub fft: usize,
    /// Samples between the starts of segments: the transform's length, or half of it to recover the samples that the
    /// window attenuates.
    pub hop: usize,
    /// Window applied to each segment.
    pub window: Window,
    /// Sample rate in S/s.
    pub sample_rate_hz: f64,
    /// Minimum level of a peak above the median bin, in dB.
    pub threshold_db: f64,
}

impl SpectrumConfig {
    /// Returns a configuration with adjacent segments, the Blackman-Harris window and a threshold of 13 dB, which the
    /// noise of a single segment exceeds in about one bin in a million.
    pub fn new(fft: usize, sample_rate_hz: f64) -> Self {
        Self { fft, hop: fft, window: Window::default(), sample_rate_hz, threshold_db: 13.0 }
    }
}
