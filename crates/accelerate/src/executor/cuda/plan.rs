//! The launches of a command.
//!
//! A launch computes a few steps ([`HALO`]), from one memory into another: threads read values of their neighbours, so no
//! launch can replace its source. The steps in between are in scratch memory. It has at most two copies of the tile, which
//! are used in turn: halos of the tile in the memory, which are not part of the result, do not change.

use crate::command::{TileSteps, Values};
use shotline_compute::stencil::{Boundary, Edge};
use std::ffi::CStr;
use std::ops::Range;

// These are also in kernels.cu.
/// Threads of a block.
pub(super) const THREADS: u32 = 256;
/// Rows and columns of the results of a block.
const BLOCK: [usize; 2] = [32, 64];
/// Maximum number of steps of a launch.
const HALO: usize = 4;
const FIXED: u64 = 1;
const BORDER_ABOVE: u64 = 2;
const BORDER_BELOW: u64 = 4;
const BORDERS_AT_SIDES: u64 = 8;
const WRAPS_ROWS: u64 = 16;
const WRAPS_COLUMNS: u64 = 32;

/// Names of the kernels. Those of `f64` follow those of `f32`.
pub(super) const KERNELS: [&CStr; 4] = [c"steps_f32", c"steps_f64", c"changes_f32", c"changes_f64"];
const STEPS: usize = 0;
const CHANGES: usize = 2;

/// Maximum number of blocks of a launch, far below that of a device. Each computes several parts of a larger tile.
pub(super) const MAX_GRID: u32 = 1 << 16;

/// The arguments of a kernel: `Launch` in kernels.cu.
pub(super) type Arguments = [u64; 14];

/// A launch of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Launch {
    /// Index in [`KERNELS`].
    pub(super) kernel: usize,
    /// Number of blocks.
    pub(super) grid: u32,
    pub(super) arguments: Arguments,
}

/// Rows of a tile on the device. If not all of its rows are there, row 0 is where it would be.
#[derive(Clone, Copy, Debug)]
struct Rows {
    /// Address of row 0.
    address: u64,
    /// Bytes from one row to the next.
    stride: u64,
}

/// How a command is divided into launches.
pub(super) struct Plan<'a> {
    work: &'a TileSteps,
    results: Range<usize>,
    /// Steps of each launch. 0 copies.
    passes: Vec<usize>,
    max_grid: u32,
}

impl<'a> Plan<'a> {
    /// Divides work that has these result rows.
    pub(super) fn new(work: &'a TileSteps, results: Range<usize>, max_grid: u32) -> Self {
        // The last step is launched on its own if it is to be compared with the one before.
        let apart = usize::from(work.squares.is_some());
        let before = work.steps as usize - apart;
        let mut passes: Vec<_> = (0..before).step_by(HALO).map(|done| HALO.min(before - done)).collect();
        passes.extend((apart > 0).then_some(1));
        let is_in_place = work.result == work.source + results.start as u64 * work.stride;
        if is_in_place && passes.len() == 1 {
            passes.insert(0, 0);
        }
        Self { work, results, passes, max_grid }
    }

    fn row_bytes(&self) -> u64 {
        self.work.values.bytes() * self.work.tile.columns as u64
    }

    /// Returns the bytes of a copy of the tile in scratch memory.
    fn copy_bytes(&self) -> u64 {
        (self.row_bytes() * self.work.tile.rows as u64).next_multiple_of(256)
    }

    /// Returns the offset of the largest changes of each row in scratch memory, 8 bytes each.
    pub(super) fn maxima(&self) -> Range<usize> {
        let copies = (self.passes.len() - 1).min(2);
        let start = copies * self.copy_bytes() as usize;
        start..start + if self.work.squares.is_some() { 8 * self.results.len() } else { 0 }
    }

    /// Returns the bytes of scratch memory, at least 1.
    pub(super) fn scratch_bytes(&self) -> usize {
        self.maxima().end.max(1)
    }

    /// Returns the launches for a memory and a scratch memory at these addresses.
    pub(super) fn launches(&self, memory: u64, scratch: u64) -> Vec<Launch> {
        let work = self.work;
        let first_row = self.results.start as u64 * work.stride;
        let source = Rows { address: memory + work.source, stride: work.stride };
        let result = Rows { address: (memory + work.result).wrapping_sub(first_row), stride: work.stride };
        let copy =
            |index: usize| Rows { address: scratch + (index % 2) as u64 * self.copy_bytes(), stride: self.row_bytes() };
        let last = self.passes.len() - 1;
        let mut done = 0;
        let mut launches = Vec::new();
        for (pass, steps) in self.passes.iter().enumerate() {
            done += steps;
            let from = if pass == 0 { source } else { copy(pass - 1) };
            let to = if pass == last { result } else { copy(pass) };
            launches.push(self.steps(from, to, done, *steps));
            if let (true, Some(squares)) = (pass == last, work.squares) {
                launches.push(self.changes(from, to, memory + squares, scratch + self.maxima().start as u64));
            }
        }
        launches
    }

    /// Returns the launch of some steps, after which so many are done.
    fn steps(&self, from: Rows, to: Rows, done: usize, steps: usize) -> Launch {
        let tile = self.work.tile;
        let halo = |edge| if edge == Edge::Halo { done } else { 0 };
        let rows = halo(tile.above)..tile.rows - halo(tile.below);
        let blocks = rows.len().div_ceil(BLOCK[0]) * tile.columns.div_ceil(BLOCK[1]);
        self.launch(STEPS, blocks, [from, to], rows, [steps as u64, 0, 0])
    }

    /// Returns the launch that compares the last step with the one before.
    fn changes(&self, before: Rows, after: Rows, squares: u64, maxima: u64) -> Launch {
        let rows = self.results.clone();
        self.launch(CHANGES, rows.len(), [before, after], rows, [0, squares, maxima])
    }

    fn launch(
        &self,
        kernel: usize,
        blocks: usize,
        [from, to]: [Rows; 2],
        rows: Range<usize>,
        [steps, squares, maxima]: [u64; 3],
    ) -> Launch {
        let (tile, weights) = (self.work.tile, self.work.weights);
        let (center, neighbour) = (weights.center.to_bits(), weights.neighbour.to_bits());
        let (all_rows, columns) = (tile.rows as u64, tile.columns as u64);
        let (first, end) = (rows.start as u64, rows.end as u64);
        let arguments = [
            from.address,
            from.stride,
            to.address,
            to.stride,
            all_rows,
            columns,
            first,
            end,
            self.flags(),
            steps,
            center,
            neighbour,
            squares,
            maxima,
        ];
        let grid = u32::try_from(blocks).unwrap_or(u32::MAX).min(self.max_grid);
        Launch { kernel: kernel + usize::from(self.work.values == Values::F64), grid, arguments }
    }

    fn flags(&self) -> u64 {
        let tile = self.work.tile;
        let border = |edge, flag| if edge == Edge::Border { flag } else { 0 };
        let borders = border(tile.above, BORDER_ABOVE) | border(tile.below, BORDER_BELOW) | BORDERS_AT_SIDES;
        match self.work.boundary {
            Boundary::Fixed => FIXED | borders,
            Boundary::Insulated => borders,
            Boundary::Periodic => WRAPS_COLUMNS | border(tile.above, WRAPS_ROWS),
        }
    }
}
