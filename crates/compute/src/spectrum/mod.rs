//! Averaged spectra of blocks of samples: strongest peaks, SINAD and SNR.
//!
//! A block is divided into segments of the transform's length. Each segment is windowed and transformed, and the powers
//! are averaged (Welch 1967, without removal of the mean; samples that do not fill a last segment are ignored). 0 dBFS
//! is a full-scale tone: a complex one of magnitude 32768, or a real one of that amplitude.
//!
//! **Peaks** are local maxima that exceed the median bin by a threshold, and also the leakage of stronger peaks. The
//! position of a tone between two bins follows from the ratio of the peak's two neighbours by inverting the transform
//! of the window: exact for one tone without noise, within a few hundredths of a bin with noise. The power is that of
//! the peak's bin divided by the window's response at that offset.
//!
//! **SINAD and SNR** follow IEEE Std 1241: SINAD is the power of the fundamental (the strongest peak) over the power of
//! everything except the fundamental and DC; SNR also excludes the harmonics 2 to 10, folded into the band. The
//! fundamental comprises the bins around the peak ([`Window::skirt`]). The noise in excluded bins is estimated as the
//! mean of the others. With complex samples, no bin is treated as DC, because zero is the tuned frequency, and no
//! harmonics are excluded, because the harmonics of a converter before the mixer are not at multiples of the mixed
//! frequency. SNR and SINAD are then equal.
//!
//! ```
//! use shotline_compute::spectrum::{Spectrum, SpectrumConfig};
//! # fn main() -> Result<(), shotline_compute::spectrum::SpectrumError> {
//! let mut spectrum = Spectrum::<[i16; 2]>::new(&SpectrumConfig::new(1024, 500e6))?;
//! let tone = |n| (std::f64::consts::TAU * -0.1002 * f64::from(n)).sin_cos();
//! let iq: Vec<[i16; 2]> = (0..10_000).map(tone).map(|(q, i)| [i, q].map(|x| (16384.0 * x) as i16)).collect();
//! let summary = spectrum.analyse(&iq).expect("longer than a segment");
//! let strongest = summary.peaks()[0];
//! assert!((strongest.frequency_hz + 50.1e6).abs() < 0.01 * 500e6 / 1024.0);
//! assert!((strongest.power_dbfs + 6.02).abs() < 0.01);
//! # Ok(()) }
//! ```

mod config;
mod loops;
mod measure;
#[cfg(target_arch = "x86_64")]
mod sys;
mod window;

#[cfg(test)]
mod tests;

pub use config::{MAX_FFT, MIN_FFT, SpectrumConfig, SpectrumError};
pub use measure::{MAX_HARMONIC, MAX_PEAKS, Peak, Summary};
pub use window::Window;

use crate::Sample;
use loops::{Loops, PORTABLE};
use measure::Analyzer;
use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use std::sync::Arc;

/// Spectrum analyser of real (`i16`) or complex (`[i16; 2]`) samples. All memory is allocated at construction.
pub struct Spectrum<S: Sample> {
    config: SpectrumConfig,
    transform: Transform,
    /// Window weights, scaled so that a full-scale tone has a magnitude of 1 after the transform.
    weights: Vec<f32>,
    bins: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
    /// Averaged power per bin.
    power: Vec<f64>,
    analyzer: Analyzer,
    loops: Loops,
    sample: std::marker::PhantomData<S>,
}

enum Transform {
    Real { plan: Arc<dyn RealToComplex<f32>>, windowed: Vec<f32> },
    Iq(Arc<dyn rustfft::Fft<f32>>),
}

/// Plans the transform of `length` real samples, for any length.
///
/// Not generic: a generic function would make every calling crate compile rustfft.
pub fn real_transform(length: usize) -> Arc<dyn RealToComplex<f32>> {
    RealFftPlanner::new().plan_fft_forward(length)
}

