//! Low-pass filters: their design, and their taps as the kernels want them.

use super::error::{DdcError, MAX_TAPS};
use super::tuning::Tuning;
use std::f64::consts::PI;

/// 16-bit numbers that a kernel takes at a time at most; rows of taps are padded to a multiple.
pub(super) const WORDS: usize = 32;

/// Which low-pass filter stands before the decimation. Each is scaled to a gain of 1 at its centre.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// A windowed sinc (Kaiser's window and his formula for its length), 6 dB down at the output's band edge.
    ///
    /// `passband` is the flat part of the output's band, 0 to 1; what lies beyond its mirror image on the other
    /// side of the edge is `attenuation_db` down, so what aliases into the passband is.
    Sinc {
        /// Flat part of the output's band: greater than 0, less than 1.
        passband: f64,
        /// Attenuation of the stopband, 21 to 120 dB. Taps of 16 bits reach about 95.
        attenuation_db: f64,
    },
    /// The response of a cascaded integrator-comb filter (Hogenauer 1981) with a differential delay of 1: `stages`
    /// moving sums over one output sample each. Here it is carried out as the finite filter that it is equal to.
    Cic {
        /// Integrators, and combs: 1 to 8.
        stages: u32,
    },
    /// These taps, the first for the newest sample.
    Taps(Vec<f64>),
}

impl Default for Filter {
    /// 80% of the output's band flat, 80 dB of attenuation: 25 taps for each step of decimation.
    fn default() -> Self {
        Self::Sinc { passband: 0.8, attenuation_db: 80.0 }
    }
}

impl Filter {
    /// Its impulse response for this decimation, the newest sample's tap first; their sum is 1.
    ///
    /// # Errors
    /// If it cannot be made, or has more than [`MAX_TAPS`].
    pub fn taps(&self, decimation: u32) -> Result<Vec<f64>, DdcError> {
        let taps = match *self {
            Self::Sinc { passband, attenuation_db } => {
                if !(passband > 0.0 && passband < 1.0 && (21.0..=120.0).contains(&attenuation_db)) {
                    return Err(DdcError::Sinc { passband, attenuation_db });
                }
                let decimation = f64::from(decimation);
                let len = (attenuation_db - 7.95) / (14.36 * (1.0 - passband)) * decimation;
                let len = fits(len.ceil() as usize | 1)?; // an odd number: the delay is whole samples
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
                fits(stages as usize * sum)?;
                let mut response = vec![1.0; sum];
                for _ in 1..stages {
                    response = moving_sum(&response, sum);
                }
                response
            }
            Self::Taps(ref taps) => {
                fits(taps.len())?;
                taps.clone()
            }
        };
        let sum: f64 = taps.iter().sum();
        let size: f64 = taps.iter().map(|tap| tap.abs()).sum();
        // Not the right way round for a NaN, which must be refused as well.
        if !(sum.abs() > size * 1e-6 && size.is_finite()) {
            return Err(DdcError::NoGain(sum));
        }
        Ok(taps.into_iter().map(|tap| tap / sum).collect())
    }
}

fn fits(taps: usize) -> Result<usize, DdcError> {
    if (1..=MAX_TAPS).contains(&taps) { Ok(taps) } else { Err(DdcError::Taps(taps)) }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

/// Kaiser's shape parameter for an attenuation.
fn kaiser_beta(attenuation_db: f64) -> f64 {
    match attenuation_db {
        a if a > 50.0 => 0.1102 * (a - 8.7),
        a => 0.5842 * (a - 21.0).powf(0.4) + 0.07886 * (a - 21.0),
    }
}

/// The modified Bessel function of the first kind and order zero, by its power series.
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

/// The sum of the last `len` values at each place, and behind the end.
fn moving_sum(values: &[f64], len: usize) -> Vec<f64> {
    let mut sum = 0.0;
    (0..values.len() + len - 1)
        .map(|at| {
            sum += values.get(at).copied().unwrap_or(0.0);
            sum -= at.checked_sub(len).map_or(0.0, |gone| values[gone]);
            sum
        })
        .collect()
}

/// Two rows of 16-bit taps over a window of 16-bit words, the oldest first: their sums of products are the real and
/// the imaginary part of what the filter, shifted to the oscillator's frequency, makes of the window.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub re: Vec<i16>,
    pub im: Vec<i16>,
    /// The complex factor that makes the gain at the oscillator's frequency 1: it undoes what rounding did to it.
    pub scale: [f64; 2],
}

/// 32-bit sums that the narrowest kernel keeps side by side, each over pairs of words.
const LANES: usize = 8;

