//! Bit-plane transposition of the bitshuffle format.
//!
//! A block of `n` elements becomes one row of `n / 8` bytes for each bit of an element, least significant bit first;
//! bit `i` of byte `j` of a row is that bit of element `8 j + i`. Neighbouring samples differ in their low bits and
//! agree in the high ones, so the rows of high bits are long runs, which LZ4 and zstd compress to almost nothing.
//! (K. Masui et al., "A compression scheme for radio data in high performance computing", Astronomy and Computing
//! 12, 2015; the HDF5 filter registered as 32008.)
//!
//! A block holds a multiple of 8 elements. The format stores the remaining elements of a shot, at most 7, without
//! transposing them.

#[cfg(target_arch = "x86_64")]
mod sys;

/// An element that can be transposed into bit planes: an 8- or 16-bit sample.
pub trait Element: sealed::Sealed + Copy {
    /// Bits per element, which is the number of planes of a block.
    const BITS: usize;
}

impl Element for u8 {
    const BITS: usize = 8;
}
impl Element for i16 {
    const BITS: usize = 16;
}

/// Transposes a block into its bit planes.
///
/// Planes from index `planes` on are filled with zeros: a 12-bit sample has 12 planes, and its sign extension need not
/// be stored.
///
/// # Panics
/// If the number of elements is not a multiple of 8, or `out` is not exactly as long as their planes.
pub fn shuffle<E: Element>(elements: &[E], planes: usize, out: &mut [u8]) {
    let row = row_bytes::<E>(elements.len(), out.len());
    #[cfg(target_arch = "x86_64")]
    let done = E::shuffle_wide(elements, out);
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    E::shuffle_portable(elements, done, out);
    out[planes.min(E::BITS) * row..].fill(0);
}

/// Restores a block from its bit planes.
///
/// # Panics
/// Under the same conditions as [`shuffle`].
pub fn unshuffle<E: Element>(planes: &[u8], out: &mut [E]) {
    row_bytes::<E>(out.len(), planes.len());
    #[cfg(target_arch = "x86_64")]
    let done = E::unshuffle_wide(planes, out);
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    E::unshuffle_portable(planes, done, out);
}

/// Checks the lengths and returns the bytes per plane.
fn row_bytes<E: Element>(elements: usize, bytes: usize) -> usize {
    assert!(elements.is_multiple_of(8), "expected a multiple of 8 elements, found {elements}");
    let expected = elements * E::BITS / 8;
    assert_eq!(bytes, expected, "{elements} elements take planes of {expected} bytes, found {bytes}");
    elements / 8
}

mod sealed {
    /// Kernels of an element type. The `_wide` ones start at the first element and return the number of elements
    /// processed, 0 if the processor lacks the instructions. The portable ones start at `from`, a multiple of 8.
    pub trait Sealed: Sized {
        fn shuffle_portable(elements: &[Self], from: usize, out: &mut [u8]);
        fn unshuffle_portable(planes: &[u8], from: usize, out: &mut [Self]);
        #[cfg(target_arch = "x86_64")]
        fn shuffle_wide(elements: &[Self], out: &mut [u8]) -> usize;
        #[cfg(target_arch = "x86_64")]
        fn unshuffle_wide(planes: &[u8], out: &mut [Self]) -> usize;
    }
}

impl sealed::Sealed for u8 {
    fn shuffle_portable(elements: &[Self], from: usize, out: &mut [u8]) {
        let row = elements.len() / 8;
        for (index, eight) in elements.as_chunks::<8>().0.iter().enumerate().skip(from / 8) {
            put_column(out, row, index, transpose(u64::from_le_bytes(*eight)));
        }
    }

