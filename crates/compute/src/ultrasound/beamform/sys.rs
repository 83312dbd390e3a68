//! AVX-512 kernels, and the portable ones compiled for AVX2.
//!
//! A gather of 16 samples takes as long as 16 loads. The rows of a column are so close, however, that the samples of 16 of
//! them lie in a window of a few registers, which are loaded as a whole and permuted: both samples of the interpolation
//! from the same registers.

use super::kernel::{COSINE, GROUP, Kernels, MARGIN, Task, Weight, portable};
use std::arch::x86_64::*;

/// Values of a register.
const LANES: usize = 16;
/// Rounding of times to the sample before.
const FLOOR: i32 = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;

/// Returns the kernels that this processor supports for rows at this distance in samples, fastest first.
pub(super) fn available(row_pitch: f64) -> impl Iterator<Item = Kernels> {
    let has_avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq");
    // From a row to the next, the time increases by at most twice the distance. Where it increases by this much more due to
    // rounding, the last sample may be a wrong one, but its weight in the interpolation is not greater than the excess.
    const ROUNDING: f64 = 1e-4;
    let span = (2.0 * row_pitch * (GROUP - 1) as f64 - ROUNDING).ceil();
    let windows = [(2, windowed::<2>()), (4, windowed::<4>()), (8, windowed::<8>())];
    // The window has the span's samples, the first one, and the next one of the last.
    let fits = windows.into_iter().find(|(registers, _)| span + 2.0 <= (registers * LANES) as f64);
    let windowed = fits.filter(|_| has_avx512).map(|(_, kernels)| kernels);
    let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    windowed.into_iter().chain(has_avx2.then_some(AVX2))
}

/// Kernels with a window of this many registers. They may be called only if the processor has AVX-512F and DQ.
fn windowed<const REGISTERS: usize>() -> Kernels {
    Kernels {
        name: "AVX-512",
        // SAFETY: `available` returns these only if both features were detected.
        real: |task, sums| unsafe { add::<1, REGISTERS>(task, sums) },
        // SAFETY: as above.
        complex: |task, sums| unsafe { add::<2, REGISTERS>(task, sums) },
    }
}

const AVX2: Kernels = Kernels {
    name: "AVX2",
    // SAFETY: `available` returns these only if both features were detected.
    real: |task, sums| unsafe { add_avx2::<1>(task, sums) },
    // SAFETY: as above.
    complex: |task, sums| unsafe { add_avx2::<2>(task, sums) },
};

#[target_feature(enable = "avx2,fma")]
fn add_avx2<const PARTS: usize>(task: &Task<'_>, sums: [&mut [f32]; 2]) {
    portable::add::<PARTS>(task, sums);
}

