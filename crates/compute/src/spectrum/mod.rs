//! Spectra of blocks of samples: the strongest peaks, and how far the strongest stands above the rest.
//!
//! A block is cut into segments of the transform's length, each is weighed by a window and transformed, and their
//! powers are averaged (Welch 1967, without removal of the mean; what does not fill a last segment is left out). 0 dBFS
//! is a tone of full scale: a complex one of magnitude 32768, or a real one of that amplitude.
//!
//! **Peaks** are local maxima that rise above the median bin by a threshold, and above what stronger peaks leak to
//! their place. Where between two bins a tone lies follows from the ratio of the peak's two neighbours, inverted
//! through the window's own transform: exact for one tone without noise, a few hundredths of a bin with noise. The
//! power is that of the peak's bin over the window's response there.
//!
//! **SINAD and SNR** are those of IEEE Std 1241: the power of the fundamental, the strongest peak, over the power of
//! all that is neither it nor DC (SINAD), and the same without the harmonics 2 to 10, folded into the band (SNR). The
//! fundamental is what stands in the bins around the peak ([`Window::skirt`]); noise in bins that were taken out is
//! made good with the mean of the others. Of complex samples nothing is DC, because zero is the frequency that was
//! tuned to; and no harmonics are taken out, because those of a converter before the mixer do not lie at multiples of
//! the frequency that is left: SNR and SINAD are then the same.
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
pub use measure::{HARMONICS, PEAKS, Peak, Summary};
pub use window::Window;

use crate::Sample;
use loops::{Loops, PORTABLE};
use measure::Measure;
use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use std::sync::Arc;

/// A spectrum of samples, real ones (`i16`) or complex ones (`[i16; 2]`), with all memory that it needs.
pub struct Spectrum<S: Sample> {
    config: SpectrumConfig,
    transform: Transform,
    /// The window, scaled so that a transformed tone of full scale is 1.
    weights: Vec<f32>,
    bins: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
    /// Averaged power in each bin.
    power: Vec<f64>,
    measure: Measure,
    loops: Loops,
    of: std::marker::PhantomData<S>,
}

enum Transform {
    Real { plan: Arc<dyn RealToComplex<f32>>, weighed: Vec<f32> },
    Iq(Arc<dyn rustfft::Fft<f32>>),
}

/// The transform of `length` real samples, for any length.
///
/// Not generic: that would have every crate that calls it compile all of rustfft.
pub fn real_transform(length: usize) -> Arc<dyn RealToComplex<f32>> {
    RealFftPlanner::new().plan_fft_forward(length)
}

fn complex_transform(length: usize) -> Arc<dyn rustfft::Fft<f32>> {
    rustfft::FftPlanner::new().plan_fft_forward(length)
}

impl<S: Sample> Spectrum<S> {
    /// Plans the transform and allocates what it needs.
    ///
    /// # Errors
    /// If the configuration says something that cannot be.
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
        // Half of a real tone is in the bins that are kept.
        let (transform, bins, scratch, full) = if S::WORDS == 1 {
            let plan = real_transform(fft);
            let scratch = plan.get_scratch_len();
            (Transform::Real { plan, weighed: vec![0.0; fft] }, fft / 2 + 1, scratch, 16384.0)
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
            measure: Measure::new(config, S::WORDS == 1),
            loops: best(),
            of: std::marker::PhantomData,
        })
    }

    /// The peaks and ratios of a block, or nothing if it is shorter than a segment. Nothing is allocated.
    pub fn analyse(&mut self, block: &[S]) -> Option<Summary> {
        self.average(block)?;
        Some(self.measure.summary(&self.power))
    }

    /// Averages the power of a block's segments; nothing if it is shorter than one.
    ///
    /// Bins are `sample_rate / fft` apart, from zero on: of real samples up to half the sample rate, of complex ones
    /// once around, the negative frequencies last. 1 is full scale. DC and the bin at half the rate of real samples
    /// are 4 times what their amplitude says, because they have no mirror image.
    pub fn average(&mut self, block: &[S]) -> Option<&[f64]> {
        let segments = block.len().checked_sub(self.config.fft)? / self.config.hop + 1;
        self.power.fill(0.0);
        for segment in 0..segments {
            let begin = segment * self.config.hop;
            let words = S::words(&block[begin..begin + self.config.fft]);
            match &mut self.transform {
                Transform::Real { plan, weighed } => {
                    (self.loops.weigh_real)(words, &self.weights, weighed);
                    plan.process_with_scratch(weighed, &mut self.bins, &mut self.scratch)
                        .expect("the lengths are those of the plan");
                }
                Transform::Iq(plan) => {
                    (self.loops.weigh_iq)(words, &self.weights, &mut self.bins);
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

fn best() -> Loops {
    #[cfg(target_arch = "x86_64")]
    if let Some(loops) = sys::available().next() {
        return loops;
    }
    PORTABLE
}
