//! Loops over one row, compiled for several instruction sets. The results do not depend on the instruction set.

use super::real::Real;

/// Number of columns of which the squares are summed before they are added to the sum of the row.
pub(super) const BLOCK: usize = 256;
/// Number of values that are computed together.
pub(super) const LINE: usize = 16;
/// Number of partial sums of a block.
const LANES: usize = 8;

/// Computes a part of a row: above, middle, below, and the weights.
type Step<F> = fn(&mut [F], &[F], &[F], [F; 2]);
/// Computes parts of two rows: from above to below, the value at the left of the second one, and the weights.
type TwoRows<F> = fn(&mut [F], &mut [F], &[F], &[F], F, [F; 2]);

/// Loops compiled for one instruction set.
#[derive(Clone, Copy)]
pub(super) struct Loops<F> {
    /// Name of the instruction set.
    pub(super) name: &'static str,
    /// It is AVX-512.
    #[cfg_attr(not(all(target_arch = "x86_64", not(miri))), allow(dead_code))]
    pub(super) has_registers_of_64_bytes: bool,
    /// Computes a part of a row from three rows of the step before. The first one, above, is replaced by the result. The
    /// second one, in the middle, has one value more on each side.
    pub(super) step: Step<F>,
    /// Computes parts of two rows from four rows of the step before, of which the first two are replaced by the results.
    /// The second and the third one have one value more on each side, but that at the left of the second one is passed on
    /// its own, because the part at the left has replaced it. The length is a multiple of [`LINE`].
    pub(super) two_rows: TwoRows<F>,
    /// Adds the differences of two parts of rows, which begin at a multiple of [`BLOCK`].
    pub(super) add_difference: fn(&mut Difference, &[F], &[F]),
}

/// Difference of two steps in a part of a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Difference {
    /// Largest magnitude. NaN if any is.
    pub(super) max: f64,
    /// Sum of the squares.
    pub(super) squares: f64,
}

/// Returns the larger value, or NaN if one is NaN, unlike [`f64::max`].
#[inline(always)]
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if b <= a || a.is_nan() { a } else { b }
}

/// Portable loops, inlined into functions compiled for other instruction sets.
pub(super) mod portable {
    use super::{BLOCK, Difference, LANES, Real, larger};

    #[inline(always)]
    pub fn step<F: Real>(above: &mut [F], middle: &[F], below: &[F], [center, neighbour]: [F; 2]) {
        let len = above.len();
        let (left, middle, right) = (&middle[..len], &middle[1..=len], &middle[2..len + 2]);
        let below = &below[..len];
        for i in 0..len {
            above[i] = center * middle[i] + neighbour * ((above[i] + below[i]) + (left[i] + right[i]));
        }
    }

    #[inline(always)]
    fn line<F: Real, const N: usize>(row: &[F], first: usize) -> [F; N] {
        let mut line = [F::default(); N];
        line.copy_from_slice(&row[first..first + N]);
        line
    }

    #[inline(always)]
    pub fn five<F: Real, const N: usize>(
        [above, left, middle, right, below]: [&[F; N]; 5],
        [center, neighbour]: [F; 2],
    ) -> [F; N] {
        let mut out = [F::default(); N];
        for i in 0..N {
            out[i] = center * middle[i] + neighbour * ((above[i] + below[i]) + (left[i] + right[i]));
        }
        out
    }

    #[inline(always)]
    fn two_rows_by<F: Real, const N: usize>(
        above: &mut [F],
        upper: &mut [F],
        lower: &[F],
        below: &[F],
        left: F,
        weights: [F; 2],
    ) {
        let len = above.len();
        assert!(upper.len() == len + 2 && lower.len() == len + 2 && below.len() == len && len.is_multiple_of(N));
        let mut second = [F::default(); N];
        let replaced = std::mem::replace(&mut upper[0], left);
        for i in (0..len).step_by(N) {
            let (a, b) = (line(above, i), line(below, i));
            let (upper_left, upper_middle, upper_right) = (line(upper, i), line(upper, i + 1), line(upper, i + 2));
            let (lower_left, lower_middle, lower_right) = (line(lower, i), line(lower, i + 1), line(lower, i + 2));
            let first = five([&a, &upper_left, &upper_middle, &upper_right, &lower_middle], weights);
            above[i..i + N].copy_from_slice(&first);
            // The values at the left are replaced one line later, because the first row still needs the last of them.
            if i > 0 {
                upper[i + 1 - N..=i].copy_from_slice(&second);
            }
            second = five([&upper_middle, &lower_left, &lower_middle, &lower_right, &b], weights);
        }
        if len > 0 {
            upper[len + 1 - N..=len].copy_from_slice(&second);
        }
        upper[0] = replaced;
    }

    #[inline(always)]
    pub fn two_rows<F: Real>(above: &mut [F], upper: &mut [F], lower: &[F], below: &[F], left: F, weights: [F; 2]) {
        // One register of 64 bytes.
        if size_of::<F>() == 4 {
            two_rows_by::<F, 16>(above, upper, lower, below, left, weights);
        } else {
            two_rows_by::<F, 8>(above, upper, lower, below, left, weights);
        }
    }

    #[inline(always)]
    pub fn add_difference<F: Real>(total: &mut Difference, new: &[F], old: &[F]) {
        for (new, old) in new.chunks(BLOCK).zip(old.chunks(BLOCK)) {
            let (mut max, mut sums) = ([0.0_f64; LANES], [0.0_f64; LANES]);
            let mut add = |new: &[F], old: &[F]| {
                for (lane, (new, old)) in new.iter().zip(old).enumerate() {
                    let difference = Into::<f64>::into(*new) - Into::<f64>::into(*old);
                    let magnitude = difference.abs();
                    max[lane] = larger(max[lane], magnitude);
                    sums[lane] += difference * difference;
                }
            };
            let (new, new_rest) = new.as_chunks::<LANES>();
            let (old, old_rest) = old.as_chunks::<LANES>();
            new.iter().zip(old).for_each(|(new, old)| add(new, old));
            add(new_rest, old_rest);
            let [a, b, c, d, e, f, g, h] = sums;
            total.squares += ((a + e) + (c + g)) + ((b + f) + (d + h));
            total.max = max.into_iter().fold(total.max, larger);
        }
    }
}

/// Returns the portable loops.
pub(super) fn portable_loops<F: Real>() -> Loops<F> {
    Loops {
        name: "portable",
        has_registers_of_64_bytes: false,
        step: |above, middle, below, weights| portable::step(above, middle, below, weights),
        two_rows: |above, upper, lower, below, left, weights| {
            portable::two_rows(above, upper, lower, below, left, weights)
        },
        add_difference: |total, new, old| portable::add_difference(total, new, old),
    }
}
