//! All steps of some columns of a band.

use super::band::{Band, Work};
use super::buffers::{Buffers, Layout};
use super::cells::Cells;
use super::panels;
use super::real::Real;
use super::row::{Difference, LINE, larger};
use super::types::Boundary;
use std::ops::Range;

/// Computes the rows of a band. `squares` has one value for each, or is empty if they are not needed. Returns the largest
/// change.
pub(super) fn run<F: Real, S: Cells<F>, R: Cells<F>>(
    band: &Band<F>,
    work: &Work<'_, F, S, R>,
    squares: &mut [f64],
) -> f64 {
    let steps = work.stencil.steps;
    let panels = panels::split(work.tile.columns, work.panels.columns, steps);
    let widest = panels.iter().map(Range::len).max().unwrap_or(0);
    let mut buffers = Buffers::new(Layout::new(widest, steps), steps);
    // Columns at the left of the panel, and the first ones of a periodic matrix, as they were before any result was stored.
    let mut left = vec![F::default(); band.inputs.len() * steps];
    let is_periodic = work.stencil.boundary == Boundary::Periodic;
    let mut first = vec![F::default(); if is_periodic { left.len() } else { 0 }];
    let mut max = 0.0;
    for columns in panels {
        let layout = Layout::new(columns.len(), steps);
        buffers.clear();
        let mut panel = Panel { band, work, columns, layout, left: &mut left, first: &mut first };
        max = larger(max, panel.run(&mut buffers, squares));
    }
    work.result.finish();
    max
}

/// Some columns of a band.
struct Panel<'a, F, S, R> {
    band: &'a Band<F>,
    work: &'a Work<'a, F, S, R>,
    columns: Range<usize>,
    layout: Layout,
    /// Columns at the left of the panel, and first columns of a periodic matrix, of all inputs.
    left: &'a mut [F],
    first: &'a mut [F],
}

/// Rows of the result that are computed and not stored yet.
struct Results {
    /// The newest row of the last step.
    newest: isize,
    /// Those that are results.
    rows: Range<isize>,
}

