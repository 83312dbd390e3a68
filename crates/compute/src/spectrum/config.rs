//! What a spectrum is made of.

use super::window::Window;

/// Least length of a transform.
pub const MIN_FFT: usize = 64;

/// Largest length of a transform.
pub const MAX_FFT: usize = 1 << 24;

/// Why there is no such spectrum.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpectrumError {
    /// No transform of this length.
    #[error("a transform has {MIN_FFT} to {MAX_FFT} points, an even number, found {0}")]
    Fft(usize),
    /// Segments that would leave samples out, or never end.
    #[error("segments must begin 1 to {fft} samples apart, found {hop}")]
    Hop {
        /// Length of a segment.
        fft: usize,
        /// From the beginning of one to that of the next.
        hop: usize,
    },
    /// No sample rate.
    #[error("the sample rate must be positive and finite, found {0} S/s")]
    SampleRate(f64),
    /// No threshold.
    #[error("a peak's threshold must be 0 to 200 dB, found {0}")]
    Threshold(f64),
}

/// What a spectrum is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpectrumConfig {
    /// Points of the transform: an even number, [`MIN_FFT`] to [`MAX_FFT`]; powers of two are fastest.
    pub fft: usize,
    /// Samples from the beginning of a segment to that of the next: the transform's length, or half of it to use
    /// what the window takes away.
    pub hop: usize,
    /// The window.
    pub window: Window,
    /// Sample rate in S/s.
    pub sample_rate_hz: f64,
    /// Decibels by which a peak rises above the median bin.
    pub threshold_db: f64,
}

impl SpectrumConfig {
    /// Segments side by side, the Blackman-Harris window, and a threshold of 13 dB, above which one bin of 300000 of
    /// a single segment of noise comes by chance.
    pub fn new(fft: usize, sample_rate_hz: f64) -> Self {
        Self { fft, hop: fft, window: Window::default(), sample_rate_hz, threshold_db: 13.0 }
    }
}
