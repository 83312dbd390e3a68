//! AVX-512 VBMI and AVX2 kernels. The portable kernel processes the samples after their last whole block.

use std::arch::x86_64::*;

/// Mask of the 48 bytes of 32 packed samples in a 64-byte register.
const BYTES_48: u64 = (1 << 48) - 1;

/// Byte permutation that unpacks 48 packed bytes: of `a[11:4]`, `a[3:0] b[11:8]`, `b[7:0]` the first two bytes,
/// swapped, are `a` followed by four more bits; the last two, swapped, are `b` preceded by four bits.
static SPREAD: [u8; 64] = {
    let mut order = [0; 64];
    let mut pair = 0;
    while pair < 16 {
        let (to, from) = (4 * pair, 3 * pair as u8);
        (order[to], order[to + 1], order[to + 2], order[to + 3]) = (from + 1, from, from + 2, from + 1);
        pair += 1;
    }
    order
};

/// Byte permutation that packs: the lower three bytes of each 32-bit number, most significant first. The last 16 bytes
/// are not stored.
static GATHER: [u8; 64] = {
    let mut order = [0; 64];
    let mut pair = 0;
    while pair < 16 {
        let (to, from) = (3 * pair, 4 * pair as u8);
        (order[to], order[to + 1], order[to + 2]) = (from + 2, from + 1, from);
        pair += 1;
    }
    order
};

/// Kernels of one instruction set.
///
/// Both process whole blocks and return the number of samples processed. The caller has checked that there are three
/// bytes for every two samples.
pub(super) struct Kernels {
    /// Returns `true` if the processor has the required features.
    needs: fn() -> bool,
    pub pack: fn(&[i16], &mut [u8]) -> usize,
    pub unpack: fn(&[u8], &mut [i16]) -> usize,
}

/// Kernels, fastest first.
static KERNELS: [Kernels; 2] = [
    Kernels {
        needs: || is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("avx512bw"),
        // SAFETY: `available` returns these only if both features were detected.
        pack: |samples, out| unsafe { pack_vbmi(samples, out) },
        // SAFETY: as above.
        unpack: |bytes, out| unsafe { unpack_vbmi(bytes, out) },
    },
    Kernels {
        needs: || is_x86_feature_detected!("avx2"),
        // SAFETY: `available` returns these only if AVX2 was detected.
        pack: |samples, out| unsafe { pack_avx2(samples, out) },
        // SAFETY: as above.
        unpack: |bytes, out| unsafe { unpack_avx2(bytes, out) },
    },
];

/// Returns the kernels that this processor supports, fastest first.
pub(super) fn available() -> impl Iterator<Item = &'static Kernels> {
    KERNELS.iter().filter(|kernels| (kernels.needs)())
}

#[target_feature(enable = "avx512bw,avx512vbmi")]
fn pack_vbmi(samples: &[i16], out: &mut [u8]) -> usize {
    let low_12 = _mm512_set1_epi16(0xfff);
    // Each pair becomes one 32-bit number a * 4096 + b.
    let weights = _mm512_set1_epi32(1 << 16 | 4096);
    // SAFETY: an unaligned load of the table's 64 bytes.
    let order = unsafe { _mm512_loadu_si512(GATHER.as_ptr().cast()) };
    let (blocks, _) = samples.as_chunks::<32>();
    let (outs, _) = out.as_chunks_mut::<48>();
    for (block, out) in blocks.iter().zip(outs) {
        // SAFETY: an unaligned load of the 64 bytes of 32 samples.
        let block = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
        let pairs = _mm512_madd_epi16(_mm512_and_si512(block, low_12), weights);
        let packed = _mm512_permutexvar_epi8(order, pairs);
        // SAFETY: the mask limits the store to the 48 bytes of `out`.
        unsafe { _mm512_mask_storeu_epi8(out.as_mut_ptr().cast(), BYTES_48, packed) };
    }
    blocks.len() * 32
}

#[target_feature(enable = "avx512bw,avx512vbmi")]
fn unpack_vbmi(bytes: &[u8], out: &mut [i16]) -> usize {
    // SAFETY: an unaligned load of the table's 64 bytes.
    let order = unsafe { _mm512_loadu_si512(SPREAD.as_ptr().cast()) };
    // First samples are already in the upper 12 bits; second samples are moved there by a shift of 4.
    let shift = _mm512_set1_epi32(4 << 16);
    let (blocks, _) = bytes.as_chunks::<48>();
    let (outs, _) = out.as_chunks_mut::<32>();
    for (block, out) in blocks.iter().zip(&mut *outs) {
        // SAFETY: the mask limits the load to the 48 bytes of `block`.
        let block = unsafe { _mm512_maskz_loadu_epi8(BYTES_48, block.as_ptr().cast()) };
        let lanes = _mm512_sllv_epi16(_mm512_permutexvar_epi8(order, block), shift);
        // SAFETY: an unaligned store of 64 bytes over 32 samples.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), _mm512_srai_epi16::<4>(lanes)) };
    }
    outs.len() * 32
}

#[target_feature(enable = "avx2")]
fn pack_avx2(samples: &[i16], out: &mut [u8]) -> usize {
    let low_12 = _mm256_set1_epi16(0xfff);
    // Each pair becomes one 32-bit number a * 4096 + b.
    let weights = _mm256_set1_epi32(1 << 16 | 4096);
    // Its lower three bytes, most significant first, are moved to the start of each 128-bit lane.
    let order = _mm256_broadcastsi128_si256(_mm_setr_epi8(2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1));
    // The twelve bytes of the upper lane are moved next to those of the lower lane.
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
    // The two bytes of each sample become one 16-bit number. Second samples need a shift left by 4, done by a
    // multiplication because AVX2 has no variable 16-bit shift.
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
