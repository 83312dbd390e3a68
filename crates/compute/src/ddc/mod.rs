//! Digital down-conversion: a band around one frequency becomes IQ samples around zero, at a lower rate.
//!
//! Output sample `m` is
//!
//! ```text
//! y[m] = gain * sum over k of h[k] x[mD - k] exp(-2 pi i f (mD - k))
//! ```
//!
//! with the oscillator's frequency `f` in cycles a sample, the low-pass filter `h` and the decimation `D`; samples
//! before the first are zero. The kernels compute the same in another order, as a polyphase band-pass does: the
//! filter is shifted to `f` once, runs over the input as it is, and only its output, at the lower rate, is turned
//! by the oscillator. So nothing is multiplied at the input's rate but samples with taps.
//!
//! Sums of products are exact integers (16-bit taps); the turn is in single precision, from a phase that is an exact
//! 64-bit fraction. What comes out is the same bit for bit however the input is cut into blocks, and whichever
//! kernel the processor has. It is rounded to the nearest integer, halves to the even one; what exceeds 16 bits is
//! clipped and counted ([`Ddc::clipped`]).
//!
//! ```
//! use shotline_compute::ddc::{Ddc, DdcConfig, Filter, Tuning};
//! # fn main() -> Result<(), shotline_compute::ddc::DdcError> {
//! let tuning = Tuning::hz(1.0e9, 4.0e9)?;
//! let mut ddc = Ddc::<i16>::new(&DdcConfig { decimation: 8, ..DdcConfig::tuned(tuning) })?;
//! let input: Vec<i16> = (0..16_000).map(|n| [10_000, 0, -10_000, 0][n % 4]).collect();
//! let mut iq = vec![[0; 2]; ddc.outputs(input.len())];
//! assert_eq!(ddc.run(&input, &mut iq), 2000);
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
use filter::Rows;
use kernel::{GROUP, Kernel, portable};

/// What a down-converter does.
#[derive(Clone, Debug, PartialEq)]
pub struct DdcConfig {
    /// The frequency that becomes zero.
    pub tuning: Tuning,
    /// Input samples for each output sample, 1 to [`MAX_DECIMATION`].
    pub decimation: u32,
    /// The low-pass filter.
    pub filter: Filter,
    /// 1 makes IQ of a magnitude that is the amplitude of the tone at `tuning`, whether that was real or complex.
    pub gain: f64,
}

impl DdcConfig {
    /// Gain 1, no decimation, the default filter.
    pub fn tuned(tuning: Tuning) -> Self {
        Self { tuning, decimation: 1, filter: Filter::default(), gain: 1.0 }
    }
}

/// A down-converter of one stream: what it needs of the samples before is kept from block to block.
#[derive(Clone, Debug)]
pub struct Ddc<S: Sample> {
    tuning: Tuning,
    decimation: usize,
    delay: f64,
    rows: Rows,
    /// The words of the last window but its newest sample, and room for as many of the block that follows.
    seam: Vec<i16>,
    /// Samples of the next block before the one that completes an output.
    skip: usize,
    /// Outputs so far.
    count: u64,
    clipped: u64,
    /// How output `n` of a group is turned, against the group's first; the gain is in it.
    within: Turns,
    /// The same for the group at hand, from the beginning.
    turns: Turns,
    kernel: Kernel,
    of: std::marker::PhantomData<S>,
}

/// Complex factors of a group of outputs.
#[derive(Clone, Debug)]
struct Turns {
    re: [f32; GROUP],
    im: [f32; GROUP],
}

impl<S: Sample> Ddc<S> {
    /// A down-converter whose input so far was zero.
    ///
    /// # Errors
    /// If the configuration says something that cannot be.
    pub fn new(config: &DdcConfig) -> Result<Self, DdcError> {
        if !(1..=MAX_DECIMATION).contains(&config.decimation) {
            return Err(DdcError::Decimation(config.decimation));
        }
        if !(1e-6..=1e6).contains(&config.gain) {
            return Err(DdcError::Gain(config.gain));
        }
        let (tuning, decimation) = (config.tuning, config.decimation);
        let taps = config.filter.taps(decimation)?;
        let rows = Rows::new(&taps, tuning, S::WORDS)?;
        let mut within = Turns { re: [0.0; GROUP], im: [0.0; GROUP] };
        for (n, (re, im)) in within.re.iter_mut().zip(&mut within.im).enumerate() {
            let [cos, sin] = tuning.turn_at(n as u64 * u64::from(decimation));
            let [scale_re, scale_im] = rows.scale.map(|part| part * config.gain * gain_of(S::WORDS));
            (*re, *im) = ((cos * scale_re + sin * scale_im) as f32, (cos * scale_im - sin * scale_re) as f32);
        }
        Ok(Self {
            tuning,
            decimation: decimation as usize,
            delay: centre(&taps),
            seam: vec![0; 2 * (rows.len() - S::WORDS)],
            skip: 0,
            count: 0,
            clipped: 0,
            turns: within.clone(),
            within,
            rows,
            kernel: best(),
            of: std::marker::PhantomData,
        })
    }