fn complex_transform(length: usize) -> Arc<dyn rustfft::Fft<f32>> {
    rustfft::FftPlanner::new().plan_fft_forward(length)
}

impl<S: Sample> Spectrum<S> {
    /// Plans the transform and allocates its buffers.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(config: &SpectrumConfig) -> Result<Self, SpectrumError> {
        let SpectrumConfig { fft, hop, window, sample_rate_hz, threshold_db } = *config;
        if !(MIN_FFT..=MAX_FFT).contains(&fft) || !fft.is_multiple_of(2) {
            return Err(SpectrumError::Fft(fft));
        }
        if !(1..=fft).contains(&hop) {
            return Err(SpectrumError::Hop { fft, hop });
        }
        if !(sample_rate_hz.is_normal() && sample_rate_hz > 0.0) {
            return Err(SpectrumError::SampleRate(sample_rate_hz));
        }
        if !(0.0..=200.0).contains(&threshold_db) {
            return Err(SpectrumError::Threshold(threshold_db));
        }
        let sum: f64 = window.weights(fft).sum();
        // Only half the amplitude of a real tone is in the non-negative frequencies.
        let (transform, bins, scratch, full) = if S::WORDS == 1 {
            let plan = real_transform(fft);
            let scratch = plan.get_scratch_len();
            (Transform::Real { plan, windowed: vec![0.0; fft] }, fft / 2 + 1, scratch, 16384.0)
        } else {
            let plan = complex_transform(fft);
            let scratch = plan.get_inplace_scratch_len();
            (Transform::Iq(plan), fft, scratch, 32768.0)
        };
        Ok(Self {
            config: *config,
            transform,
            weights: window.weights(fft).map(|weight| (weight / (sum * full)) as f32).collect(),
            bins: vec![Complex::default(); bins],
            scratch: vec![Complex::default(); scratch],
            power: vec![0.0; bins],
            analyzer: Analyzer::new(config, S::WORDS == 1),
            loops: select_loops(),
            sample: std::marker::PhantomData,
        })
    }

    /// Returns the peaks and ratios of a block, or `None` if it is shorter than a segment. Allocates nothing.
    pub fn analyse(&mut self, block: &[S]) -> Option<Summary> {
        self.average(block)?;
        Some(self.analyzer.summary(&self.power))
    }

    /// Returns the averaged power of a block's segments, or `None` if the block is shorter than one.
    ///
    /// Bins are `sample_rate / fft` apart and start at zero: up to half the sample rate for real samples, over the
    /// whole sample rate for complex ones, negative frequencies last. 1 is full scale. For real samples, the powers of
    /// DC and of the bin at half the sample rate are 4 times too high, because these bins have no mirror image.
    pub fn average(&mut self, block: &[S]) -> Option<&[f64]> {
        let segments = block.len().checked_sub(self.config.fft)? / self.config.hop + 1;
        self.power.fill(0.0);
        for segment in 0..segments {
            let begin = segment * self.config.hop;
            let words = S::words(&block[begin..begin + self.config.fft]);
            match &mut self.transform {
                Transform::Real { plan, windowed } => {
                    (self.loops.apply_window_real)(words, &self.weights, windowed);
                    plan.process_with_scratch(windowed, &mut self.bins, &mut self.scratch)
                        .expect("the lengths are those of the plan");
                }
                Transform::Iq(plan) => {
                    (self.loops.apply_window_iq)(words, &self.weights, &mut self.bins);
                    plan.process_with_scratch(&mut self.bins, &mut self.scratch);
                }
            }
            (self.loops.add_power)(&self.bins, &mut self.power);
        }
        let scale = 1.0 / segments as f64;
        self.power.iter_mut().for_each(|power| *power *= scale);
        Some(&self.power)
    }
}

fn select_loops() -> Loops {
    #[cfg(target_arch = "x86_64")]
    if let Some(loops) = sys::available().next() {
        return loops;
    }
    PORTABLE
}
