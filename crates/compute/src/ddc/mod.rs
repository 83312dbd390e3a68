//! Digital down-conversion (DDC): mixes a band around one frequency to zero, filters and decimates it.
//!
//! Output sample `m` is
//!
//! ```text
//! y[m] = gain * sum over k of h[k] x[mD - k] exp(-2 pi i f (mD - k))
//! ```
//!
//! with the oscillator's frequency `f` in cycles per sample, the low-pass filter `h` and the decimation `D`; samples
//! before the first are zero. The kernels compute the same as a polyphase band-pass does: the filter is shifted to `f`
//! once and applied to the unmixed input, and only its output, at the lower rate, is rotated by the oscillator. The
//! only multiplications at the input rate are those of samples with taps.
//!
//! Dot products are exact integers (16-bit taps). The rotation is in single precision, from a phase that is an exact
//! 64-bit fraction. The output is bit-identical however the input is divided into blocks and whichever kernel the
//! processor supports. It is rounded to the nearest integer, halves to even; values that exceed 16 bits are clipped and
//! counted ([`Ddc::clipped`]).
//!
//! ```
//! use shotline_compute::ddc::{Ddc, DdcConfig, Filter, Tuning};
//! # fn main() -> Result<(), shotline_compute::ddc::DdcError> {
//! let tuning = Tuning::hz(1.0e9, 4.0e9)?;
//! let mut ddc = Ddc::<i16>::new(&DdcConfig { decimation: 8, ..DdcConfig::tuned(tuning) })?;
//! let input: Vec<i16> = (0..16_000).map(|n| [10_000, 0, -10_000, 0][n % 4]).collect();
//! let mut iq = vec![[0; 2]; ddc.output_len(input.len())];
//! assert_eq!(ddc.process(&input, &mut iq), 2000);
//! assert_eq!(iq[1000..], [[10_000, 0]; 1000]);
//! # Ok(()) }
//! ```

mod error;
mod filter;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod sys;
mod tuning;

#[cfg(test)]
mod tests;

pub use error::{DdcError, MAX_DECIMATION, MAX_TAPS};
pub use filter::Filter;
pub use tuning::Tuning;

use crate::Sample;
use filter::TapRows;
use kernel::{GROUP, Kernel, portable};

/// Configuration of a down-converter.
#[derive(Clone, Debug, PartialEq)]
pub struct DdcConfig {
    /// Frequency that is mixed to zero.
    pub tuning: Tuning,
    /// Input samples per output sample, 1 to [`MAX_DECIMATION`].
    pub decimation: u32,
    /// Low-pass filter before the decimation.
    pub filter: Filter,
    /// Gain, 10^-6 to 10^6. At 1 the IQ magnitude is the amplitude of the tone at `tuning`, real or complex.
    pub gain: f64,
}

impl DdcConfig {
    /// Returns a configuration with gain 1, no decimation and the default filter.
    pub fn tuned(tuning: Tuning) -> Self {
        Self { tuning, decimation: 1, filter: Filter::default(), gain: 1.0 }
    }
}

/// Down-converter of one stream. Filter history is carried from block to block.
#[derive(Clone, Debug)]
pub struct Ddc<S: Sample> {
    tuning: Tuning,
    decimation: usize,
    delay: f64,
    rows: TapRows,
    /// Words of the last window without its newest sample, followed by space for as many words of the next block.
    history: Vec<i16>,
    /// Samples of the next block before the one that completes an output sample.
    skip: usize,
    /// Output samples so far.
    count: u64,
    clipped: u64,
    /// Rotation of output `n` of a group relative to the first one, including the gain.
    relative: Rotations,
    /// Rotations of the current group.
    rotations: Rotations,
    kernel: Kernel,
    sample: std::marker::PhantomData<S>,
}

/// Complex factors of a group of output samples.
#[derive(Clone, Debug)]
struct Rotations {
    re: [f32; GROUP],
    im: [f32; GROUP],
}

