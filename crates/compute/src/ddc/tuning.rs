//! The numerically controlled oscillator's frequency and phase, as 64-bit fractions of a cycle.

use super::error::DdcError;
use std::f64::consts::TAU;

/// A frequency as cycles a sample, in units of 2^-64: the step of a phase accumulator that wraps each cycle.
///
/// The accumulator is exact, so the phase is off by at most half a unit a sample: by less than 3e-8 of a cycle
/// after 10^12 samples. At 500 MS/s one unit is 27 pHz.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning(u64);

impl Tuning {
    /// `frequency_hz` of samples taken at `sample_rate_hz`, rounded once. The frequency may be negative, and beyond
    /// the sample rate: it is taken modulo that, as undersampling folds it.
    ///
    /// # Errors
    /// If the rate is not positive or either is not finite.
    pub fn hz(frequency_hz: f64, sample_rate_hz: f64) -> Result<Self, DdcError> {
        if !frequency_hz.is_finite() || !sample_rate_hz.is_normal() || sample_rate_hz < 0.0 {
            return Err(DdcError::Frequency { frequency_hz, sample_rate_hz });
        }
        // Both are binary fractions, and so is the remainder: the quotient is computed in integers, without error.
        let (numerator, exponent) = binary(frequency_hz.abs() % sample_rate_hz);
        let (denominator, of_rate) = binary(sample_rate_hz);
        let shift = 64 + exponent - of_rate;
        let step = match shift {
            0.. => rounded(u128::from(numerator) << shift, denominator.into()), // below 2^53 and at most 2^64
            -54..0 => rounded(numerator.into(), u128::from(denominator) << -shift),
            _ => 0,
        };
        Ok(Self(if frequency_hz < 0.0 { step.wrapping_neg() } else { step }))
    }

    /// `cycles` in `samples`, rounded once: an intermediate frequency that is 1/6 of the sample rate is
    /// `ratio(1, 6)`, which no number of hertz may say exactly.
    ///
    /// # Errors
    /// If `samples` is zero.
    pub fn ratio(cycles: i64, samples: u32) -> Result<Self, DdcError> {
        if samples == 0 {
            return Err(DdcError::Frequency { frequency_hz: cycles as f64, sample_rate_hz: 0.0 });
        }
        let cycles = cycles.rem_euclid(samples.into()) as u128;
        Ok(Self(rounded(cycles << 64, samples.into())))
    }

    /// The frequency in cycles a sample, -0.5 to 0.5.
    pub fn cycles_per_sample(self) -> f64 {
        self.0 as i64 as f64 / 2_f64.powi(64)
    }

    /// The phase after `samples`, in units of 2^-64 of a cycle.
    pub fn phase_at(self, samples: u64) -> u64 {
        self.0.wrapping_mul(samples)
    }

    /// exp(2 pi i phase) at that sample, as real and imaginary part.
    pub(super) fn turn_at(self, samples: u64) -> [f64; 2] {
        let (sin, cos) = (self.phase_at(samples) as i64 as f64 / 2_f64.powi(64) * TAU).sin_cos();
        [cos, sin]
    }
}

/// A finite, non-negative number as an integer of 53 bits and a power of two.
fn binary(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 52) as i32 & 0x7ff, bits & ((1 << 52) - 1));
    match exponent {
        0 => (fraction, -1074),
        _ => (fraction | 1 << 52, exponent - 1075),
    }
}

/// The nearest integer to a quotient, modulo 2^64.
fn rounded(numerator: u128, denominator: u128) -> u64 {
    ((numerator + denominator / 2) / denominator) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frequencies_that_are_fractions_of_a_power_of_two_are_exact() {
        assert_eq!(Tuning::hz(125e6, 500e6), Ok(Tuning(1 << 62)));
        assert_eq!(Tuning::hz(-125e6, 500e6), Ok(Tuning(3 << 62)));
        assert_eq!(Tuning::hz(625e6, 500e6), Ok(Tuning(1 << 62)), "folded by undersampling");
        assert_eq!(Tuning::hz(1.0, 2_f64.powi(60)), Ok(Tuning(16)));
        assert_eq!(Tuning::hz(1e-300, 1e9), Ok(Tuning(0)));
        assert_eq!(Tuning::ratio(-3, 4), Tuning::ratio(1, 4));
    }

    #[test]
    fn a_sixth_is_a_sixth_after_a_million_million_samples() {
        let samples = 1_000_000_000_000_u64; // leaves 4 of 6
        let error = Tuning::ratio(1, 6).unwrap().phase_at(samples) as f64 / 2_f64.powi(64) - 4.0 / 6.0;
        assert!(error.abs() < 3e-8, "{error}");
    }

    #[test]
    fn what_is_no_frequency_is_refused() {
        for (f, rate) in [(1.0, 0.0), (1.0, -1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (1.0, f64::NAN)] {
            assert!(Tuning::hz(f, rate).is_err(), "{f} {rate}");
        }
        assert!(Tuning::ratio(1, 0).is_err());
    }

    proptest! {
        #[test]
        fn hertz_are_divided_as_integers_would_be(f in 0_u32.., rate in 1_u32..) {
            let exact = rounded(u128::from(f % rate) << 64, rate.into());
            prop_assert_eq!(Tuning::hz(f.into(), rate.into()), Ok(Tuning(exact)));
            prop_assert_eq!(Tuning::hz(-f64::from(f), rate.into()), Ok(Tuning(exact.wrapping_neg())));
            prop_assert_eq!(Tuning::ratio(f.into(), rate), Ok(Tuning(exact)));
        }
    }
}
