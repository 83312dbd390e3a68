//! AVX-512 VNNI and AVX2 kernels.

use super::filter::{KERNEL_WORDS, TapRows};
use super::kernel::{Kernel, Sums, rotate};
use std::arch::x86_64::*;

/// Windows processed together: they share the loads of taps, and their accumulators are independent.
const TILE: usize = 4;

/// Kernels with their feature tests, fastest first.
static KERNELS: [(fn() -> bool, Kernel); 2] = [
    (
        || {
            is_x86_feature_detected!("avx512vnni")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
        },
        // SAFETY: `available` returns these only if all features were detected.
        |words, step, rows, rotations, out| unsafe { vnni(words, step, rows, rotations, out) },
    ),
    (
        || is_x86_feature_detected!("avx2"),
        // SAFETY: `available` returns these only if AVX2 was detected.
        |words, step, rows, rotations, out| unsafe { avx2(words, step, rows, rotations, out) },
    ),
];

/// Returns the kernels that this processor supports, fastest first.
pub(super) fn available() -> impl Iterator<Item = Kernel> {
    KERNELS.iter().filter(|(needs, _)| needs()).map(|(_, kernel)| *kernel)
}

/// Returns the windows of the tile that starts at `first`. The last window is repeated in place of windows beyond
/// `count`; the sums of the repetitions are not used.
#[inline(always)]
fn tile<'a>(
    words: &'a [i16],
    step: usize,
    rows: &TapRows,
    first: usize,
    count: usize,
) -> [&'a [[i16; KERNEL_WORDS]]; TILE] {
    let window = |n: usize| {
        let begin = (first + n).min(count - 1) * step;
        words[begin..begin + rows.len()].as_chunks().0
    };
    [window(0), window(1), window(2), window(3)] // not `from_fn`, whose closure is compiled without the target features
}

#[target_feature(enable = "avx512vnni,avx512dq,avx512bw,avx512vl")]
fn vnni(words: &[i16], step: usize, rows: &TapRows, rotations: [&[f32]; 2], out: &mut [[i16; 2]]) -> u64 {
    let mut sums = Sums::ZERO;
    let (taps_re, taps_im) = (rows.re.as_chunks::<KERNEL_WORDS>().0, rows.im.as_chunks::<KERNEL_WORDS>().0);
    for first in (0..out.len()).step_by(TILE) {
        let [a, b, c, d] = tile(words, step, rows, first, out.len());
        let (mut re, mut im) = ([_mm512_setzero_si512(); TILE], [_mm512_setzero_si512(); TILE]);
        for (((((tap_re, tap_im), a), b), c), d) in taps_re.iter().zip(taps_im).zip(a).zip(b).zip(c).zip(d) {
            let (tap_re, tap_im) = (load_512(tap_re), load_512(tap_im));
            for (n, window) in [a, b, c, d].into_iter().enumerate() {
                let window = load_512(window);
                re[n] = _mm512_dpwssd_epi32(re[n], window, tap_re);
                im[n] = _mm512_dpwssd_epi32(im[n], window, tap_im);
            }
        }
        let [even, odd] = [totals_512(re[0], re[2], re[1], re[3]), totals_512(im[0], im[2], im[1], im[3])];
        let [low, high] = [_mm512_shuffle_i64x2::<0x88>(even, odd), _mm512_shuffle_i64x2::<0xdd>(even, odd)];
        let totals = _mm512_add_epi64(low, high);
        let (to_re, to_im) = (&mut sums.re.as_chunks_mut::<TILE>().0, &mut sums.im.as_chunks_mut::<TILE>().0);
        store_256(&mut to_re[first / TILE], _mm512_castsi512_si256(totals));
        store_256(&mut to_im[first / TILE], _mm512_extracti64x4_epi64::<1>(totals));
    }
    rotate(&sums, rotations, out)
}