impl Rows {
    /// Taps for samples of one word (real) or two (complex).
    ///
    /// They are as large as 16 bits allow, and small enough that no kernel's 32-bit sums can overflow, whatever
    /// the samples are.
    pub fn new(taps: &[f64], tuning: Tuning, words_per_sample: usize) -> Result<Self, DdcError> {
        let len = (taps.len() * words_per_sample).next_multiple_of(WORDS);
        let (mut re, mut im) = (vec![0.0; len], vec![0.0; len]);
        for (age, tap) in taps.iter().enumerate() {
            let [cos, sin] = tuning.turn_at(age as u64).map(|part| part * tap);
            let at = len - words_per_sample * (age + 1);
            (re[at], im[at]) = (cos, sin);
            if words_per_sample == 2 {
                (re[at + 1], im[at + 1]) = (-sin, cos);
            }
        }
        let largest = re.iter().chain(&im).fold(0.0, |most: f64, tap| most.max(tap.abs()));
        let heaviest = (0..LANES).flat_map(|lane| [lane_sum(&re, lane), lane_sum(&im, lane)]).fold(0.0, f64::max);
        // Sums of 65535 times -32768 fit 32 bits; rounding adds at most a half for each word of a lane.
        let room = 65535.0 - (len / LANES) as f64 / 2.0;
        let size = (f64::from(i16::MAX) / largest).min(room / heaviest);
        let round = |row: Vec<f64>| -> Vec<i16> { row.iter().map(|tap| (tap * size).round() as i16).collect() };
        let (re, im) = (round(re), round(im));
        // What the taps as they now are make of exp(2 pi i f n), seen at n = 0.
        let [mut gain_re, mut gain_im] = [0.0; 2];
        for age in 0..taps.len() {
            let at = len - words_per_sample * (age + 1);
            let [cos, sin] = tuning.turn_at(age as u64);
            let (re, im) = (f64::from(re[at]), f64::from(im[at]));
            gain_re += re * cos + im * sin;
            gain_im += im * cos - re * sin;
        }
        let square = gain_re * gain_re + gain_im * gain_im;
        // Their sum is 1 before rounding; taps that all but cancel each other are lost in it.
        if square < (0.5 * size) * (0.5 * size) || !square.is_finite() {
            return Err(DdcError::NoGain(square.sqrt() / size));
        }
        Ok(Self { re, im, scale: [gain_re / square, -gain_im / square] })
    }

    /// Words of a window.
    pub fn len(&self) -> usize {
        self.re.len()
    }
}

/// The sum of what one 32-bit lane of the narrowest kernel is multiplied with.
fn lane_sum(row: &[f64], lane: usize) -> f64 {
    row.chunks(2 * LANES).flat_map(|block| &block[2 * lane..2 * lane + 2]).map(|tap| tap.abs()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_that_all_but_cancel_each_other_are_refused() {
        let taps = [1e5, -99_999.0];
        let refused = Rows::new(&taps, Tuning::ratio(0, 1).unwrap(), 2).unwrap_err();
        assert!(matches!(refused, DdcError::NoGain(_)), "{refused}");
    }

    #[test]
    fn a_cic_of_three_stages_is_a_moving_sum_three_times() {
        let taps = Filter::Cic { stages: 3 }.taps(2).unwrap();
        assert_eq!(taps, [1.0, 3.0, 3.0, 1.0].map(|tap| tap / 8.0));
        assert_eq!(Filter::Cic { stages: 1 }.taps(4).unwrap(), [0.25; 4]);
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        let sinc = |passband, attenuation_db| Filter::Sinc { passband, attenuation_db };
        let bad = [sinc(0.0, 80.0), sinc(1.0, 80.0), sinc(f64::NAN, 80.0), sinc(0.8, 10.0), sinc(0.99999, 80.0)];
        let cics = [Filter::Cic { stages: 0 }, Filter::Cic { stages: 9 }];
        let given = [vec![], vec![1.0, -1.0], vec![f64::NAN], vec![f64::INFINITY, 1.0]].map(Filter::Taps);
        for filter in bad.into_iter().chain(cics).chain(given) {
            assert!(filter.taps(64).is_err(), "{filter:?}");
        }
    }

    #[test]
    fn no_lane_of_any_kernel_can_overflow() {
        for taps in [vec![1.0], vec![1.0; 7], vec![1.0; MAX_TAPS], Filter::default().taps(100).unwrap()] {
            for words in [1, 2] {
                let sum: f64 = taps.iter().sum();
                let taps: Vec<f64> = taps.iter().map(|tap| tap / sum).collect();
                let rows = Rows::new(&taps, Tuning::ratio(1, 7).unwrap(), words).unwrap();
                for row in [&rows.re, &rows.im] {
                    let sizes: Vec<f64> = row.iter().map(|tap| f64::from(*tap)).collect();
                    assert!((0..LANES).all(|lane| lane_sum(&sizes, lane) <= 65535.0));
                    assert!(row.iter().all(|tap| *tap > i16::MIN), "two of them in a pair would overflow");
                }
            }
        }
    }
}
