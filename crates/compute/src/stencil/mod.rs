//! Five-point stencil on a matrix of `f32` or `f64`: Jacobi iterations, or explicit steps of the heat equation.
//!
//! A step computes every value from the step before:
//!
//! ```text
//! new[r][c] = center * old[r][c] + neighbour * ((old[r-1][c] + old[r+1][c]) + (old[r][c-1] + old[r][c+1]))
//! ```
//!
//! Each operation is rounded on its own, in this order: there is no fused multiplication and addition, and no other order
//! of the additions. So a result has the same bits for every tiling, number of threads, instruction set and device, except
//! for the payload of NaNs.
//!
//! A matrix can be larger than the memory of one node. A [`Tile`] is a part of its rows. Beyond its first and last row is
//! either a border of the matrix or a halo: as many further rows as steps, which become wrong one by one from the outside
//! and are not part of the result. [`Stencil::advance`] computes all steps in one pass over memory: rows are loaded once
//! into buffers of the processor's cache, in which each step follows the step before by one row, and results are stored
//! once. So the result can replace its source, and memory is read and written once for all steps.
//!
//! ```
//! use shotline_compute::stencil::{Boundary, Edge, RegionCells, Stencil, Tile, Weights};
//! use shotline_memory::Region;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let region = Region::heap(100 * 100 * 4)?;
//! region.write(4 * (50 * 100 + 50), &1.0_f32.to_ne_bytes()); // a hot point
//! let matrix = RegionCells { region: &region, offset: 0, stride: 400 };
//! let tile = Tile { rows: 100, columns: 100, above: Edge::Border, below: Edge::Border };
//! let stencil = Stencil { weights: Weights::heat(0.2), boundary: Boundary::Fixed, steps: 8, threads: 1, residual: true };
//! let residual = stencil.advance::<f32>(tile, &matrix, &matrix)?; // in place
//! assert!(residual.max > 0.0 && residual.max < 0.1);
//! # Ok(()) }
//! ```

mod band;
mod buffers;
mod cells;
mod error;
mod panel;
mod panels;
mod real;
mod row;
#[cfg(target_arch = "x86_64")]
mod sys;
#[cfg(test)]
mod tests;
mod types;

pub use cells::{Cells, RegionCells};
pub use error::StencilError;
pub use real::Real;
pub use types::{Boundary, Edge, MAX_STEPS, Residual, Stencil, Tile, Weights};

use band::{Band, Work};
use panels::PanelSize;
use row::{Loops, portable_loops};
use std::ops::Range;
use std::panic::resume_unwind;
use std::thread::ScopedJoinHandle;

impl Stencil {
    /// Returns the names of the instruction sets that this processor has loops for, fastest first.
    pub fn instruction_sets() -> Vec<&'static str> {
        loops::<f32>().map(|loops| loops.name).collect()
    }

    /// Computes all steps of a tile. Row 0 of `result` is the first row of [`Tile::result_rows`]. It may be the same memory
    /// as that row of `source`; other overlaps give wrong results.
    ///
    /// # Errors
    /// If the tile has no result rows, or a number is out of its range.
    pub fn advance<F: Real>(
        &self,
        tile: Tile,
        source: &impl Cells<F>,
        result: &impl Cells<F>,
    ) -> Result<Residual, StencilError> {
        let loops = loops().next().unwrap_or_else(portable_loops);
        self.advance_by(&loops, PanelSize::new::<F>(self.steps), tile, source, result)
    }

    fn advance_by<F: Real>(
        &self,
        loops: &Loops<F>,
        panels: PanelSize,
        tile: Tile,
        source: &impl Cells<F>,
        result: &impl Cells<F>,
    ) -> Result<Residual, StencilError> {
        let rows = self.check(tile)?;
        let weights = [F::from_f64(self.weights.center), F::from_f64(self.weights.neighbour)];
        let work = Work { stencil: self, loops, tile, source, result, first: rows.start, weights, panels };
        let mut squares = vec![0.0; if self.residual { rows.len() } else { 0 }];
        let bands = Band::split(&work, rows);
        let mut parts = squares.as_mut_slice();
        let max = std::thread::scope(|scope| {
            let start = |band| {
                let len = if self.residual { Band::len(band) } else { 0 };
                let (part, rest) = std::mem::take(&mut parts).split_at_mut(len);
                parts = rest;
                let work = &work;
                scope.spawn(move || advance_band(band, work, part))
            };
            let threads: Vec<_> = bands.iter().map(start).collect();
            let join = |thread: ScopedJoinHandle<'_, f64>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            threads.into_iter().map(join).fold(0.0, row::larger)
        });
        Ok(Residual { max, squares })
    }

    /// Checks the parameters and returns the rows of a tile that are results.
    ///
    /// # Errors
    /// As [`Self::advance`].
    pub fn check(&self, tile: Tile) -> Result<Range<usize>, StencilError> {
        if !(1..=MAX_STEPS).contains(&self.steps) {
            return Err(StencilError::Steps { found: self.steps, max: MAX_STEPS });
        }
        if self.threads == 0 {
            return Err(StencilError::Threads);
        }
        if self.boundary == Boundary::Periodic && tile.above != tile.below {
            return Err(StencilError::HalfPeriodic);
        }
        tile.result_rows(self.steps)
    }
}

/// Computes the rows of a band. Returns the largest change.
fn advance_band<F: Real, S: Cells<F>, R: Cells<F>>(
    band: &Band<F>,
    work: &Work<'_, F, S, R>,
    squares: &mut [f64],
) -> f64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if sys::single::run(band, work) {
        return 0.0;
    }
    panel::run(band, work, squares)
}

/// Returns the loops for this processor, fastest first.
fn loops<F: Real>() -> impl Iterator<Item = Loops<F>> {
    #[cfg(target_arch = "x86_64")]
    let fast = sys::available();
    #[cfg(not(target_arch = "x86_64"))]
    let fast = std::iter::empty();
    fast.chain([portable_loops()])
}