    fn unshuffle_portable(planes: &[u8], from: usize, out: &mut [Self]) {
        let row = out.len() / 8;
        for (index, eight) in out.as_chunks_mut::<8>().0.iter_mut().enumerate().skip(from / 8) {
            *eight = transpose(column(planes, row, index)).to_le_bytes();
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn shuffle_wide(elements: &[Self], out: &mut [u8]) -> usize {
        sys::shuffle_u8(elements, out)
    }
    #[cfg(target_arch = "x86_64")]
    fn unshuffle_wide(planes: &[u8], out: &mut [Self]) -> usize {
        sys::unshuffle_u8(planes, out)
    }
}

impl sealed::Sealed for i16 {
    fn shuffle_portable(elements: &[Self], from: usize, out: &mut [u8]) {
        let row = elements.len() / 8;
        let (low, high) = out.split_at_mut(8 * row);
        for (index, eight) in elements.as_chunks::<8>().0.iter().enumerate().skip(from / 8) {
            put_column(low, row, index, transpose(u64::from_le_bytes(eight.map(|e| e as u8))));
            put_column(high, row, index, transpose(u64::from_le_bytes(eight.map(|e| (e >> 8) as u8))));
        }
    }

    fn unshuffle_portable(planes: &[u8], from: usize, out: &mut [Self]) {
        let row = out.len() / 8;
        let (low, high) = planes.split_at(8 * row);
        for (index, eight) in out.as_chunks_mut::<8>().0.iter_mut().enumerate().skip(from / 8) {
            let low = transpose(column(low, row, index)).to_le_bytes();
            let high = transpose(column(high, row, index)).to_le_bytes();
            for (element, (low, high)) in eight.iter_mut().zip(low.into_iter().zip(high)) {
                *element = i16::from_le_bytes([low, high]);
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn shuffle_wide(elements: &[Self], out: &mut [u8]) -> usize {
        sys::shuffle_i16(elements, out)
    }
    #[cfg(target_arch = "x86_64")]
    fn unshuffle_wide(planes: &[u8], out: &mut [Self]) -> usize {
        sys::unshuffle_i16(planes, out)
    }
}

/// Transposes an 8x8 bit matrix: bit `i` of byte `j` goes to bit `j` of byte `i` (H. S. Warren, "Hacker's Delight",
/// section 7-3).
const fn transpose(x: u64) -> u64 {
    let t = (x ^ (x >> 7)) & 0x00aa_00aa_00aa_00aa;
    let x = x ^ t ^ (t << 7);
    let t = (x ^ (x >> 14)) & 0x0000_cccc_0000_cccc;
    let x = x ^ t ^ (t << 14);
    let t = (x ^ (x >> 28)) & 0x0000_0000_f0f0_f0f0;
    x ^ t ^ (t << 28)
}

/// Returns byte `index` of each of eight planes of `row` bytes, the first plane in the least significant byte.
fn column(planes: &[u8], row: usize, index: usize) -> u64 {
    (0..8).fold(0, |word, plane| word | u64::from(planes[plane * row + index]) << (8 * plane))
}

fn put_column(planes: &mut [u8], row: usize, index: usize, bytes: u64) {
    bytes.to_le_bytes().into_iter().enumerate().for_each(|(plane, byte)| planes[plane * row + index] = byte);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reference implementation, one bit at a time.
    fn reference(elements: &[u16], bits: usize, planes: usize) -> Vec<u8> {
        let row = elements.len() / 8;
        let mut out = vec![0; bits * row];
        for (plane, (index, element)) in (0..planes).flat_map(|p| elements.iter().enumerate().map(move |e| (p, e))) {
            out[plane * row + index / 8] |= (((element >> plane) & 1) as u8) << (index % 8);
        }
        out
    }

    #[test]
    fn a_block_has_the_layout_of_the_format() {
        let mut planes = [0xee; 16];
        shuffle(&[1_i16, 0, 3, 0, 0, -1, 0, 0x100], 16, &mut planes);
        let mut expected = [0x20; 16];
        (expected[0], expected[1], expected[8]) = (0x25, 0x24, 0xa0);
        assert_eq!(planes, expected);
    }

    #[test]
    #[should_panic(expected = "expected a multiple of 8 elements, found 12")]
    fn element_counts_not_a_multiple_of_8_are_refused() {
        shuffle(&[0_i16; 12], 16, &mut [0; 24]);
    }

    #[test]
    #[should_panic(expected = "16 elements take planes of 32 bytes, found 31")]
    fn a_short_input_is_refused() {
        unshuffle(&[0; 31], &mut [0_i16; 16]);
    }

    proptest! {
        #[test]
        fn shuffling_i16_matches_the_reference_and_round_trips(
            eights in prop::collection::vec(prop::array::uniform8(any::<i16>()), 0..80), planes in 1_usize..=16,
        ) {
            let elements = eights.as_flattened();
            let unsigned: Vec<u16> = elements.iter().map(|e| *e as u16).collect();
            let mut out = vec![0xee; 2 * elements.len()];
            shuffle(elements, planes, &mut out);
            prop_assert_eq!(&out, &reference(&unsigned, 16, planes));
            <i16 as sealed::Sealed>::shuffle_portable(elements, 0, &mut out);
            prop_assert_eq!(&out, &reference(&unsigned, 16, 16));
            let mut back = vec![0x55; elements.len()];
            unshuffle(&out, &mut back);
            prop_assert_eq!(&back, elements);
            back.fill(0x55);
            <i16 as sealed::Sealed>::unshuffle_portable(&out, 0, &mut back);
            prop_assert_eq!(&back, elements);
        }

        #[test]
        fn shuffling_u8_matches_the_reference_and_round_trips(
            eights in prop::collection::vec(prop::array::uniform8(any::<u8>()), 0..80), planes in 1_usize..=8,
        ) {
            let elements = eights.as_flattened();
            let wide: Vec<u16> = elements.iter().map(|e| u16::from(*e)).collect();
            let mut out = vec![0xee; elements.len()];
            shuffle(elements, planes, &mut out);
            prop_assert_eq!(&out, &reference(&wide, 8, planes));
            <u8 as sealed::Sealed>::shuffle_portable(elements, 0, &mut out);
            prop_assert_eq!(&out, &reference(&wide, 8, 8));
            let mut back = vec![0x55; elements.len()];
            unshuffle(&out, &mut back);
            prop_assert_eq!(&back, elements);
            back.fill(0x55);
            <u8 as sealed::Sealed>::unshuffle_portable(&out, 0, &mut back);
            prop_assert_eq!(&back, elements);
        }
    }
}