impl<S: Sample> Ddc<S> {
    /// Creates a down-converter with a zero history.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(config: &DdcConfig) -> Result<Self, DdcError> {
        if !(1..=MAX_DECIMATION).contains(&config.decimation) {
            return Err(DdcError::Decimation(config.decimation));
        }
        if !(1e-6..=1e6).contains(&config.gain) {
            return Err(DdcError::Gain(config.gain));
        }
        let (tuning, decimation) = (config.tuning, config.decimation);
        let taps = config.filter.taps(decimation)?;
        let rows = TapRows::new(&taps, tuning, S::WORDS)?;
        let mut relative = Rotations { re: [0.0; GROUP], im: [0.0; GROUP] };
        for (n, (re, im)) in relative.re.iter_mut().zip(&mut relative.im).enumerate() {
            let [cos, sin] = tuning.phasor_at(n as u64 * u64::from(decimation));
            let [scale_re, scale_im] = rows.scale.map(|part| part * config.gain * conversion_gain(S::WORDS));
            (*re, *im) = ((cos * scale_re + sin * scale_im) as f32, (cos * scale_im - sin * scale_re) as f32);
        }
        Ok(Self {
            tuning,
            decimation: decimation as usize,
            delay: centroid(&taps),
            history: vec![0; 2 * (rows.len() - S::WORDS)],
            skip: 0,
            count: 0,
            clipped: 0,
            rotations: relative.clone(),
            relative,
            rows,
            kernel: select_kernel(),
            sample: std::marker::PhantomData,
        })
    }

    /// Returns the number of output samples that a next block of `samples` produces.
    pub fn output_len(&self, samples: usize) -> usize {
        samples.saturating_sub(self.skip).div_ceil(self.decimation)
    }

    /// Down-converts the next block of the stream, of any length, into the start of `out`.
    ///
    /// Returns the number of output samples, which is [`Ddc::output_len`] of the block's length. Allocates nothing.
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn process(&mut self, input: &[S], out: &mut [[i16; 2]]) -> usize {
        let count = self.output_len(input.len());
        assert!(count <= out.len(), "{count} output samples do not fit a slice of {}", out.len());
        let out = &mut out[..count];
        let words = S::words(input);
        let history_len = self.history.len() / 2;
        // Windows that begin in earlier blocks are read from the history, the others from the input.
        let fresh = words.len().min(history_len);
        self.history[history_len..history_len + fresh].copy_from_slice(&words[..fresh]);
        let straddling = ((history_len / S::WORDS).saturating_sub(self.skip)).div_ceil(self.decimation).min(count);
        let (straddled, whole) = out.split_at_mut(straddling);
        let windows = std::mem::take(&mut self.history);
        self.windows(&windows[..history_len + fresh], self.skip * S::WORDS, straddled);
        self.history = windows;
        if !whole.is_empty() {
            let last = self.skip + straddling * self.decimation;
            self.windows(words, last * S::WORDS - history_len, whole);
        }
        if fresh == history_len {
            self.history[..history_len].copy_from_slice(&words[words.len() - history_len..]);
        } else {
            self.history.copy_within(fresh..fresh + history_len, 0);
        }
        self.skip = self.skip + count * self.decimation - input.len();
        count
    }

    /// Processes the windows from `first` on, one per element of `out`.
    fn windows(&mut self, words: &[i16], first: usize, out: &mut [[i16; 2]]) {
        let step = self.decimation * S::WORDS;
        let (mut done, mut rest) = (0, out);
        while !rest.is_empty() {
            let at = (self.count % GROUP as u64) as usize;
            if at == 0 {
                self.begin_group();
            }
            let (now, later) = rest.split_at_mut(rest.len().min(GROUP - at));
            let rotations = [&self.rotations.re[at..at + now.len()], &self.rotations.im[at..at + now.len()]];
            self.clipped += (self.kernel)(&words[first + done * step..], step, &self.rows, rotations, now);
            done += now.len();
            self.count += now.len() as u64;
            rest = later;
        }
    }

    /// Computes the rotations of a group from the exact phase at its first output sample.
    fn begin_group(&mut self) {
        let [cos, sin] = self.tuning.phasor_at(self.count.wrapping_mul(self.decimation as u64));
        let (cos, sin) = (cos as f32, -sin as f32);
        for n in 0..GROUP {
            let (re, im) = (self.relative.re[n], self.relative.im[n]);
            self.rotations.re[n] = re * cos - im * sin;
            self.rotations.im[n] = re * sin + im * cos;
        }
    }

    /// Returns the group delay of the filter, in input samples.
    pub fn delay(&self) -> f64 {
        self.delay
    }

    /// Returns the number of real and imaginary parts so far that exceeded 16 bits and were clipped.
    pub fn clipped(&self) -> u64 {
        self.clipped
    }
}

/// Centroid of the taps, in samples from the newest one, which is the delay of a symmetric filter.
fn centroid(taps: &[f64]) -> f64 {
    taps.iter().enumerate().map(|(age, tap)| age as f64 * tap).sum()
}

/// Gain correction: only half the amplitude of a real tone is at the positive frequency.
fn conversion_gain(words_per_sample: usize) -> f64 {
    if words_per_sample == 1 { 2.0 } else { 1.0 }
}

fn select_kernel() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernel) = sys::available().next() {
        return kernel;
    }
    portable
}
