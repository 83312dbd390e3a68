//! Seeded random times and factors.

use shotline_random::SplitMix64;

/// Spacing of the results of [`SplitMix64::next_f64`], 2^-53.
const STEP: f64 = f64::EPSILON / 2.0;

/// Generator of the distributions that the simulation uses.
#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Returns a uniform value in (0, 1], whose logarithm is finite.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0.next_f64() + STEP
    }

    /// Returns an exponential value with mean 1: the time to the next Poisson event.
    pub(crate) fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Returns a log-normal value with mean 1; `sigma` is the standard deviation of its logarithm.
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