    /// How many outputs a block of `samples` makes when it comes next.
    pub fn outputs(&self, samples: usize) -> usize {
        samples.saturating_sub(self.skip).div_ceil(self.decimation)
    }

    /// Down-converts the next block of the stream, of any length, into the front of `out`; returns how many samples
    /// that made, which is [`Ddc::outputs`] of the block's length. Nothing is allocated.
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn run(&mut self, input: &[S], out: &mut [[i16; 2]]) -> usize {
        let count = self.outputs(input.len());
        assert!(count <= out.len(), "{count} output samples do not fit a slice of {}", out.len());
        let out = &mut out[..count];
        let words = S::words(input);
        let kept = self.seam.len() / 2;
        // Windows that begin in earlier blocks are seen in the seam, the others where they are.
        let fresh = words.len().min(kept);
        self.seam[kept..kept + fresh].copy_from_slice(&words[..fresh]);
        let straddling = ((kept / S::WORDS).saturating_sub(self.skip)).div_ceil(self.decimation).min(count);
        let (seam, whole) = out.split_at_mut(straddling);
        let windows = std::mem::take(&mut self.seam);
        self.windows(&windows[..kept + fresh], self.skip * S::WORDS, seam);
        self.seam = windows;
        if !whole.is_empty() {
            let last = self.skip + straddling * self.decimation;
            self.windows(words, last * S::WORDS - kept, whole);
        }
        if fresh == kept {
            self.seam[..kept].copy_from_slice(&words[words.len() - kept..]);
        } else {
            self.seam.copy_within(fresh..fresh + kept, 0);
        }
        self.skip = self.skip + count * self.decimation - input.len();
        count
    }

    /// The windows from `first` on, one for each place of `out`.
    fn windows(&mut self, words: &[i16], first: usize, out: &mut [[i16; 2]]) {
        let step = self.decimation * S::WORDS;
        let (mut done, mut rest) = (0, out);
        while !rest.is_empty() {
            let at = (self.count % GROUP as u64) as usize;
            if at == 0 {
                self.begin_group();
            }
            let (now, later) = rest.split_at_mut(rest.len().min(GROUP - at));
            let turns = [&self.turns.re[at..at + now.len()], &self.turns.im[at..at + now.len()]];
            self.clipped += (self.kernel)(&words[first + done * step..], step, &self.rows, turns, now);
            done += now.len();
            self.count += now.len() as u64;
            rest = later;
        }
    }

    /// Takes the exact phase at the group's first output.
    fn begin_group(&mut self) {
        let [cos, sin] = self.tuning.turn_at(self.count.wrapping_mul(self.decimation as u64));
        let (cos, sin) = (cos as f32, -sin as f32);
        for n in 0..GROUP {
            let (re, im) = (self.within.re[n], self.within.im[n]);
            self.turns.re[n] = re * cos - im * sin;
            self.turns.im[n] = re * sin + im * cos;
        }
    }

    /// Input samples by which the output is late: the centre of the filter's taps.
    pub fn delay(&self) -> f64 {
        self.delay
    }

    /// Real and imaginary parts so far that did not fit 16 bits and were clipped.
    pub fn clipped(&self) -> u64 {
        self.clipped
    }
}

/// The centre of mass of a filter, in samples from its newest tap: the delay of a symmetric one.
fn centre(taps: &[f64]) -> f64 {
    taps.iter().enumerate().map(|(age, tap)| age as f64 * tap).sum()
}

/// Of a real tone only half is at the frequency that is looked at.
fn gain_of(words_per_sample: usize) -> f64 {
    if words_per_sample == 1 { 2.0 } else { 1.0 }
}

fn best() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernel) = sys::available().next() {
        return kernel;
    }
    portable
}
