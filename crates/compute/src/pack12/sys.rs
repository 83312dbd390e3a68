//! The same kernels in AVX2. Both return how many samples they did; the portable body does the rest.

use std::arch::x86_64::*;

/// Packs whole blocks of 16 samples, none without AVX2. `out` holds three bytes for every two samples.
pub(super) fn pack(samples: &[i16], out: &mut [u8]) -> usize {
    assert!(out.len() >= samples.len() / 2 * 3);
    if !is_x86_feature_detected!("avx2") {
        return 0;
    }
    // SAFETY: AVX2 was just detected.
    unsafe { pack_avx2(samples, out) }
}

/// Unpacks whole blocks of 16 samples, none without AVX2. `bytes` holds three bytes for every two samples.
pub(super) fn unpack(bytes: &[u8], out: &mut [i16]) -> usize {
    assert!(bytes.len() >= out.len() / 2 * 3);
    if !is_x86_feature_detected!("avx2") {
        return 0;
    }
    // SAFETY: AVX2 was just detected.
    unsafe { unpack_avx2(bytes, out) }
}

#[target_feature(enable = "avx2")]
fn pack_avx2(samples: &[i16], out: &mut [u8]) -> usize {
    let low_12 = _mm256_set1_epi16(0xfff);
    // Each pair becomes one 32-bit number a * 4096 + b ...
    let weights = _mm256_set1_epi32(1 << 16 | 4096);
    // ... whose lower three bytes, most significant first, move to the front of each 128-bit half ...
    let order = _mm256_broadcastsi128_si256(_mm_setr_epi8(2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1));
    // ... and then the halves' twelve bytes to each other.
    let close = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7);
    let (blocks, _) = samples.as_chunks::<16>();
    let (outs, _) = out.as_chunks_mut::<24>();
    for (block, out) in blocks.iter().zip(outs) {
        // SAFETY: an unaligned load of the 32 bytes of 16 samples.
        let block = unsafe { _mm256_loadu_si256(block.as_ptr().cast()) };
        let pairs = _mm256_madd_epi16(_mm256_and_si256(block, low_12), weights);
        let packed = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(pairs, order), close);
        // SAFETY: unaligned stores of the first 16 and the last 8 of `out`'s 24 bytes.
        unsafe {
            _mm_storeu_si128(out.as_mut_ptr().cast(), _mm256_castsi256_si128(packed));
            _mm_storel_epi64(out.as_mut_ptr().add(16).cast(), _mm256_extracti128_si256::<1>(packed));
        }
    }
    blocks.len() * 16
}

#[target_feature(enable = "avx2")]
fn unpack_avx2(bytes: &[u8], out: &mut [i16]) -> usize {
    // Every sample's two bytes become one 16-bit number; those of second samples need a further shift left
    // by 4, which a multiplication does for every other lane.
    let order = _mm256_broadcastsi128_si256(_mm_setr_epi8(1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10));
    let shift = _mm256_set1_epi32(16 << 16 | 1);
    let (blocks, _) = bytes.as_chunks::<24>();
    let (outs, _) = out.as_chunks_mut::<16>();
    for (block, out) in blocks.iter().zip(&mut *outs) {
        // SAFETY: unaligned loads of the first 16 and the last 16 of `block`'s 24 bytes.
        let (low, high) =
            unsafe { (_mm_loadu_si128(block.as_ptr().cast()), _mm_loadu_si128(block.as_ptr().add(8).cast())) };
        // The second half's twelve bytes begin four bytes into its load.
        let block = _mm256_set_m128i(_mm_srli_si128::<4>(high), low);
        let lanes = _mm256_mullo_epi16(_mm256_shuffle_epi8(block, order), shift);
        // SAFETY: an unaligned store of 32 bytes over 16 samples.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_srai_epi16::<4>(lanes)) };
    }
    outs.len() * 16
}