#[target_feature(enable = "avx512f,avx512dq")]
fn add<const PARTS: usize, const REGISTERS: usize>(task: &Task<'_>, sums: [&mut [f32]; 2]) {
    if task.delays.is_empty() {
        add_waves::<PARTS, REGISTERS, true>(task, sums);
    } else {
        add_waves::<PARTS, REGISTERS, false>(task, sums);
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn add_waves<const PARTS: usize, const REGISTERS: usize, const PLANE: bool>(
    task: &Task<'_>,
    [real, imaginary]: [&mut [f32]; 2],
) {
    let first = task.first / GROUP;
    let z = task.z.as_chunks::<GROUP>().0;
    let real = real.as_chunks_mut::<GROUP>().0;
    let imaginary = imaginary.as_chunks_mut::<GROUP>().0;
    let offset2 = _mm512_set1_ps(task.offset2);
    let mut counts: __mmask16 = 0xffff << (task.first % GROUP);
    for group in first..z.len().min(real.len()) {
        let z = load(&z[group]);
        let z2 = _mm512_mul_ps(z, z);
        let receive = _mm512_sqrt_ps(_mm512_add_ps(offset2, z2));
        let totals = sum::<PARTS, REGISTERS, PLANE>(task, group, z, receive);
        let weight = _mm512_maskz_mov_ps(counts, weight(task.weight, z2));
        counts = 0xffff;
        add_to(&mut real[group], weight, totals[0]);
        if PARTS == 2 {
            add_to(&mut imaginary[group], weight, totals[1]);
        }
    }
}

/// Sums the interpolated samples of all traces for a group of rows.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn sum<const PARTS: usize, const REGISTERS: usize, const PLANE: bool>(
    task: &Task<'_>,
    group: usize,
    z: __m512,
    receive: __m512,
) -> [__m512; 2] {
    let mut totals = [_mm512_setzero_ps(); 2];
    let last = (task.stride - REGISTERS * LANES) as i64;
    for trace in task.traces {
        let transmit = if PLANE {
            _mm512_fmadd_ps(_mm512_set1_ps(trace.slope), z, _mm512_set1_ps(trace.offset))
        } else {
            load(task.delays[trace.table + group * GROUP..].first_chunk().expect("columns are padded to groups"))
        };
        let time = _mm512_add_ps(receive, transmit);
        let whole = _mm512_cvt_roundps_epi32::<FLOOR>(time);
        let fraction = _mm512_reduce_ps::<{ _MM_FROUND_TO_NEG_INF }>(time);
        // The times increase, so the first row's is the first of the window. A window that would exceed the trace is
        // replaced by one in the zeros at its end.
        let earliest = _mm512_castsi512_si128(whole);
        let start = (i64::from(_mm_cvtsi128_si32(earliest)) + MARGIN as i64).clamp(0, last) as usize;
        let here = _mm512_sub_epi32(whole, _mm512_broadcastd_epi32(earliest));
        let next = _mm512_add_epi32(here, _mm512_set1_epi32(1));
        for (total, part) in totals.iter_mut().zip(task.parts).take(PARTS) {
            let window = &part[trace.start + start..][..REGISTERS * LANES];
            let window = window.as_chunks::<LANES>().0;
            let (before, after) = (pick::<REGISTERS>(window, here), pick::<REGISTERS>(window, next));
            // One addition to the total, so that the next wave's does not wait for the interpolation.
            *total = _mm512_add_ps(*total, _mm512_fmadd_ps(fraction, _mm512_sub_ps(after, before), before));
        }
    }
    totals
}

/// Returns the values of a window at these places.
#[inline]
#[target_feature(enable = "avx512f")]
fn pick<const REGISTERS: usize>(window: &[[f32; LANES]], places: __m512i) -> __m512 {
    let pair = |n: usize| _mm512_permutex2var_ps(load(&window[2 * n]), places, load(&window[2 * n + 1]));
    let four = |n: usize| {
        let is_upper = _mm512_test_epi32_mask(places, _mm512_set1_epi32(32));
        _mm512_mask_blend_ps(is_upper, pair(n), pair(n + 1))
    };
    match REGISTERS {
        2 => pair(0),
        4 => four(0),
        _ => _mm512_mask_blend_ps(_mm512_test_epi32_mask(places, _mm512_set1_epi32(64)), four(0), four(2)),
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn weight(weight: Weight, z2: __m512) -> __m512 {
    match weight {
        Weight::One => _mm512_set1_ps(1.0),
        Weight::Hann(edge2) => {
            let one = _mm512_set1_ps(1.0);
            // With an operand that is not a number, the minimum is the second one.
            let v = _mm512_min_ps(_mm512_div_ps(_mm512_set1_ps(edge2), z2), one);
            let [a, b, c, d, e] = COSINE.map(|factor| _mm512_set1_ps(factor));
            let series = _mm512_fmadd_ps(v, _mm512_fmadd_ps(v, e, d), c);
            let cosine = _mm512_fmadd_ps(v, _mm512_fmadd_ps(v, series, b), a);
            _mm512_mul_ps(cosine, cosine)
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(values: &[f32; LANES]) -> __m512 {
    // SAFETY: an unaligned load of the 64 bytes of 16 values.
    unsafe { _mm512_loadu_ps(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn add_to(sums: &mut [f32; LANES], weight: __m512, total: __m512) {
    let sum = _mm512_fmadd_ps(weight, total, load(sums));
    // SAFETY: an unaligned store of 64 bytes over 16 values.
    unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), sum) };
}
