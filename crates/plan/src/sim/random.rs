//! Random times and factors that a seed repeats.

use shotline_random::SplitMix64;

/// The distance of two neighbouring results of [`SplitMix64::next_f64`], 2^-53.
const STEP: f64 = f64::EPSILON / 2.0;

/// A generator of the distributions that the simulation draws from.
#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Evenly from 0 to 1, without 0, so that it has a logarithm.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0.next_f64() + STEP
    }

    /// Time to the next of events that come at random, of a mean of 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Log-normal with a mean of 1; `sigma` is the standard deviation of its logarithm.
    pub(crate) fn lognormal(&mut self, sigma: f64) -> f64 {
        let normal = (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
        (sigma * normal - sigma * sigma / 2.0).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_the_generators_upper_53_bits_plus_one() {
        let (mut random, mut bits) = (Random::new(1_234_567), SplitMix64::new(1_234_567));
        for _ in 0..1000 {
            assert_eq!(random.unit(), ((bits.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64);
        }
    }
}
