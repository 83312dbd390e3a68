//! Low-pass filter design, and filter taps in the layout of the kernels.

use super::error::{DdcError, MAX_TAPS};
use super::tuning::Tuning;
use std::f64::consts::PI;

/// Maximum number of 16-bit words that a kernel processes at a time. Tap rows are padded to a multiple of it.
pub(super) const KERNEL_WORDS: usize = 32;

/// Low-pass filter before the decimation, scaled to a gain of 1 at its centre.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// Windowed sinc (Kaiser window, with Kaiser's length formula), 6 dB down at the output's band edge.
    ///
    /// `passband` is the flat part of the output's band, 0 to 1. The stopband begins at its mirror image about the band
    /// edge, so everything that aliases into the passband is attenuated by `attenuation_db`.
    Sinc {
        /// Flat part of the output's band: greater than 0, less than 1.
        passband: f64,
        /// Stopband attenuation, 21 to 120 dB. 16-bit taps reach about 95 dB.
        attenuation_db: f64,
    },
    /// Response of a cascaded integrator-comb (CIC) filter (Hogenauer 1981) with a differential delay of 1: `stages`
    /// moving sums over one output sample each. It is implemented as the equivalent FIR filter.
    Cic {
        /// Number of integrator and comb stages, 1 to 8.
        stages: u32,
    },
    /// Custom taps, newest sample first.
    Taps(Vec<f64>),
}

impl Default for Filter {
    /// Windowed sinc with a passband of 0.8 and 80 dB of attenuation: 25 taps per unit of decimation.
    fn default() -> Self {
        Self::Sinc { passband: 0.8, attenuation_db: 80.0 }
    }
}

impl Filter {
    /// Returns the impulse response for a decimation factor, newest sample first, normalised to a sum of 1.
    ///
    /// # Errors
    /// If a parameter is out of range, the taps are more than [`MAX_TAPS`], or their sum is zero or not finite.
    pub fn taps(&self, decimation: u32) -> Result<Vec<f64>, DdcError> {
        let taps = match *self {
            Self::Sinc { passband, attenuation_db } => {
                if !(passband > 0.0 && passband < 1.0 && (21.0..=120.0).contains(&attenuation_db)) {
                    return Err(DdcError::Sinc { passband, attenuation_db });
                }
                let decimation = f64::from(decimation);
                let len = (attenuation_db - 7.95) / (14.36 * (1.0 - passband)) * decimation;
                let len = check_tap_count(len.ceil() as usize | 1)?; // odd: the delay is whole samples
                let beta = kaiser_beta(attenuation_db);
                (0..len)
                    .map(|tap| {
                        let at = tap as f64 - (len / 2) as f64;
                        let edge = at / (len / 2).max(1) as f64;
                        sinc(at / decimation) * bessel_i0(beta * (1.0 - edge * edge).max(0.0).sqrt())
                    })
                    .collect()
            }
            Self::Cic { stages } => {
                if !(1..=8).contains(&stages) {
                    return Err(DdcError::Stages(stages));
                }
                let sum = decimation as usize;
                check_tap_count(stages as usize * sum)?;
                let mut response = vec![1.0; sum];
                for _ in 1..stages {
                    response = moving_sum(&response, sum);
                }
                response
            }
            Self::Taps(ref taps) => {
                check_tap_count(taps.len())?;
                taps.clone()
            }
        };
        let sum: f64 = taps.iter().sum();
        let size: f64 = taps.iter().map(|tap| tap.abs()).sum();
        // The condition is negated so that NaN is rejected as well.
        if !(sum.abs() > size * 1e-6 && size.is_finite()) {
            return Err(DdcError::NoGain(sum));
        }
        Ok(taps.into_iter().map(|tap| tap / sum).collect())
    }
}

