//! Seedable pseudorandom numbers: a seed gives the same sequence on every machine and in every version.
//!
//! Emulated data, simulations and tests depend on the sequences of [`SplitMix64`] and on how many numbers each of its
//! methods draws: both are fixed. Not cryptographically secure.
//!
//! ```
//! let mut random = shotline_random::SplitMix64::new(1_234_567);
//! assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
//! ```
#![no_std]
#![forbid(unsafe_code)]

/// Increment of the state: the odd number closest to 2^64 divided by the golden ratio.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The generator SplitMix64 of Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014,
/// with the output function and the outputs of Vigna's `splitmix64.c`.
///
/// Its period is 2^64, and each number occurs once in it.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Creates a generator with this seed. All seeds are equally good.
    #[inline]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next 64 random bits.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix(self.state)
    }

    /// Returns a number in [0, 1), a multiple of 2^-53. Draws one number.
    #[inline]
    pub const fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0. Draws one number; the bias is below `bound / 2^64`.
    #[inline]
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// Returns a number from `low` to `high`, inclusive. Draws one number.
    ///
    /// # Panics
    /// In debug builds, if `low` is above `high` or the range is all of `u64`.
    #[inline]
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns `true` with this probability, from 0 to 1. Always draws one number.
    #[inline]
    pub const fn chance(&mut self, probability: f64) -> bool {
        self.next_f64() < probability
    }

    /// Returns one of the choices. Draws one number.
    ///
    /// # Panics
    /// If there are no choices.
    #[inline]
    pub const fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Fills a slice with random bytes. Draws one number for every 8 bytes, little-endian, and one for a remainder.
    pub fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Output function of SplitMix64: a bijection that hashes 64 bits to 64 bits (Stafford's "Mix13", a variant of
/// MurmurHash3's finalizer).
#[inline]
pub const fn mix(bits: u64) -> u64 {
    let z = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First outputs of `splitmix64.c` for the seed 1234567.
    const REFERENCE: [u64; 5] = [
        6_457_827_717_110_365_317,
        3_203_168_211_198_807_973,
        9_817_491_932_198_370_423,
        4_593_380_528_125_082_431,
        16_408_922_859_458_223_821,
    ];

    #[test]
    fn outputs_match_the_reference() {
        let mut random = SplitMix64::new(1_234_567);
        assert_eq!([(); 5].map(|()| random.next_u64()), REFERENCE);
    }

    #[test]
    fn methods_map_the_bits_as_specified() {
        let new = || SplitMix64::new(1_234_567);
        let scaled = |bound: u64| ((u128::from(REFERENCE[0]) * u128::from(bound)) >> 64) as u64;
        assert_eq!(new().next_f64(), (REFERENCE[0] >> 11) as f64 * 2_f64.powi(-53));
        assert_eq!([0, 1, 7, u64::MAX].map(|bound| new().below(bound)), [0, 0, scaled(7), scaled(u64::MAX)]);
        assert_eq!(new().between(100, 20_000), 100 + scaled(19_901));
        assert_eq!(new().choose(&[0, 1, 2]), scaled(3));
        let mut bytes = [0; 11];
        new().fill_bytes(&mut bytes);
        assert_eq!(bytes[..8], REFERENCE[0].to_le_bytes());
        assert_eq!(bytes[8..], REFERENCE[1].to_le_bytes()[..3]);
    }

    #[test]
    fn bounds_and_probabilities_hold() {
        let mut random = SplitMix64::new(5);
        assert!((0..1000).all(|_| random.below(7) < 7 && (3..=5).contains(&random.between(3, 5))));
        assert!((0..1000).all(|_| !random.chance(0.0) && random.chance(1.0)));
        let hits = (0..10_000).filter(|_| random.chance(0.25)).count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
    }

    #[test]
    fn chance_always_draws_one_number() {
        for probability in [0.0, 0.5, 1.0] {
            let mut random = SplitMix64::new(1_234_567);
            random.chance(probability);
            assert_eq!(random.next_u64(), REFERENCE[1], "{probability}");
        }
    }
}
