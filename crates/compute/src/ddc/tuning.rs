//! Frequency and phase of the numerically controlled oscillator (NCO), as 64-bit fractions of a cycle.

use super::error::DdcError;
use std::f64::consts::TAU;

/// NCO frequency in cycles per sample, in units of 2^-64: the increment of a phase accumulator that wraps each cycle.
///
/// The accumulator is exact, so the phase error is at most half a unit per sample: less than 3e-8 of a cycle after
/// 10^12 samples. At 500 MS/s one unit is 27 pHz.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning(u64);

impl Tuning {
    /// Creates a tuning to `frequency_hz` for samples taken at `sample_rate_hz`, rounded once.
    ///
    /// The frequency may be negative or exceed the sample rate; it is taken modulo the sample rate, as undersampling
    /// folds it.
    ///
    /// # Errors
    /// If the rate is not positive or either value is not finite.
    pub fn hz(frequency_hz: f64, sample_rate_hz: f64) -> Result<Self, DdcError> {
        if !frequency_hz.is_finite() || !sample_rate_hz.is_normal() || sample_rate_hz < 0.0 {
            return Err(DdcError::Frequency { frequency_hz, sample_rate_hz });
        }
        // Both values and the remainder are binary fractions, so the quotient is computed exactly in integers.
        let (numerator, exponent) = decompose(frequency_hz.abs() % sample_rate_hz);
        let (denominator, rate_exponent) = decompose(sample_rate_hz);
        let shift = 64 + exponent - rate_exponent;
        let step = match shift {
            0.. => div_round(u128::from(numerator) << shift, denominator.into()), // below 2^53 and at most 2^64
            -54..0 => div_round(numerator.into(), u128::from(denominator) << -shift),
            _ => 0,
        };
        Ok(Self(if frequency_hz < 0.0 { step.wrapping_neg() } else { step }))
    }

    /// Creates a tuning to `cycles` per `samples`, rounded once. An intermediate frequency of 1/6 of the sample rate is
    /// `ratio(1, 6)`, which may have no exact value in hertz.
    ///
    /// # Errors
    /// If `samples` is zero.
    pub fn ratio(cycles: i64, samples: u32) -> Result<Self, DdcError> {
        if samples == 0 {
            return Err(DdcError::Frequency { frequency_hz: cycles as f64, sample_rate_hz: 0.0 });
        }
        let cycles = cycles.rem_euclid(samples.into()) as u128;
        Ok(Self(div_round(cycles << 64, samples.into())))
    }

    /// Returns the frequency in cycles per sample, -0.5 to 0.5.
    pub fn cycles_per_sample(self) -> f64 {
        self.0 as i64 as f64 / 2_f64.powi(64)
    }

    /// Returns the phase after `samples`, in units of 2^-64 of a cycle.
    pub fn phase_at(self, samples: u64) -> u64 {
        self.0.wrapping_mul(samples)
    }

    /// Returns exp(2 pi i phase) at a sample as its real and imaginary parts.
    pub(super) fn phasor_at(self, samples: u64) -> [f64; 2] {
        let (sin, cos) = (self.phase_at(samples) as i64 as f64 / 2_f64.powi(64) * TAU).sin_cos();
        [cos, sin]
    }
}

/// Decomposes a finite, non-negative number into a 53-bit integer and a power of two.
fn decompose(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 52) as i32 & 0x7ff, bits & ((1 << 52) - 1));
    match exponent {
        0 => (fraction, -1074),
        _ => (fraction | 1 << 52, exponent - 1075),
    }
}

/// Returns the quotient rounded to the nearest integer, modulo 2^64.
fn div_round(numerator: u128, denominator: u128) -> u64 {
    ((numerator + denominator / 2) / denominator) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn binary_fractions_are_exact() {
        assert_eq!(Tuning::hz(125e6, 500e6), Ok(Tuning(1 << 62)));
        assert_eq!(Tuning::hz(-125e6, 500e6), Ok(Tuning(3 << 62)));
        assert_eq!(Tuning::hz(625e6, 500e6), Ok(Tuning(1 << 62)), "folded by undersampling");
        assert_eq!(Tuning::hz(1.0, 2_f64.powi(60)), Ok(Tuning(16)));
        assert_eq!(Tuning::hz(1e-300, 1e9), Ok(Tuning(0)));
        assert_eq!(Tuning::ratio(-3, 4), Tuning::ratio(1, 4));
    }

    #[test]
    fn a_sixth_stays_exact_after_a_trillion_samples() {
        let samples = 1_000_000_000_000_u64; // leaves 4 of 6
        let error = Tuning::ratio(1, 6).unwrap().phase_at(samples) as f64 / 2_f64.powi(64) - 4.0 / 6.0;
        assert!(error.abs() < 3e-8, "{error}");
    }

    #[test]
    fn invalid_frequencies_are_refused() {
        for (f, rate) in [(1.0, 0.0), (1.0, -1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (1.0, f64::NAN)] {
            assert!(Tuning::hz(f, rate).is_err(), "{f} {rate}");
        }
        assert!(Tuning::ratio(1, 0).is_err());
    }

    proptest! {
        #[test]
        fn hertz_match_an_exact_integer_division(f in 0_u32.., rate in 1_u32..) {
            let exact = div_round(u128::from(f % rate) << 64, rate.into());
            prop_assert_eq!(Tuning::hz(f.into(), rate.into()), Ok(Tuning(exact)));
            prop_assert_eq!(Tuning::hz(-f64::from(f), rate.into()), Ok(Tuning(exact.wrapping_neg())));
            prop_assert_eq!(Tuning::ratio(f.into(), rate), Ok(Tuning(exact)));
        }
    }
}
