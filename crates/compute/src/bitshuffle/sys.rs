//! AVX2 kernels. Each returns the number of elements processed; the portable kernel processes the rest.

use std::arch::x86_64::*;

/// Elements per step of a shuffle.
const SHUFFLE_STEP: usize = 32;
/// Elements per step of an unshuffle.
const UNSHUFFLE_STEP: usize = 128;

/// Shuffles whole steps of 8-bit elements, none without AVX2. `out` has one byte per element.
pub(super) fn shuffle_u8(elements: &[u8], out: &mut [u8]) -> usize {
    assert!(out.len() >= elements.len());
    if !is_x86_feature_detected!("avx2") {
        return 0;
    }
    // SAFETY: AVX2 was just detected.
    unsafe { shuffle_u8_avx2(elements, out) }
}

/// Shuffles whole steps of 16-bit elements, none without AVX2. `out` has two bytes per element.
pub(super) fn shuffle_i16(elements: &[i16], out: &mut [u8]) -> usize {
    assert!(out.len() >= 2 * elements.len());
    if !is_x86_feature_detected!("avx2") {
        return 0;
    }
    // SAFETY: AVX2 was just detected.
    unsafe { shuffle_i16_avx2(elements, out) }
}

/// Unshuffles whole steps of 8-bit elements, none without AVX2. `planes` has one byte per element.
pub(super) fn unshuffle_u8(planes: &[u8], out: &mut [u8]) -> usize {
    assert!(planes.len() >= out.len());
    if !is_x86_feature_detected!("avx2") {
        return 0;
    }
    // SAFETY: AVX2 was just detected.
    unsafe { unshuffle_u8_avx2(planes, out) }
}

/// Unshuffles whole steps of 16-bit elements, none without AVX2. `planes` has two bytes per element.
pub(super) fn unshuffle_i16(planes: &[u8], out: &mut [i16]) -> usize {
    assert!(planes.len() >= 2 * out.len());
    if !is_x86_feature_detected!("avx2") {
        return 0;
    }
    // SAFETY: AVX2 was just detected.
    unsafe { unshuffle_i16_avx2(planes, out) }
}

#[target_feature(enable = "avx2")]
fn shuffle_u8_avx2(elements: &[u8], out: &mut [u8]) -> usize {
    let row = elements.len() / 8;
    let (steps, _) = elements.as_chunks::<SHUFFLE_STEP>();
    for (index, step) in steps.iter().enumerate() {
        // SAFETY: an unaligned load of the 32 bytes of a step.
        let bytes = unsafe { _mm256_loadu_si256(step.as_ptr().cast()) };
        put_planes(bytes, &mut out[index * SHUFFLE_STEP / 8..], row);
    }
    steps.len() * SHUFFLE_STEP
}

#[target_feature(enable = "avx2")]
fn shuffle_i16_avx2(elements: &[i16], out: &mut [u8]) -> usize {
    let row = elements.len() / 8;
    let (low_planes, high_planes) = out.split_at_mut(8 * row);
    let low_byte = _mm256_set1_epi16(0xff);
    let (steps, _) = elements.as_chunks::<SHUFFLE_STEP>();
    for (index, step) in steps.iter().enumerate() {
        // SAFETY: unaligned loads of the first and the last 32 of the 64 bytes of a step.
        let (a, b) = unsafe {
            (_mm256_loadu_si256(step.as_ptr().cast()), _mm256_loadu_si256(step.as_ptr().add(SHUFFLE_STEP / 2).cast()))
        };
        // The pack instruction interleaves the 128-bit lanes of its operands; the permutation restores their order.
        let low = _mm256_packus_epi16(_mm256_and_si256(a, low_byte), _mm256_and_si256(b, low_byte));
        let high = _mm256_packus_epi16(_mm256_srli_epi16::<8>(a), _mm256_srli_epi16::<8>(b));
        let at = index * SHUFFLE_STEP / 8;
        put_planes(_mm256_permute4x64_epi64::<0b11_01_10_00>(low), &mut low_planes[at..], row);
        put_planes(_mm256_permute4x64_epi64::<0b11_01_10_00>(high), &mut high_planes[at..], row);
    }
    steps.len() * SHUFFLE_STEP
}

/// Writes the bit planes of 32 bytes to `out`, one plane every `row` bytes.
#[target_feature(enable = "avx2")]
fn put_planes(mut bytes: __m256i, out: &mut [u8], row: usize) {
    let out = &mut out[..7 * row + SHUFFLE_STEP / 8];
    for plane in (0..8).rev() {
        let bits = _mm256_movemask_epi8(bytes);
        out[plane * row..plane * row + SHUFFLE_STEP / 8].copy_from_slice(&bits.to_le_bytes());
        bytes = _mm256_add_epi8(bytes, bytes); // moves the next bit to the sign position
    }
}

