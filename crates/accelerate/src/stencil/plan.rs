//! Division of a matrix into tiles.

use crate::command::{TileSteps, Values};
use shotline_compute::stencil::{Boundary, Edge, MAX_STEPS, Tile, Weights};
use std::ops::Range;

/// A matrix in row-major order, without gaps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matrix {
    /// Number of rows.
    pub rows: u64,
    /// Number of columns.
    pub columns: u64,
    /// Type of the values.
    pub values: Values,
    /// What is beyond the borders.
    pub boundary: Boundary,
    /// Weights of a step.
    pub weights: Weights,
}

impl Matrix {
    /// Returns the bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        self.columns * self.values.bytes()
    }
    /// Returns the bytes of the matrix, or `None` if they are more than 2^64.
    pub fn bytes(&self) -> Option<u64> {
        self.columns.checked_mul(self.values.bytes())?.checked_mul(self.rows)
    }
}

/// The matrix cannot be computed as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// There is no value.
    #[error("expected a matrix of at least one row and column, found {rows} x {columns}")]
    Empty {
        /// Number of rows.
        rows: u64,
        /// Number of columns.
        columns: u64,
    },
    /// The number of steps of a round is out of range.
    #[error("expected 1 to {MAX_STEPS} steps in a round, found {0}")]
    Steps(u64),
    /// A tile of one row does not fit.
    #[error(
        "a tile of one row with halos of {halo} rows takes {needed} bytes, a node has {memory} bytes for each of its \
         {buffers} buffers: use fewer steps in a round, or fewer buffers"
    )]
    TooSmall {
        /// Rows of a halo.
        halo: u64,
        /// Bytes that a tile of one row needs.
        needed: u64,
        /// Bytes of a buffer.
        memory: u64,
        /// Number of buffers.
        buffers: u32,
    },
    /// A tile that stays does not fit.
    #[error(
        "a tile of {rows} rows that stays takes {needed} bytes with its halos, a node has {memory}: use more nodes or \
         nodes with more memory (--node-memory), fewer steps in a round (--round-steps), or let the tiles come and go \
         (without --resident)"
    )]
    DoesNotStay {
        /// Rows of the tile.
        rows: u64,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes of a node's memory.
        memory: u64,
    },
}

/// Rows of a matrix in tiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The matrix.
    pub matrix: Matrix,
    /// Steps of a round.
    pub round_steps: u64,
    /// Rows of a tile, without halos. The last one may have fewer.
    pub tile_rows: u64,
    /// Bytes of a node's buffer.
    pub buffer_bytes: u64,
    /// Buffers of a node.
    pub buffers: u32,
}

/// A tile with its halos, in the matrix and in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TileRows {
    /// Rows of the matrix that are results.
    pub(super) rows: Range<u64>,
    /// Rows above and below that are written, too.
    pub(super) above: u64,
    pub(super) below: u64,
    above_edge: Edge,
    below_edge: Edge,
}

impl Plan {
    /// Divides a matrix. `memory` is the smallest of the nodes' memories; `tile_rows`: as many as fit.
    ///
    /// # Errors
    /// If a tile of one row does not fit, or a number is out of its range.
    pub fn new(
        matrix: Matrix,
        round_steps: u64,
        memory: u64,
        buffers: u32,
        tile_rows: Option<u64>,
        nodes: u64,
    ) -> Result<Self, PlanError> {
        if matrix.rows == 0 || matrix.columns == 0 {
            return Err(PlanError::Empty { rows: matrix.rows, columns: matrix.columns });
        }
        if !(1..=MAX_STEPS as u64).contains(&round_steps) {
            return Err(PlanError::Steps(round_steps));
        }
        // A row of the tile, and the sum of its squares.
        let row = matrix.columns.saturating_mul(matrix.values.bytes()).checked_next_multiple_of(8);
        let row = row.unwrap_or(u64::MAX).saturating_add(8);
        let room = memory / u64::from(buffers.max(1)) / 4096 * 4096;
        let fits = (room / row).saturating_sub(2 * round_steps);
        let needed = (1 + 2 * round_steps).saturating_mul(row);
        let refused = PlanError::TooSmall { halo: round_steps, needed, memory: room, buffers };
        // Each node has some tiles, so that the nodes work at the same time.
        let share = matrix.rows.div_ceil(nodes.max(1) * u64::from(buffers.max(1)));
        let tile_rows = tile_rows.unwrap_or(share.min(fits)).min(matrix.rows);
        if fits == 0 || tile_rows == 0 || tile_rows > fits {
            return Err(refused);
        }
        Ok(Self { matrix, round_steps, tile_rows, buffer_bytes: room, buffers })
    }

