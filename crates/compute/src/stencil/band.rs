//! Bands: consecutive rows of the result, computed by one thread.

use super::cells::Cells;
use super::panels::PanelSize;
use super::real::Real;
use super::row::Loops;
use super::types::{Boundary, Edge, Stencil, Tile};
use std::ops::Range;

/// What all threads share.
pub(super) struct Work<'a, F, S, R> {
    pub(super) stencil: &'a Stencil,
    pub(super) loops: &'a Loops<F>,
    pub(super) tile: Tile,
    pub(super) source: &'a S,
    pub(super) result: &'a R,
    /// Row of the tile that is row 0 of the result.
    pub(super) first: usize,
    pub(super) weights: [F; 2],
    pub(super) panels: PanelSize,
}

/// Rows of the result that one thread computes. Rows are numbered as in the tile. Numbers below 0 and from the number of
/// rows on are those of a periodic matrix, which continues there.
pub(super) struct Band<F> {
    pub(super) rows: Range<isize>,
    /// Rows of the source from which the result is computed.
    pub(super) inputs: Range<isize>,
    /// Values of inputs above and below the rows, which other threads may overwrite.
    pub(super) above: Vec<F>,
    pub(super) below: Vec<F>,
    pub(super) has_border_above: bool,
    pub(super) has_border_below: bool,
}

impl<F: Real> Band<F> {
    /// Divides the rows of the result among the threads, and saves what they read of one another's rows.
    pub(super) fn split<S: Cells<F>, R>(work: &Work<'_, F, S, R>, rows: Range<usize>) -> Vec<Self> {
        let count = work.stencil.threads.min(rows.len());
        let end = |index: usize| rows.start + rows.len() * index / count;
        (0..count).map(|index| Self::new(work, &rows, end(index)..end(index + 1))).collect()
    }

    fn new<S: Cells<F>, R>(work: &Work<'_, F, S, R>, all: &Range<usize>, rows: Range<usize>) -> Self {
        let (tile, steps) = (&work.tile, work.stencil.steps as isize);
        let wraps = work.stencil.boundary == Boundary::Periodic;
        let count = tile.rows as isize;
        let (is_first, is_last) = (rows.start == all.start, rows.end == all.end);
        let rows = rows.start as isize..rows.end as isize;
        let has_border_above = tile.above == Edge::Border && !wraps && rows.start <= steps;
        let has_border_below = tile.below == Edge::Border && !wraps && rows.end + steps >= count;
        let inputs = Range {
            start: if has_border_above { 0 } else { rows.start - steps },
            end: if has_border_below { count } else { rows.end + steps },
        };
        let save = |rows: Range<isize>, needed: bool| {
            let mut saved = vec![F::default(); if needed { rows.len() * tile.columns } else { 0 }];
            for (row, to) in rows.zip(saved.chunks_exact_mut(tile.columns)) {
                work.source.load(row.rem_euclid(count) as usize, 0, to);
            }
            saved
        };
        let is_torus = wraps && tile.above == Edge::Border;
        let above = save(inputs.start..rows.start, !is_first || is_torus);
        let below = save(rows.end..inputs.end, !is_last || is_torus);
        Self { rows, inputs, above, below, has_border_above, has_border_below }
    }

    /// Copies a part of an input row.
    pub(super) fn input<S: Cells<F>, R>(&self, work: &Work<'_, F, S, R>, row: isize, column: usize, to: &mut [F]) {
        let saved = |saved: &[F], row: isize, to: &mut [F]| {
            to.copy_from_slice(&saved[row as usize * work.tile.columns + column..][..to.len()]);
        };
        if row < self.rows.start && !self.above.is_empty() {
            saved(&self.above, row - self.inputs.start, to);
        } else if row >= self.rows.end && !self.below.is_empty() {
            saved(&self.below, row - self.rows.end, to);
        } else {
            work.source.load(row as usize, column, to);
        }
    }

    /// Returns the number of rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }
}