#[target_feature(enable = "avx2")]
fn unshuffle_u8_avx2(planes: &[u8], out: &mut [u8]) -> usize {
    let row = out.len() / 8;
    let (steps, _) = out.as_chunks_mut::<UNSHUFFLE_STEP>();
    for (index, step) in steps.iter_mut().enumerate() {
        let bytes = bytes_of(&planes[index * UNSHUFFLE_STEP / 8..], row);
        for (part, bytes) in bytes.into_iter().enumerate() {
            // SAFETY: an unaligned store of 32 bytes, a quarter of the step.
            unsafe { _mm256_storeu_si256(step.as_mut_ptr().add(32 * part).cast(), bytes) };
        }
    }
    steps.len() * UNSHUFFLE_STEP
}

#[target_feature(enable = "avx2")]
fn unshuffle_i16_avx2(planes: &[u8], out: &mut [i16]) -> usize {
    let row = out.len() / 8;
    let (low_planes, high_planes) = planes.split_at(8 * row);
    let (steps, _) = out.as_chunks_mut::<UNSHUFFLE_STEP>();
    for (index, step) in steps.iter_mut().enumerate() {
        let at = index * UNSHUFFLE_STEP / 8;
        let (low, high) = (bytes_of(&low_planes[at..], row), bytes_of(&high_planes[at..], row));
        for (part, (low, high)) in low.into_iter().zip(high).enumerate() {
            // The unpack instructions work on 128-bit lanes: first and third eight elements, then second and fourth.
            let (a, b) = (_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high));
            let (first, second) = (_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b));
            // SAFETY: unaligned stores of 16 elements each, together a quarter of the step.
            unsafe {
                _mm256_storeu_si256(step.as_mut_ptr().add(32 * part).cast(), first);
                _mm256_storeu_si256(step.as_mut_ptr().add(32 * part + 16).cast(), second);
            }
        }
    }
    steps.len() * UNSHUFFLE_STEP
}

/// Restores 128 bytes from their bit planes, which start every `row` bytes of `planes`.
#[target_feature(enable = "avx2")]
fn bytes_of(planes: &[u8], row: usize) -> [__m256i; 4] {
    let planes = &planes[..7 * row + UNSHUFFLE_STEP / 8];
    let load = |plane: usize| {
        let bytes: &[u8; 16] = planes[plane * row..].first_chunk().expect("16 bytes of every plane");
        // SAFETY: an unaligned load of 16 bytes.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    };
    // Two planes interleaved by bytes: pairs 0 to 7 in the lower half of the register, 8 to 15 in the upper half, so
    // that the following steps process both halves at once.
    let pair = |a: usize| {
        let (a, b) = (load(a), load(a + 1));
        _mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b))
    };
    let (p01, p23, p45, p67) = (pair(0), pair(2), pair(4), pair(6));
    let (low_a, low_b) = (_mm256_unpacklo_epi16(p01, p23), _mm256_unpackhi_epi16(p01, p23));
    let (high_a, high_b) = (_mm256_unpacklo_epi16(p45, p67), _mm256_unpackhi_epi16(p45, p67));
    // Each 64-bit word now has the eight bytes of one column: columns 0, 1 | 8, 9; then 2, 3 | 10, 11; and so on.
    let columns = [
        _mm256_unpacklo_epi32(low_a, high_a),
        _mm256_unpackhi_epi32(low_a, high_a),
        _mm256_unpacklo_epi32(low_b, high_b),
        _mm256_unpackhi_epi32(low_b, high_b),
    ]
    .map(|columns| transpose(columns));
    let [a, b, c, d] = columns;
    [
        _mm256_permute2x128_si256::<0x20>(a, b),
        _mm256_permute2x128_si256::<0x20>(c, d),
        _mm256_permute2x128_si256::<0x31>(a, b),
        _mm256_permute2x128_si256::<0x31>(c, d),
    ]
}

/// The portable 8x8 bit transposition on four 64-bit words.
#[target_feature(enable = "avx2")]
fn transpose(x: __m256i) -> __m256i {
    let swap = |x, t, shifted_back| _mm256_xor_si256(x, _mm256_xor_si256(t, shifted_back));
    let t = _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi64::<7>(x)), _mm256_set1_epi64x(0x00aa_00aa_00aa_00aa));
    let x = swap(x, t, _mm256_slli_epi64::<7>(t));
    let t =
        _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi64::<14>(x)), _mm256_set1_epi64x(0x0000_cccc_0000_cccc));
    let x = swap(x, t, _mm256_slli_epi64::<14>(t));
    let t =
        _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi64::<28>(x)), _mm256_set1_epi64x(0x0000_0000_f0f0_f0f0));
    swap(x, t, _mm256_slli_epi64::<28>(t))
}
