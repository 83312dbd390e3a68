//! Local memory of a run.

use super::error::RunError;
use super::plan::{Matrix, Plan};
use shotline_compute::stencil::Boundary;
use shotline_memory::{Pages, Region, check_capacity};
use std::sync::Arc;

/// Local memory of a run.
pub(super) struct Memory {
    pub(super) matrix: Arc<Region>,
    /// Offset of the matrix in its region.
    offset: u64,
    /// Rows on both sides of each boundary of tiles, as they were before a round.
    pub(super) halos: Arc<Region>,
    /// Sums of the squares of the changes of each row.
    pub(super) squares: Arc<Region>,
}

impl Memory {
    pub(super) fn new(plan: &Plan, matrix: &Arc<Region>, offset: u64) -> Result<Self, RunError> {
        Self::with_halos(&plan.matrix, matrix, offset, plan.halo_bytes())
    }

    /// Returns memory without halos.
    pub(super) fn without_halos(plan: &Matrix, matrix: &Arc<Region>, offset: u64) -> Result<Self, RunError> {
        Self::with_halos(plan, matrix, offset, 0)
    }

    fn with_halos(plan: &Matrix, matrix: &Arc<Region>, offset: u64, halo_bytes: u64) -> Result<Self, RunError> {
        let squares_bytes = plan.rows.saturating_mul(8);
        check_capacity([(Pages::Small, halo_bytes), (Pages::Small, squares_bytes)]).map_err(RunError::Halos)?;
        // There is no region of 0 bytes.
        let (halos, squares) = (Region::heap(halo_bytes.max(8) as usize)?, Region::heap(squares_bytes as usize)?);
        Ok(Self { matrix: Arc::clone(matrix), offset, halos, squares })
    }

    /// Copies the rows above and below each boundary of tiles, as many as steps.
    pub(super) fn save_halos(&self, plan: &Plan, steps: u64) {
        let (row, rows) = (plan.matrix.row_bytes(), i128::from(plan.matrix.rows));
        let is_periodic = plan.matrix.boundary == Boundary::Periodic;
        for boundary in 0..=plan.tiles() {
            let at = i128::from((boundary * plan.tile_rows).min(plan.matrix.rows));
            for index in 0..2 * steps {
                let from = at + i128::from(index) - i128::from(steps);
                if !is_periodic && !(0..rows).contains(&from) {
                    continue;
                }
                let to = (boundary * 2 * plan.round_steps + index) * row;
                let from = self.offset + from.rem_euclid(rows) as u64 * row;
                self.halos.copy_from(to as usize, &self.matrix, from as usize, row as usize);
            }
        }
    }

    /// Sums the squares of the rows in their order.
    pub(super) fn sum_of_squares(&self, rows: u64) -> f64 {
        let mut sum = 0.0;
        for row in 0..rows as usize {
            let mut bytes = [0; 8];
            self.squares.read(8 * row, &mut bytes);
            sum += f64::from_le_bytes(bytes);
        }
        sum
    }
}
