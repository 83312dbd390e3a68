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

mod measure;
#[cfg(target_arch = "x86_64")]
mod sys;
mod window;

#[cfg(test)]
mod tests;

pub use measure::{HARMONICS, PEAKS, Peak, Summary};
pub use window::Window;

use crate::Sample;
use measure::Measure;
use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use std::sync::Arc;

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

/// The loops around the transform.
#[derive(Clone, Copy)]
struct Loops {
    weigh_real: fn(&[i16], &[f32], &mut [f32]),
    weigh_iq: fn(&[i16], &[f32], &mut [Complex<f32>]),
    add_power: fn(&[Complex<f32>], &mut [f64]),
}

fn best() -> Loops {
    #[cfg(target_arch = "x86_64")]
    if let Some(loops) = sys::available().next() {
        return loops;
    }
    PORTABLE
}

const PORTABLE: Loops = Loops {
    weigh_real: |words, weights, out| portable::weigh_real(words, weights, out),
    weigh_iq: |words, weights, out| portable::weigh_iq(words, weights, out),
    add_power: |bins, sums| portable::add_power(bins, sums),
};

/// The loops in plain Rust, inlined into each function that is compiled for other instructions.
mod portable {
    use super::Complex;

    #[inline(always)]
    pub fn weigh_real(words: &[i16], weights: &[f32], out: &mut [f32]) {
        for ((word, weight), out) in words.iter().zip(weights).zip(out) {
            *out = f32::from(*word) * weight;
        }
    }

    #[inline(always)]
    pub fn weigh_iq(words: &[i16], weights: &[f32], out: &mut [Complex<f32>]) {
        for (([re, im], weight), out) in words.as_chunks().0.iter().zip(weights).zip(out) {
            *out = Complex::new(f32::from(*re) * weight, f32::from(*im) * weight);
        }
    }

    #[inline(always)]
    pub fn add_power(bins: &[Complex<f32>], sums: &mut [f64]) {
        for (bin, sum) in bins.iter().zip(sums) {
            *sum += f64::from(bin.re * bin.re + bin.im * bin.im);
        }
    }
}
