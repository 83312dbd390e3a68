//! Test patterns: pseudo-random samples that depend only on stream, pattern number and channel.
//!
//! A verifier regenerates the samples of a shot from these three numbers, so it needs no copy of them, and a sample in
//! the wrong shot, channel or stream does not match. The definition is fixed, for verifiers in other languages:
//!
//! - `s = stream * 0xBF58476D1CE4E5B9 + pattern * 0x9E3779B97F4A7C15 + channel * 0x94D049BB133111EB` in 64
//!   bits, wrapping; then the SplitMix64 finalizer: `z = (s ^ (s >> 30)) * 0xBF58476D1CE4E5B9`,
//!   `z = (z ^ (z >> 27)) * 0x94D049BB133111EB`, `z = z ^ (z >> 31)`. The channel's state is the upper 32 bits
//!   of `z`, or 1 if they are zero.
//! - For each sample, the state steps once (xorshift32: `x ^= x << 13`, `x ^= x >> 17`, `x ^= x << 5`), and the
//!   sample is its upper `bits` bits as a two's complement number.
//!
//! All channels step together. Samples are in the order of a shot: all channels of an instant, then the next instant.

use crate::pack12;
use shotline_wire::shot::{Geometry, Packing};

mod portable;
#[cfg(target_arch = "x86_64")]
mod sys;

/// Target number of samples that are generated before they are packed; they fit the L1 cache.
const BLOCK_SAMPLES: usize = 8192;

/// Generator of the pattern of one stream and pattern number. The pattern has no end.
#[derive(Clone, Debug)]
pub struct Prbs {
    /// State of each channel's xorshift32.
    states: Vec<u32>,
    bits: u8,
}

impl Prbs {
    /// Creates a generator at the first instant of the pattern, for samples of `bits` bits.
    ///
    /// # Panics
    /// If `channels` is 0 or `bits` is not 1 to 16.
    pub fn new(stream: u32, pattern: u64, channels: u16, bits: u8) -> Self {
        assert!(channels > 0, "a pattern needs at least one channel");
        assert!((1..=16).contains(&bits), "samples have 1 to 16 bits, found {bits}");
        let states = (0..channels).map(|channel| initial_state(stream, pattern, channel)).collect();
        Self { states, bits }
    }

    /// Generates the next instants, all channels of each.
    ///
    /// # Panics
    /// If the length of `out` is not a multiple of the channels.
    pub fn fill(&mut self, out: &mut [i16]) {
        let channels = self.states.len();
        assert!(out.len().is_multiple_of(channels), "{} samples are not a multiple of {channels} channels", out.len());
        #[cfg(target_arch = "x86_64")]
        sys::fill(&mut self.states, self.bits, out);
        #[cfg(not(target_arch = "x86_64"))]
        portable::fill(&mut self.states, self.bits, out);
    }

    /// Generates the next instants as the packed bytes of a shot.
    ///
    /// # Panics
    /// If `out` does not hold whole instants, or they do not fill a whole number of bytes.
    pub fn fill_packed(&mut self, packing: Packing, out: &mut [u8]) {
        // An even number of instants is an even number of samples for any number of channels.
        let block = (BLOCK_SAMPLES / self.states.len()).next_multiple_of(2).max(2) * self.states.len();
        let mut samples = vec![0; block.min(out.len())];
        for bytes in out.chunks_mut(block * packing.bits_per_sample() as usize / 8) {
            let samples = &mut samples[..bytes.len() * 8 / packing.bits_per_sample() as usize];
            self.fill(samples);
            match packing {
                Packing::Packed12 => pack12::pack(samples, bytes),
                Packing::Int16Le => {
                    for (sample, bytes) in samples.iter().zip(bytes.as_chunks_mut::<2>().0) {
                        *bytes = sample.to_le_bytes();
                    }
                }
                Packing::Int16Be => {
                    for (sample, bytes) in samples.iter().zip(bytes.as_chunks_mut::<2>().0) {
                        *bytes = sample.to_be_bytes();
                    }
                }
                Packing::Uint8 => samples.iter().zip(bytes).for_each(|(sample, byte)| *byte = *sample as u8),
            }
        }
    }
}