fn check_tap_count(taps: usize) -> Result<usize, DdcError> {
    if (1..=MAX_TAPS).contains(&taps) { Ok(taps) } else { Err(DdcError::Taps(taps)) }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

/// Shape parameter of the Kaiser window for an attenuation.
fn kaiser_beta(attenuation_db: f64) -> f64 {
    match attenuation_db {
        a if a > 50.0 => 0.1102 * (a - 8.7),
        a => 0.5842 * (a - 21.0).powf(0.4) + 0.07886 * (a - 21.0),
    }
}

/// Modified Bessel function of the first kind and order zero, by its power series.
fn bessel_i0(x: f64) -> f64 {
    let (mut sum, mut term) = (1.0, 1.0);
    for k in 1..200 {
        term *= (x / 2.0 / f64::from(k)).powi(2);
        sum += term;
        if term < sum * f64::EPSILON {
            break;
        }
    }
    sum
}

/// Returns the full convolution of `values` with a boxcar of `len` ones.
fn moving_sum(values: &[f64], len: usize) -> Vec<f64> {
    let mut sum = 0.0;
    (0..values.len() + len - 1)
        .map(|at| {
            sum += values.get(at).copied().unwrap_or(0.0);
            sum -= at.checked_sub(len).map_or(0.0, |oldest| values[oldest]);
            sum
        })
        .collect()
}

/// Real and imaginary 16-bit taps of the band-pass filter: the low-pass shifted to the oscillator's frequency.
///
/// The dot products of the two rows with a window of 16-bit words, oldest first, are the real and imaginary parts of
/// the filter's output.
#[derive(Clone, Debug)]
pub(super) struct TapRows {
    pub re: Vec<i16>,
    pub im: Vec<i16>,
    /// Complex factor that corrects the gain at the oscillator's frequency to 1 after the taps were rounded.
    pub scale: [f64; 2],
}

/// Number of 32-bit accumulators of the narrowest kernel, each over pairs of words.
const LANES: usize = 8;

impl TapRows {
    /// Quantises taps for samples of one word (real) or two (complex).
    ///
    /// The taps are scaled as large as 16 bits allow without a possible overflow of any kernel's 32-bit accumulators.
    ///
    /// # Errors
    /// If the taps nearly cancel each other, so that their sum is lost in the rounding.
    pub fn new(taps: &[f64], tuning: Tuning, words_per_sample: usize) -> Result<Self, DdcError> {
        let len = (taps.len() * words_per_sample).next_multiple_of(KERNEL_WORDS);
        let (mut re, mut im) = (vec![0.0; len], vec![0.0; len]);
        for (age, tap) in taps.iter().enumerate() {
            let [cos, sin] = tuning.phasor_at(age as u64).map(|part| part * tap);
            let at = len - words_per_sample * (age + 1);
            (re[at], im[at]) = (cos, sin);
            if words_per_sample == 2 {
                (re[at + 1], im[at + 1]) = (-sin, cos);
            }
        }
        let largest = re.iter().chain(&im).fold(0.0, |max: f64, tap| max.max(tap.abs()));
        let heaviest = (0..LANES).flat_map(|lane| [lane_sum(&re, lane), lane_sum(&im, lane)]).fold(0.0, f64::max);
        // 65535 * -32768 fits 32 bits; rounding adds at most 0.5 per word of a lane.
        let headroom = 65535.0 - (len / LANES) as f64 / 2.0;
        let size = (f64::from(i16::MAX) / largest).min(headroom / heaviest);
        let round = |row: Vec<f64>| -> Vec<i16> { row.iter().map(|tap| (tap * size).round() as i16).collect() };
        let (re, im) = (round(re), round(im));
        // Response of the rounded taps to exp(2 pi i f n), at n = 0.
        let [mut gain_re, mut gain_im] = [0.0; 2];
        for age in 0..taps.len() {
            let at = len - words_per_sample * (age + 1);
            let [cos, sin] = tuning.phasor_at(age as u64);
            let (re, im) = (f64::from(re[at]), f64::from(im[at]));
            gain_re += re * cos + im * sin;
            gain_im += im * cos - re * sin;
        }
        let square = gain_re * gain_re + gain_im * gain_im;
        // The taps sum to 1 before rounding. Taps that nearly cancel each other are lost in the rounding.
        if square < (0.5 * size) * (0.5 * size) || !square.is_finite() {
            return Err(DdcError::NoGain(square.sqrt() / size));
        }
        Ok(Self { re, im, scale: [gain_re / square, -gain_im / square] })
    }

    /// Returns the window length in words.
    pub fn len(&self) -> usize {
        self.re.len()
    }
}

/// Sum of the absolute taps of one 32-bit accumulator of the narrowest kernel.
fn lane_sum(row: &[f64], lane: usize) -> f64 {
    row.chunks(2 * LANES).flat_map(|block| &block[2 * lane..2 * lane + 2]).map(|tap| tap.abs()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_that_nearly_cancel_are_refused() {
        let taps = [1e5, -99_999.0];
        let refused = TapRows::new(&taps, Tuning::ratio(0, 1).unwrap(), 2).unwrap_err();
        assert!(matches!(refused, DdcError::NoGain(_)), "{refused}");
    }

    #[test]
    fn a_three_stage_cic_is_three_moving_sums() {
        let taps = Filter::Cic { stages: 3 }.taps(2).unwrap();
        assert_eq!(taps, [1.0, 3.0, 3.0, 1.0].map(|tap| tap / 8.0));
        assert_eq!(Filter::Cic { stages: 1 }.taps(4).unwrap(), [0.25; 4]);
    }

    #[test]
    fn invalid_filters_are_refused() {
        let sinc = |passband, attenuation_db| Filter::Sinc { passband, attenuation_db };
        let bad = [sinc(0.0, 80.0), sinc(1.0, 80.0), sinc(f64::NAN, 80.0), sinc(0.8, 10.0), sinc(0.99999, 80.0)];
        let cics = [Filter::Cic { stages: 0 }, Filter::Cic { stages: 9 }];
        let given = [vec![], vec![1.0, -1.0], vec![f64::NAN], vec![f64::INFINITY, 1.0]].map(Filter::Taps);
        for filter in bad.into_iter().chain(cics).chain(given) {
            assert!(filter.taps(64).is_err(), "{filter:?}");
        }
    }

    #[test]
    fn no_accumulator_can_overflow() {
        for taps in [vec![1.0], vec![1.0; 7], vec![1.0; MAX_TAPS], Filter::default().taps(100).unwrap()] {
            for words in [1, 2] {
                let sum: f64 = taps.iter().sum();
                let taps: Vec<f64> = taps.iter().map(|tap| tap / sum).collect();
                let rows = TapRows::new(&taps, Tuning::ratio(1, 7).unwrap(), words).unwrap();
                for row in [&rows.re, &rows.im] {
                    let sizes: Vec<f64> = row.iter().map(|tap| f64::from(*tap)).collect();
                    assert!((0..LANES).all(|lane| lane_sum(&sizes, lane) <= 65535.0));
                    assert!(row.iter().all(|tap| *tap > i16::MIN), "a pair of them would overflow");
                }
            }
        }
    }
}