#[target_feature(enable = "avx512f")]
fn load_512(words: &[i16; KERNEL_WORDS]) -> __m512i {
    // SAFETY: an unaligned load of the 64 bytes of 32 words.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

/// Reduces four vectors of sixteen 32-bit sums to 64-bit partial sums: those of `a` and `c` interleaved in the lower
/// half, those of `b` and `d` in the upper half. Two partial sums are left per vector.
#[target_feature(enable = "avx512f,avx512dq")]
fn totals_512(a: __m512i, b: __m512i, c: __m512i, d: __m512i) -> __m512i {
    // The upper halves are added to the lower ones in 32 bits, as wide as the accumulators of the narrower kernel.
    let halves = |a, b| {
        let low = _mm512_inserti64x4::<1>(a, _mm512_castsi512_si256(b));
        let high = _mm512_shuffle_i64x2::<0b11_10_11_10>(a, b);
        _mm512_add_epi32(low, high)
    };
    // Adjacent sums are added in 64 bits.
    let pairs = |sums| {
        let even = _mm512_srai_epi64::<32>(_mm512_slli_epi64::<32>(sums));
        _mm512_add_epi64(even, _mm512_srai_epi64::<32>(sums))
    };
    let (ab, cd) = (pairs(halves(a, b)), pairs(halves(c, d)));
    _mm512_add_epi64(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd))
}

#[target_feature(enable = "avx2")]
fn store_256(to: &mut [i64; TILE], totals: __m256i) {
    // SAFETY: an unaligned store of 32 bytes over four 64-bit sums.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), totals) }
}

#[target_feature(enable = "avx2")]
fn avx2(words: &[i16], step: usize, rows: &TapRows, rotations: [&[f32]; 2], out: &mut [[i16; 2]]) -> u64 {
    let mut sums = Sums::ZERO;
    let (taps_re, taps_im) = (rows.re.as_chunks::<KERNEL_WORDS>().0, rows.im.as_chunks::<KERNEL_WORDS>().0);
    for first in (0..out.len()).step_by(TILE) {
        let [a, b, c, d] = tile(words, step, rows, first, out.len());
        let (mut re, mut im) = ([_mm256_setzero_si256(); TILE], [_mm256_setzero_si256(); TILE]);
        for (((((tap_re, tap_im), a), b), c), d) in taps_re.iter().zip(taps_im).zip(a).zip(b).zip(c).zip(d) {
            for half in 0..2 {
                let (tap_re, tap_im) = (load_256(tap_re, half), load_256(tap_im, half));
                for (n, window) in [a, b, c, d].into_iter().enumerate() {
                    let window = load_256(window, half);
                    re[n] = _mm256_add_epi32(re[n], _mm256_madd_epi16(window, tap_re));
                    im[n] = _mm256_add_epi32(im[n], _mm256_madd_epi16(window, tap_im));
                }
            }
        }
        for n in 0..TILE {
            (sums.re[first + n], sums.im[first + n]) = (total_256(re[n]), total_256(im[n]));
        }
    }
    rotate(&sums, rotations, out)
}

#[target_feature(enable = "avx2")]
fn load_256(words: &[i16; KERNEL_WORDS], half: usize) -> __m256i {
    let half = &words.as_chunks::<{ KERNEL_WORDS / 2 }>().0[half];
    // SAFETY: an unaligned load of the 32 bytes of 16 words.
    unsafe { _mm256_loadu_si256(half.as_ptr().cast()) }
}

/// Adds eight 32-bit sums in 64 bits.
#[target_feature(enable = "avx2")]
fn total_256(sums: __m256i) -> i64 {
    let low = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(sums));
    let high = _mm256_cvtepi32_epi64(_mm256_extracti128_si256::<1>(sums));
    let four = _mm256_add_epi64(low, high);
    let two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256::<1>(four));
    _mm_cvtsi128_si64(two) + _mm_extract_epi64::<1>(two)
}