/// Writes the sample bytes of a shot that carries `pattern`, without its padding and record.
///
/// # Panics
/// If `out` is not [`Geometry::sample_bytes`] long.
pub fn write_shot(stream: u32, pattern: u64, geometry: &Geometry, out: &mut [u8]) {
    let expected = geometry.sample_bytes() as usize;
    assert_eq!(out.len(), expected, "this shot has {expected} sample bytes, found a slice of {}", out.len());
    Prbs::new(stream, pattern, geometry.channels(), geometry.bits()).fill_packed(geometry.packing(), out);
}

fn initial_state(stream: u32, pattern: u64, channel: u16) -> u32 {
    let s = u64::from(stream)
        .wrapping_mul(0xBF58_476D_1CE4_E5B9)
        .wrapping_add(pattern.wrapping_mul(0x9E37_79B9_7F4A_7C15))
        .wrapping_add(u64::from(channel).wrapping_mul(0x94D0_49BB_1331_11EB));
    let state = (shotline_random::mix(s) >> 32) as u32;
    state.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_samples_match_the_definition() {
        let first = |stream, pattern, channels, bits, instants: u16| {
            let mut samples = vec![0; usize::from(channels * instants)];
            Prbs::new(stream, pattern, channels, bits).fill(&mut samples);
            samples
        };
        // The hash of channel 0 of stream 0 and pattern 0 is zero, so its state starts at 1.
        assert_eq!(first(0, 0, 4, 12, 3), [0, 1553, 273, -83, 64, 1013, -279, 887, -1572, 1072, 1963, 432]);
        assert_eq!(first(7, 1000, 3, 12, 2), [257, 542, -1123, -357, -867, -1400]);
        assert_eq!(first(u32::MAX, u64::MAX, 2, 16, 2), [22162, 27259, 30046, -17566]);

        let geometry = Geometry::new(4, 1, 12, Packing::Packed12, 0).unwrap();
        let mut bytes = [0; 6];
        write_shot(7, 1000, &geometry, &mut bytes);
        assert_eq!(bytes, [0x10, 0x12, 0x1e, 0xb9, 0xd8, 0xd6]);
    }

    #[test]
    fn vector_and_portable_code_generate_the_same_samples() {
        for channels in [1, 2, 7, 8, 16, 31, 96, 257] {
            let (mut a, mut b) = (vec![0; channels * 50], vec![0; channels * 50]);
            let mut prbs = Prbs::new(3, 9, channels as u16, 12);
            portable::fill(&mut prbs.states.clone(), 12, &mut b);
            prbs.fill(&mut a[..channels * 20]);
            prbs.fill(&mut a[channels * 20..]);
            assert_eq!(a, b, "{channels} channels");
        }
    }

    #[test]
    fn whole_shots_are_the_packed_samples_of_any_geometry() {
        let many = Geometry::new(4097, 6, 12, Packing::Packed12, 0).unwrap();
        let odd = Geometry::new(95, 1000, 12, Packing::Packed12, 0).unwrap();
        let wide = Geometry::new(96, 333, 14, Packing::Int16Le, 0).unwrap();
        let network = Geometry::new(3, 777, 16, Packing::Int16Be, 0).unwrap();
        let pixels = Geometry::new(3, 777, 8, Packing::Uint8, 0).unwrap();
        for geometry in [many, odd, wide, network, pixels] {
            let mut samples = vec![0; usize::from(geometry.channels()) * geometry.samples() as usize];
            Prbs::new(1, 2, geometry.channels(), geometry.bits()).fill(&mut samples);
            let expected = match geometry.packing() {
                Packing::Int16Le => samples.iter().flat_map(|s| s.to_le_bytes()).collect(),
                Packing::Int16Be => samples.iter().flat_map(|s| s.to_be_bytes()).collect(),
                Packing::Uint8 => samples.iter().map(|s| *s as u8).collect::<Vec<_>>(),
                Packing::Packed12 => {
                    let mut bytes = vec![0; pack12::packed_bytes(samples.len())];
                    pack12::pack(&samples, &mut bytes);
                    bytes
                }
            };
            let mut bytes = vec![0; geometry.sample_bytes() as usize];
            write_shot(1, 2, &geometry, &mut bytes);
            assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn streams_patterns_and_channels_differ() {
        let first = |stream, pattern| {
            let mut samples = vec![0; 4 * 96];
            Prbs::new(stream, pattern, 96, 16).fill(&mut samples);
            samples
        };
        assert_ne!(first(0, 0), first(1, 0));
        assert_ne!(first(0, 0), first(0, 1));
        let samples = first(0, 0);
        assert!(samples.as_chunks::<96>().0.iter().all(|instant| instant[0] != instant[1]));
    }
}