impl<F: Real, S: Cells<F>, R: Cells<F>> Panel<'_, F, S, R> {
    /// Computes all rows. Two input rows make two rows of each step computable.
    fn run(&mut self, buffers: &mut Buffers<F>, squares: &mut [f64]) -> f64 {
        let (band, steps) = (self.band, self.work.stencil.steps);
        let end = band.inputs.end + if band.has_border_below { steps as isize } else { 0 };
        let computed = self.layout.computed();
        let mut max = 0.0;
        let mut input = band.inputs.start;
        let mut results = Results { newest: 0, rows: 0..0 };
        while input < end {
            let count = 2.min(end - input);
            for row in input..input + count {
                buffers.next_input();
                if row < band.inputs.end {
                    self.load(buffers, row);
                }
            }
            input += count;
            let newest = |step: usize| input - 1 - step as isize;
            for step in 1..=steps {
                let mut left = None;
                for chunk in self.chunks() {
                    // Memory is accessed in parts in between, because only so many accesses can be outstanding.
                    let part = self.part(step, &chunk);
                    self.prefetch(input, &part);
                    self.store(buffers, &results, count as usize, &part);
                    if step == steps && self.work.stencil.residual {
                        if chunk.start == computed.start {
                            max = larger(max, self.last_step(buffers, newest(step), count, squares));
                        }
                    } else {
                        self.advance(buffers, step, newest(step), count, chunk, &mut left);
                    }
                }
            }
            let (first, last) = (newest(steps) + 1 - count, newest(steps));
            let rows = first.max(band.rows.start)..(last + 1).min(band.rows.end);
            results = Results { newest: last, rows };
        }
        self.store(buffers, &results, 0, &(0..self.columns.len()));
        max
    }

    /// Returns the places of the panel in chunks: several if there are few steps between which memory can be accessed.
    fn chunks(&self) -> impl Iterator<Item = Range<usize>> {
        let computed = self.layout.computed();
        let size = self.work.panels.chunk.min(computed.len());
        computed.clone().step_by(size).map(move |start| start..computed.end.min(start + size))
    }

    /// Computes places of the newest one or two rows of a step. Chunks are computed from left to right; `left` is passed
    /// from one to the next.
    fn advance(
        &self,
        buffers: &mut Buffers<F>,
        step: usize,
        row: isize,
        count: isize,
        chunk: Range<usize>,
        left: &mut Option<F>,
    ) {
        let is_ordinary = |row| self.is_computable(step, row) && !self.is_top(row) && !self.is_bottom(row);
        if count == 2 && is_ordinary(row - 1) && is_ordinary(row) {
            self.two_rows(buffers, step, chunk, left);
        } else if chunk.start == self.layout.computed().start {
            // Whole rows, because the second one replaces the first one's inputs.
            (0..count as usize).rev().for_each(|age| self.step(buffers, step, age, row - age as isize));
        }
    }

    /// Computes the newest one or two rows of the last step, and their changes. Returns the largest.
    fn last_step(&self, buffers: &mut Buffers<F>, row: isize, count: isize, squares: &mut [f64]) -> f64 {
        let mut max = 0.0;
        for age in (0..count as usize).rev() {
            let row = row - age as isize;
            self.step(buffers, self.work.stencil.steps, age, row);
            if self.band.rows.contains(&row) {
                let squares = &mut squares[(row - self.band.rows.start) as usize];
                max = larger(max, self.change(buffers, age, squares));
            }
        }
        max
    }

    fn is_top(&self, row: isize) -> bool {
        self.band.has_border_above && row == 0
    }

    fn is_bottom(&self, row: isize) -> bool {
        self.band.has_border_below && row + 1 == self.work.tile.rows as isize
    }

    /// Returns `true` if a row of a step can be computed from the inputs.
    fn is_computable(&self, step: usize, row: isize) -> bool {
        let (band, step) = (self.band, step as isize);
        let start = if band.has_border_above { 0 } else { band.inputs.start + step };
        let end = if band.has_border_below { band.inputs.end } else { band.inputs.end - step };
        (start..end).contains(&row)
    }

    /// Loads an input row with its halos.
    fn load(&mut self, buffers: &mut Buffers<F>, row: isize) {
        let (steps, Layout { first, columns, .. }) = (self.work.stencil.steps, self.layout);
        let total = self.work.tile.columns;
        let (from, end) = (self.columns.start, self.columns.end);
        let is_periodic = self.work.stencil.boundary == Boundary::Periodic;
        let to = buffers.row_mut(0, 0, 0..self.layout.computed().end + 1);
        // The columns at the right are not overwritten yet.
        let right = steps.min(total - end);
        self.band.input(self.work, row, from, &mut to[first..first + columns + right]);
        let saved = (row - self.band.inputs.start) as usize * steps;
        let saved = saved..saved + steps;
        let (left_halo, right_halo) = (first - steps..first, first + columns..first + columns + steps);
        if from > 0 {
            to[left_halo].copy_from_slice(&self.left[saved.clone()]);
        } else if is_periodic && end < total {
            self.band.input(self.work, row, total - steps, &mut to[left_halo]);
            self.first[saved.clone()].copy_from_slice(&to[first..first + steps]);
        }
        if end < total {
            self.left[saved].copy_from_slice(&to[first + columns - steps..first + columns]);
        } else if is_periodic && from > 0 {
            to[right_halo].copy_from_slice(&self.first[saved]);
        } else if is_periodic {
            for column in 0..steps {
                to[first + columns + column] = to[first + column % columns];
                to[first - 1 - column] = to[first + columns - 1 - column % columns];
            }
        }
        self.insulate(to);
    }

    /// Returns the columns of the panel whose memory is accessed before a chunk of a step, in whole cache lines. Each step
    /// accesses its share.
    fn part(&self, step: usize, chunk: &Range<usize>) -> Range<usize> {
        let (steps, columns) = (self.work.stencil.steps, self.columns.len());
        let computed = self.layout.computed();
        let at = |place: usize| {
            let share = columns * (step - 1) + columns * (place - computed.start) / computed.len();
            let column = share / steps;
            if column == columns { columns } else { column / LINE * LINE }
        };
        at(chunk.start)..at(chunk.end)
    }

    /// Prefetches a part of two input rows.
    fn prefetch(&self, input: isize, part: &Range<usize>) {
        for row in [input, input + 1] {
            if (0..self.work.tile.rows as isize).contains(&row) {
                self.work.source.prefetch(row as usize, self.columns.start + part.start, part.len());
            }
        }
    }

    /// Stores a part of results, which were computed `inputs` inputs ago.
    fn store(&self, buffers: &Buffers<F>, results: &Results, inputs: usize, part: &Range<usize>) {
        let places = self.layout.first + part.start..self.layout.first + part.end;
        for row in results.rows.clone().filter(|_| !part.is_empty()) {
            let age = inputs + (results.newest - row) as usize;
            let values = buffers.row(self.work.stencil.steps, age, places.clone());
            self.work.result.store(row as usize - self.work.first, self.columns.start + part.start, values);
        }
    }

    /// Repeats the values at the border of an insulated matrix.
    fn insulate(&self, row: &mut [F]) {
        if self.work.stencil.boundary == Boundary::Insulated {
            let Layout { first, columns, .. } = self.layout;
            if self.columns.start == 0 {
                row[first - 1] = row[first];
            }
            if self.columns.end == self.work.tile.columns {
                row[first + columns] = row[first + columns - 1];
            }
        }
    }

    /// Computes a row of a step, if its inputs are known.
    fn step(&self, buffers: &mut Buffers<F>, step: usize, age: usize, row: isize) {
        if !self.is_computable(step, row) {
            return;
        }
        let (is_top, is_bottom) = (self.is_top(row), self.is_bottom(row));
        let places = self.layout.computed();
        let is_fixed = self.work.stencil.boundary == Boundary::Fixed;
        if is_top || is_fixed && is_bottom {
            buffers.repeat_middle(step, age, places.clone());
        }
        if is_fixed && (is_top || is_bottom) {
            return;
        }
        let (above, middle, below) = buffers.three(step, age, is_bottom, places.clone());
        (self.work.loops.step)(above, middle, below, self.work.weights);
        if is_fixed {
            for border in self.borders().into_iter().flatten() {
                above[border - places.start] = middle[border - places.start + 1];
            }
        }
        self.insulate(buffers.row_mut(step, age, 0..places.end + 1));
    }

    /// Computes places of two rows of a step, neither of which is a border of the matrix.
    fn two_rows(&self, buffers: &mut Buffers<F>, step: usize, places: Range<usize>, left: &mut Option<F>) {
        let [above, upper, lower, below] = buffers.four(step, places.clone());
        let is_kept = |place: &usize| self.work.stencil.boundary == Boundary::Fixed && places.contains(place);
        let borders = self.borders().map(|border| border.filter(is_kept).map(|place| place - places.start));
        let kept = borders.map(|place| place.map(|place| (upper[place + 1], lower[place + 1])));
        let before = left.replace(upper[places.len()]).unwrap_or(upper[0]);
        (self.work.loops.two_rows)(above, upper, lower, below, before, self.work.weights);
        for (place, kept) in borders.into_iter().zip(kept) {
            if let (Some(place), Some(kept)) = (place, kept) {
                (above[place], upper[place + 1]) = kept;
            }
        }
        let end = self.layout.computed().end;
        if places.end == end {
            for age in [0, 1] {
                self.insulate(buffers.row_mut(step, age, 0..end + 1));
            }
        }
    }

    /// Returns the places of the first and last column of the matrix, if they are in the panel.
    fn borders(&self) -> [Option<usize>; 2] {
        let Layout { first, columns, .. } = self.layout;
        let is_last = self.columns.end == self.work.tile.columns;
        [(self.columns.start == 0).then_some(first), is_last.then_some(first + columns - 1)]
    }

    /// Adds the changes of a row of the last step. Returns the largest.
    fn change(&self, buffers: &Buffers<F>, age: usize, squares: &mut f64) -> f64 {
        let steps = self.work.stencil.steps;
        let places = self.layout.first..self.layout.first + self.layout.columns;
        let mut change = Difference { max: 0.0, squares: *squares };
        let (new, old) = (buffers.row(steps, age, places.clone()), buffers.middle(steps, age, places));
        (self.work.loops.add_difference)(&mut change, new, old);
        *squares = change.squares;
        change.max
    }
}
