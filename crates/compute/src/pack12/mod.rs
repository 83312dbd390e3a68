//! 12-bit two's complement, most significant bit first: two samples in three bytes.
//!
//! A pair `a`, `b` is stored as `a[11:4]`, `a[3:0] b[11:8]`, `b[7:0]`. This is the bit stream of a 12-bit converter
//! and also a big-endian 12-bit integer of HDF5's n-bit filter, so the payload on the wire can be written to a file as
//! a chunk without conversion.

#[cfg(target_arch = "x86_64")]
mod sys;

/// Returns the packed size of `samples` samples, in bytes.
///
/// # Panics
/// If `samples` is odd.
pub const fn packed_bytes(samples: usize) -> usize {
    assert!(samples.is_multiple_of(2), "12-bit packing expects an even number of samples");
    samples / 2 * 3
}

/// Packs the low 12 bits of each sample.
///
/// # Panics
/// If the number of samples is odd, or `out` is not exactly [`packed_bytes`] long.
pub fn pack(samples: &[i16], out: &mut [u8]) {
    check(samples.len(), out.len());
    #[cfg(target_arch = "x86_64")]
    let done = sys::available().next().map_or(0, |kernels| (kernels.pack)(samples, out));
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    pack_portable(&samples[done..], &mut out[done / 2 * 3..]);
}

/// Unpacks samples and sign-extends them.
///
/// # Panics
/// If the length of `out` is odd, or `bytes` is not exactly [`packed_bytes`] long.
pub fn unpack(bytes: &[u8], out: &mut [i16]) {
    check(out.len(), bytes.len());
    #[cfg(target_arch = "x86_64")]
    let done = sys::available().next().map_or(0, |kernels| (kernels.unpack)(bytes, out));
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    unpack_portable(&bytes[done / 2 * 3..], &mut out[done..]);
}

fn check(samples: usize, bytes: usize) {
    let expected = packed_bytes(samples);
    assert_eq!(bytes, expected, "{samples} packed samples take {expected} bytes, found {bytes}");
}

fn pack_portable(samples: &[i16], out: &mut [u8]) {
    for (pair, bytes) in samples.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<3>().0) {
        let bits = (u32::from(pair[0] as u16) & 0xfff) << 12 | u32::from(pair[1] as u16) & 0xfff;
        *bytes = [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8];
    }
}

fn unpack_portable(bytes: &[u8], out: &mut [i16]) {
    for (bytes, pair) in bytes.as_chunks::<3>().0.iter().zip(out.as_chunks_mut::<2>().0) {
        // The sample is in the upper 12 of 16 bits; the arithmetic shift extends its sign.
        let a = i16::from_be_bytes([bytes[0], bytes[1]]) >> 4;
        let b = (i16::from_be_bytes([bytes[1], bytes[2]]) << 4) >> 4;
        *pair = [a, b];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reference implementation, one bit at a time.
    fn reference(samples: &[i16]) -> Vec<u8> {
        let mut out = vec![0; packed_bytes(samples.len())];
        let bits = samples.iter().flat_map(|s| (0..12).rev().map(move |bit| *s as u16 >> bit & 1));
        for (position, bit) in bits.enumerate() {
            out[position / 8] |= (bit as u8) << (7 - position % 8);
        }
        out
    }

    #[test]
    fn a_pair_has_the_layout_of_the_format() {
        let (mut bytes, mut back) = ([0; 3], [0; 2]);
        pack(&[0x123, -0x345], &mut bytes);
        assert_eq!(bytes, [0x12, 0x3c, 0xbb]);
        unpack(&bytes, &mut back);
        assert_eq!(back, [0x123, -0x345]);
    }

    #[test]
    fn every_value_round_trips_in_both_positions() {
        let samples: Vec<i16> = (-2048..2048).flat_map(|s| [s, -1 - s]).collect();
        let (mut bytes, mut back) = (vec![0; packed_bytes(samples.len())], vec![0; samples.len()]);
        pack(&samples, &mut bytes);
        unpack(&bytes, &mut back);
        assert_eq!(back, samples);
    }

    #[test]
    #[should_panic(expected = "4 packed samples take 6 bytes, found 5")]
    fn a_short_output_is_refused() {
        pack(&[0; 4], &mut [0; 5]);
    }

    proptest! {
        #[test]
        fn packing_matches_the_reference_and_round_trips(
            pairs in prop::collection::vec(prop::array::uniform2(any::<i16>()), 0..200)
        ) {
            let samples = pairs.as_flattened();
            let extended: Vec<i16> = samples.iter().map(|s| s << 4 >> 4).collect();
            let expected = reference(samples);
            let mut bytes = vec![0xee; expected.len()];
            let mut back = vec![0x55; samples.len()];
            pack(samples, &mut bytes);
            prop_assert_eq!(&bytes, &expected);
            unpack(&bytes, &mut back);
            prop_assert_eq!(&back, &extended);

            bytes.fill(0xee);
            back.fill(0x55);
            pack_portable(samples, &mut bytes);
            prop_assert_eq!(&bytes, &expected);
            unpack_portable(&bytes, &mut back);
            prop_assert_eq!(&back, &extended);
        }

        /// Tests every supported kernel, not only the fastest, which `pack` and `unpack` select.
        #[cfg(target_arch = "x86_64")]
        #[test]
        fn kernels_match_the_portable_one_on_whole_blocks(
            pairs in prop::collection::vec(prop::array::uniform2(any::<i16>()), 0..200)
        ) {
            let samples = pairs.as_flattened();
            let expected = reference(samples);
            let extended: Vec<i16> = samples.iter().map(|s| s << 4 >> 4).collect();
            for kernels in sys::available() {
                let (mut bytes, mut back) = (vec![0xee; expected.len()], vec![0x55; samples.len()]);
                let packed = (kernels.pack)(samples, &mut bytes);
                let unpacked = (kernels.unpack)(&expected, &mut back);
                for done in [packed, unpacked] {
                    prop_assert!(done.is_multiple_of(16) && done <= samples.len() && samples.len() - done < 32);
                }
                prop_assert_eq!(&bytes[..packed / 2 * 3], &expected[..packed / 2 * 3]);
                prop_assert!(bytes[packed / 2 * 3..].iter().all(|byte| *byte == 0xee));
                prop_assert_eq!(&back[..unpacked], &extended[..unpacked]);
                prop_assert!(back[unpacked..].iter().all(|sample| *sample == 0x55));
            }
        }
    }
}