    /// Returns the number of tiles.
    pub fn tiles(&self) -> u64 {
        self.matrix.rows.div_ceil(self.tile_rows)
    }

    /// Returns the bytes of the rows that are saved at the boundaries of tiles.
    pub(super) fn halo_bytes(&self) -> u64 {
        (self.tiles() + 1).saturating_mul(2 * self.round_steps).saturating_mul(self.matrix.row_bytes())
    }

    /// Returns the rows of a tile for a round of this many steps.
    pub(super) fn tile(&self, index: u64, steps: u64) -> TileRows {
        let first = index * self.tile_rows;
        TileRows::new(&self.matrix, first..self.matrix.rows.min(first + self.tile_rows), steps)
    }

    /// Returns the command for a tile in the buffer at this offset. Results replace the tile.
    pub(super) fn command(&self, tile: &TileRows, steps: u64, buffer: u64, squares: bool) -> TileSteps {
        let end = buffer + tile.count() * self.matrix.row_bytes();
        tile.command(&self.matrix, steps, buffer, squares.then(|| end.next_multiple_of(8)))
    }
}

impl TileRows {
    /// Returns a tile with the halos that it needs for this many steps.
    pub(super) fn new(matrix: &Matrix, rows: Range<u64>, steps: u64) -> Self {
        let is_periodic = matrix.boundary == Boundary::Periodic;
        let reach = |room: u64| if is_periodic || room >= steps { (steps, Edge::Halo) } else { (room, Edge::Border) };
        let (above, above_edge) = reach(rows.start);
        let (below, below_edge) = reach(matrix.rows - rows.end);
        Self { rows, above, below, above_edge, below_edge }
    }

    /// Returns all rows of a matrix, which need no halos.
    pub(super) fn whole(matrix: &Matrix) -> Self {
        let (above_edge, below_edge) = (Edge::Border, Edge::Border);
        Self { rows: 0..matrix.rows, above: 0, below: 0, above_edge, below_edge }
    }

    /// Returns the number of rows with the halos.
    pub(super) fn count(&self) -> u64 {
        self.above + (self.rows.end - self.rows.start) + self.below
    }

