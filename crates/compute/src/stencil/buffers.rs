//! Rows of all steps in the cache.

use super::panels::slots;
use super::real::Real;
use super::row::LINE;
use std::ops::Range;

/// Places of the columns of a panel in a row of the buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Place of the first column of the panel.
    pub(super) first: usize,
    /// Number of columns.
    pub(super) columns: usize,
    /// Number of values of a row. Before and after the columns are halos of as many values as steps, or more, and beyond
    /// them a cache line of which only one value is read.
    len: usize,
}

impl Layout {
    /// Returns the places of a number of columns.
    pub(super) fn new(columns: usize, steps: usize) -> Self {
        let first = LINE + steps.next_multiple_of(LINE);
        Self { first, columns, len: (first + columns + steps).next_multiple_of(LINE) + LINE }
    }

    /// Returns the places at which a step is computed: whole cache lines. Values in the halos become wrong one by one from
    /// the outside.
    pub(super) fn computed(&self) -> Range<usize> {
        LINE..self.len - LINE
    }
}

/// Rows of all steps that are still needed.
///
/// A row replaces the row above it of the step before, which no other row needs any more. So there are two rows for each
/// step, those of two inputs, and two results that are being stored. They are in a ring: the newest row of step `s` is
/// `2 * s` slots behind that of step 0, which is the input, and the rows above it follow.
pub(super) struct Buffers<F> {
    values: Vec<F>,
    /// Index of the first value at the beginning of a cache line.
    base: usize,
    /// Distance of two slots.
    stride: usize,
    slots: usize,
    /// Slot of the newest input.
    input: usize,
}

impl<F: Real> Buffers<F> {
    /// Allocates rows for panels of up to this size.
    pub(super) fn new(widest: Layout, steps: usize) -> Self {
        let line = 64 / size_of::<F>();
        // An odd number of lines: rows do not compete for the same sets of the cache.
        let stride = (widest.len.div_ceil(line) | 1) * line;
        let slots = slots(steps);
        let values = vec![F::default(); stride * slots + line];
        let base = values.as_ptr().align_offset(64);
        Self { values, base, stride, slots, input: 0 }
    }

    /// Zeroes all rows.
    pub(super) fn clear(&mut self) {
        self.values.fill(F::default());
    }

    /// Begins a new input, in the slot of the oldest row.
    pub(super) fn next_input(&mut self) {
        self.input = if self.input + 1 == self.slots { 0 } else { self.input + 1 };
    }

    /// Returns the indices of a part of the row that is this number of slots behind the input.
    #[inline]
    fn range(&self, behind: usize, places: Range<usize>) -> Range<usize> {
        let slot = if behind <= self.input { self.input - behind } else { self.input + self.slots - behind };
        let start = self.base + slot * self.stride;
        start + places.start..start + places.end
    }

    /// Returns a part of a row of a step: with `age` 0 the newest, with 1 the one above it.
    pub(super) fn row(&self, step: usize, age: usize, places: Range<usize>) -> &[F] {
        &self.values[self.range(2 * step + age, places)]
    }

    /// Returns a part of a row of a step, to be changed.
    pub(super) fn row_mut(&mut self, step: usize, age: usize, places: Range<usize>) -> &mut [F] {
        let range = self.range(2 * step + age, places);
        &mut self.values[range]
    }

    /// Returns a part of the row of the step before that is in the middle of a row of this step.
    pub(super) fn middle(&self, step: usize, age: usize, places: Range<usize>) -> &[F] {
        &self.values[self.range(2 * step - 1 + age, places)]
    }

    /// Copies the row in the middle to a row of a step.
    pub(super) fn repeat_middle(&mut self, step: usize, age: usize, places: Range<usize>) {
        let (from, to) = (self.range(2 * step - 1 + age, places.clone()), self.range(2 * step + age, places).start);
        self.values.copy_within(from, to);
    }

    /// Returns the parts of rows from which a row of a step is computed: above, which it replaces; in the middle, with one
    /// value more on each side; and below, which is the middle at the lower border of the matrix.
    pub(super) fn three(
        &mut self,
        step: usize,
        age: usize,
        is_bottom: bool,
        places: Range<usize>,
    ) -> (&mut [F], &[F], &[F]) {
        let above = self.range(2 * step + age, places.clone());
        let middle = self.range(2 * step - 1 + age, places.start - 1..places.end + 1);
        if is_bottom {
            let [above, middle] = self.values.get_disjoint_mut([above, middle]).expect("the slots differ");
            return (above, middle, &middle[1..]);
        }
        let below = self.range(2 * step - 2 + age, places);
        let [above, middle, below] = self.values.get_disjoint_mut([above, middle, below]).expect("the slots differ");
        (above, middle, below)
    }

    /// Returns the parts of rows from which the two newest rows of a step are computed, from above to below. The results
    /// replace the first two.
    pub(super) fn four(&mut self, step: usize, places: Range<usize>) -> [&mut [F]; 4] {
        let wide = places.start - 1..places.end + 1;
        let ranges = [
            self.range(2 * step + 1, places.clone()),
            self.range(2 * step, wide.clone()),
            self.range(2 * step - 1, wide),
            self.range(2 * step - 2, places),
        ];
        self.values.get_disjoint_mut(ranges).expect("the slots differ")
    }
}
