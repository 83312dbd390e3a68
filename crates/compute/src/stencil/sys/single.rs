//! One step of a band, computed from memory to memory in registers of 64 bytes (AVX-512).
//!
//! Memory limits a single step. Copies of rows in buffers would be accesses on their own, between those to memory; here both
//! overlap. Two rows are computed at a time, so that two of the four rows that they need are still in the cache.

use crate::stencil::band::{Band, Work};
use crate::stencil::cells::Cells;
use crate::stencil::real::Real;
use crate::stencil::types::Boundary;
use shotline_memory::Lines;
use std::arch::x86_64::*;

/// Lines that are prefetched before they are loaded.
const AHEAD: usize = 16;

/// Two consecutive rows, or one.
struct Rows<'a, 'b> {
    /// The row above, which is replaced by the last one of these rows, as it was.
    above: &'b mut [__m512i],
    rows: [Lines<'a>; 2],
    below: Below<'a, 'b>,
    results: [Lines<'a>; 2],
}

/// The row below, in memory, or a copy.
enum Below<'a, 'b> {
    Memory(Lines<'a>),
    Saved(&'b [__m512i]),
}

impl Below<'_, '_> {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(&self, index: usize) -> __m512i {
        match self {
            Self::Memory(lines) => lines.load(index),
            Self::Saved(lines) => lines[index],
        }
    }

    fn prefetch(&self, index: usize) {
        if let Self::Memory(lines) = self {
            lines.prefetch(index);
        }
    }
}

/// Computes the rows of a band, if it has one step and its rows are whole cache lines. Otherwise returns `false`, and nothing
/// has changed.
pub(in crate::stencil) fn run<F: Real, S: Cells<F>, R: Cells<F>>(band: &Band<F>, work: &Work<'_, F, S, R>) -> bool {
    let columns = work.tile.columns;
    let is_possible = work.loops.has_registers_of_64_bytes && work.stencil.steps == 1 && !work.stencil.residual;
    let lines = |row: isize| work.source.lines(row as usize, columns);
    let results = |row: isize| work.result.lines(row as usize - work.first, columns);
    let is_below_in_memory = band.below.is_empty() && band.rows.end < work.tile.rows as isize;
    let mut rows = band.rows.start..band.rows.end + isize::from(is_below_in_memory);
    if !is_possible || !rows.all(|row| lines(row).is_some() && (row >= band.rows.end || results(row).is_some())) {
        return false;
    }
    let known = |row| (lines(row).expect("it was checked"), results(row).expect("it was checked"));
    let is_fixed = work.stencil.boundary == Boundary::Fixed;
    let is_top = band.has_border_above && band.rows.start == 0;
    let is_bottom = band.has_border_below && band.rows.end == work.tile.rows as isize;
    let mut row = band.rows.start;
    let end = band.rows.end - isize::from(is_fixed && is_bottom);
    let mut above = saved(band, work, if is_top { row } else { row - 1 });
    if is_fixed && is_top {
        copy(work, row);
        row += 1;
    }
    while row < end {
        let is_pair = row + 1 < end;
        let last = row + isize::from(is_pair);
        let copy;
        let below = if last + 1 < band.rows.end || is_below_in_memory {
            Below::Memory(lines(last + 1).expect("it was checked"))
        } else {
            copy = saved(band, work, if is_bottom { last } else { last + 1 });
            Below::Saved(&copy)
        };
        let (first, second) = (known(row), known(last));
        let mut rows = Rows { above: &mut above, rows: [first.0, second.0], below, results: [first.1, second.1] };
        // SAFETY: the loops are those for processors with these instructions.
        unsafe {
            if is_pair {
                pass::<F, true>(&mut rows, work.weights, work.stencil.boundary);
            } else {
                pass::<F, false>(&mut rows, work.weights, work.stencil.boundary);
            }
        }
        row = last + 1;
    }
    if is_fixed && is_bottom && band.rows.end > row {
        copy(work, row);
    }
    work.result.finish();
    true
}

/// Returns a copy of an input row.
fn saved<F: Real, S: Cells<F>, R>(band: &Band<F>, work: &Work<'_, F, S, R>, row: isize) -> Vec<__m512i> {
    let mut values = vec![F::default(); work.tile.columns];
    band.input(work, row, 0, &mut values);
    // SAFETY: both types are 64 bytes of any value.
    let line = |line: &[u8; 64]| unsafe { std::mem::transmute::<[u8; 64], __m512i>(*line) };
    F::bytes(&values).as_chunks().0.iter().map(line).collect()
}

/// Copies a row of a fixed border.
fn copy<F: Real, S: Cells<F>, R: Cells<F>>(work: &Work<'_, F, S, R>, row: isize) {
    let mut values = vec![F::default(); work.tile.columns];
    work.source.load(row as usize, 0, &mut values);
    work.result.store(row as usize - work.first, 0, &values);
}

/// Computes two rows, or, if `PAIR` is not set, the first one.
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn pass<F: Real, const PAIR: bool>(rows: &mut Rows<'_, '_>, weights: [F; 2], boundary: Boundary) {
    let Rows { above, rows: [upper, lower], below, results } = rows;
    let weights = [splat(weights[0]), splat(weights[1])];
    let last = above.len() - 1;
    let (upper_ends, lower_ends) = (ends::<F>(*upper, boundary), ends::<F>(*lower, boundary));
    let (mut upper_left, mut lower_left) = (upper_ends[0], lower_ends[0]);
    let (mut u, mut l) = (upper.load(0), lower.load(0));
    for index in 0..=last {
        lower.prefetch(index + AHEAD);
        below.prefetch(index + AHEAD);
        // Loaded before the results replace them.
        let (upper_right, lower_right) =
            if index < last { (upper.load(index + 1), lower.load(index + 1)) } else { (upper_ends[1], lower_ends[1]) };
        let b = below.load(index);
        let fixed = if boundary == Boundary::Fixed { fixed::<F>(index == 0, index == last) } else { 0 };
        let under = if PAIR { l } else { b };
        let around = [above[index], left::<F>(upper_left, u), u, right::<F>(u, upper_right), under];
        results[0].stream(index, five::<F>(around, weights, fixed));
        if PAIR {
            let around = [u, left::<F>(lower_left, l), l, right::<F>(l, lower_right), b];
            results[1].stream(index, five::<F>(around, weights, fixed));
        }
        above[index] = if PAIR { l } else { u };
        (upper_left, lower_left) = (u, l);
        (u, l) = (upper_right, lower_right);
    }
}

/// Returns a line whose last value is at the left of a row, and one whose first value is at its right.
#[inline]
#[target_feature(enable = "avx512f")]
fn ends<F: Real>(row: Lines<'_>, boundary: Boundary) -> [__m512i; 2] {
    let (first, last) = (row.load(0), row.load(row.len() - 1));
    match boundary {
        Boundary::Periodic => [last, first],
        // The value at the border itself. With a fixed border it makes no difference.
        Boundary::Fixed | Boundary::Insulated if size_of::<F>() == 4 => [
            _mm512_permutexvar_epi32(_mm512_setzero_si512(), first),
            _mm512_permutexvar_epi32(_mm512_set1_epi32(15), last),
        ],
        Boundary::Fixed | Boundary::Insulated => [
            _mm512_permutexvar_epi64(_mm512_setzero_si512(), first),
            _mm512_permutexvar_epi64(_mm512_set1_epi64(7), last),
        ],
    }
}

/// Returns the mask of the values in a line that are at a border.
fn fixed<F>(is_first: bool, is_last: bool) -> u16 {
    u16::from(is_first) | u16::from(is_last) << (64 / size_of::<F>() - 1)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn splat<F: Real>(value: F) -> __m512i {
    let value: f64 = value.into();
    match size_of::<F>() {
        4 => _mm512_castps_si512(_mm512_set1_ps(value as f32)),
        _ => _mm512_castpd_si512(_mm512_set1_pd(value)),
    }
}

/// Returns new values from those above, at the left, in the middle, at the right and below. Those of the mask do not change.
#[inline]
#[target_feature(enable = "avx512f")]
fn five<F>(
    [above, left, middle, right, below]: [__m512i; 5],
    [center, neighbour]: [__m512i; 2],
    fixed: u16,
) -> __m512i {
    if size_of::<F>() == 4 {
        let vertical = _mm512_add_ps(_mm512_castsi512_ps(above), _mm512_castsi512_ps(below));
        let horizontal = _mm512_add_ps(_mm512_castsi512_ps(left), _mm512_castsi512_ps(right));
        let around = _mm512_mul_ps(_mm512_castsi512_ps(neighbour), _mm512_add_ps(vertical, horizontal));
        let own = _mm512_mul_ps(_mm512_castsi512_ps(center), _mm512_castsi512_ps(middle));
        _mm512_mask_mov_epi32(_mm512_castps_si512(_mm512_add_ps(own, around)), fixed, middle)
    } else {
        let vertical = _mm512_add_pd(_mm512_castsi512_pd(above), _mm512_castsi512_pd(below));
        let horizontal = _mm512_add_pd(_mm512_castsi512_pd(left), _mm512_castsi512_pd(right));
        let around = _mm512_mul_pd(_mm512_castsi512_pd(neighbour), _mm512_add_pd(vertical, horizontal));
        let own = _mm512_mul_pd(_mm512_castsi512_pd(center), _mm512_castsi512_pd(middle));
        _mm512_mask_mov_epi64(_mm512_castpd_si512(_mm512_add_pd(own, around)), fixed as u8, middle)
    }
}

/// Returns the values at the left of those of a line. `before` is the line before it.
#[inline]
#[target_feature(enable = "avx512f")]
fn left<F>(before: __m512i, line: __m512i) -> __m512i {
    match size_of::<F>() {
        4 => _mm512_alignr_epi32::<15>(line, before),
        _ => _mm512_alignr_epi64::<7>(line, before),
    }
}

/// Returns the values at the right of those of a line. `after` is the line after it.
#[inline]
#[target_feature(enable = "avx512f")]
fn right<F>(line: __m512i, after: __m512i) -> __m512i {
    match size_of::<F>() {
        4 => _mm512_alignr_epi32::<1>(after, line),
        _ => _mm512_alignr_epi64::<1>(after, line),
    }
}