    /// Returns the command for the tile at this offset, and the sums of squares at another one. Results replace the tile.
    pub(super) fn command(&self, matrix: &Matrix, steps: u64, source: u64, squares: Option<u64>) -> TileSteps {
        let stride = matrix.row_bytes();
        let first = if self.above_edge == Edge::Halo { steps } else { 0 };
        TileSteps {
            values: matrix.values,
            tile: Tile {
                rows: self.count() as usize,
                columns: matrix.columns as usize,
                above: self.above_edge,
                below: self.below_edge,
            },
            boundary: matrix.boundary,
            weights: matrix.weights,
            steps: steps as u32,
            source,
            result: source + first * stride,
            stride,
            squares,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use shotline_compute::stencil::{Cells as _, RegionCells, Stencil};
    use shotline_memory::Region;
    use shotline_random::SplitMix64;

    pub(in crate::stencil) fn matrix(rows: u64, columns: u64, boundary: Boundary) -> Matrix {
        Matrix { rows, columns, values: Values::F32, boundary, weights: Weights::heat(0.2) }
    }

    pub(in crate::stencil) fn random(matrix: &Matrix, seed: u64) -> Vec<Vec<f32>> {
        let mut random = SplitMix64::new(seed);
        let mut row = || (0..matrix.columns).map(|_| random.next_u64() as f32 / 1e19).collect();
        (0..matrix.rows).map(|_| row()).collect()
    }

    /// Computes the whole matrix in one piece.
    pub(in crate::stencil) fn whole(matrix: &Matrix, rows: &[Vec<f32>], steps: u64) -> Vec<Vec<f32>> {
        let region = Region::heap(4 * rows.concat().len()).unwrap();
        let cells = RegionCells { region: &region, offset: 0, stride: matrix.row_bytes() as usize };
        (0..).zip(rows).for_each(|(number, row)| cells.store(number, 0, row));
        let (rows, columns) = (rows.len(), matrix.columns as usize);
        let tile = Tile { rows, columns, above: Edge::Border, below: Edge::Border };
        let Matrix { weights, boundary, .. } = *matrix;
        let stencil = Stencil { weights, boundary, steps: steps as usize, threads: 1, residual: false };
        stencil.advance::<f32>(tile, &cells, &cells).unwrap();
        let load = |number| {
            let mut row = vec![0.0; columns];
            cells.load(number, 0, &mut row);
            row
        };
        (0..rows).map(load).collect()
    }

    /// Computes each tile as a node does, in a buffer whose rest must not be needed.
    fn in_tiles(plan: &Plan, rows: &[Vec<f32>], steps: u64) -> Vec<Vec<f32>> {
        let region = Region::heap(plan.buffer_bytes as usize).unwrap();
        let row_bytes = plan.matrix.row_bytes() as usize;
        let cells = RegionCells { region: &region, offset: 0, stride: row_bytes };
        let mut all = Vec::new();
        for tile in (0..plan.tiles()).map(|index| plan.tile(index, steps)) {
            let first = tile.rows.start as i64 - tile.above as i64;
            let count = tile.above + (tile.rows.end - tile.rows.start) + tile.below;
            for row in 0..count as usize {
                let from = (first + row as i64).rem_euclid(rows.len() as i64);
                cells.store(row, 0, &rows[from as usize]);
            }
            let work = plan.command(&tile, steps, 0, true);
            assert_eq!(work.check(plan.buffer_bytes, 1), Ok(()), "{plan:?} {tile:?}");
            let result = RegionCells { offset: work.result as usize, ..cells };
            work.stencil(1).advance::<f32>(work.tile, &cells, &result).unwrap();
            for row in tile.above..tile.above + (tile.rows.end - tile.rows.start) {
                let mut values = vec![0.0; plan.matrix.columns as usize];
                cells.load(row as usize, 0, &mut values);
                all.push(values);
            }
        }
        all
    }

    proptest! {
        #[test]
        fn tiles_with_halos_give_the_bits_of_the_whole_matrix(
            rows in 1_u64..40,
            columns in 1_u64..20,
            steps in 1_u64..12,
            fewer in 0_u64..4,
            tile_rows in 1_u64..12,
            kind in 0_usize..3,
            seed: u64,
        ) {
            let boundary = [Boundary::Fixed, Boundary::Periodic, Boundary::Insulated][kind];
            let matrix = matrix(rows, columns, boundary);
            let plan = Plan::new(matrix, steps, 1 << 16, 2, Some(tile_rows), 2).unwrap();
            // The last round can have fewer steps than the others.
            let steps = steps.saturating_sub(fewer).max(1);
            let values = random(&matrix, seed);
            prop_assert_eq!(in_tiles(&plan, &values, steps), whole(&matrix, &values, steps));
        }
    }

    #[test]
    fn every_node_has_a_tile_for_each_buffer() {
        let plan = Plan::new(matrix(4096, 4096, Boundary::Fixed), 16, 256 << 20, 2, None, 4).unwrap();
        assert_eq!((plan.tile_rows, plan.tiles(), plan.buffer_bytes), (512, 8, 128 << 20));
        let small = Plan::new(matrix(4096, 4096, Boundary::Fixed), 16, 4 << 20, 2, None, 4).unwrap();
        assert_eq!((small.tile_rows, small.tiles()), (95, 44));
    }

    #[test]
    fn matrices_that_do_not_fit_are_refused() {
        let refused = |rows, columns, steps, memory, buffers, tile_rows| {
            Plan::new(matrix(rows, columns, Boundary::Fixed), steps, memory, buffers, tile_rows, 1).unwrap_err()
        };
        assert_eq!(refused(0, 5, 1, 1 << 20, 1, None), PlanError::Empty { rows: 0, columns: 5 });
        assert_eq!(refused(5, 5, 65, 1 << 20, 1, None), PlanError::Steps(65));
        let too_small = |halo, needed, memory, buffers| PlanError::TooSmall { halo, needed, memory, buffers };
        assert_eq!(refused(100, 1022, 2, 32 << 10, 2, None), too_small(2, 20_480, 16 << 10, 2));
        assert_eq!(refused(100, 1022, 2, 64 << 10, 1, Some(13)), too_small(2, 20_480, 64 << 10, 1));
        let huge = refused(100, u64::MAX, 2, 1 << 30, 1, None);
        assert!(matches!(huge, PlanError::TooSmall { needed: u64::MAX, .. }), "{huge}");
    }
}
