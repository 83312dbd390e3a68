//! What is computed on which part of a matrix.

use super::error::StencilError;
use std::ops::Range;

/// Maximum number of steps of one pass.
pub const MAX_STEPS: usize = 64;

/// What is beyond the borders of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// The values at the borders never change (Dirichlet).
    Fixed,
    /// The opposite border follows, so that the matrix is a torus.
    Periodic,
    /// The values at the borders are repeated, so that nothing flows through them (Neumann).
    Insulated,
}

/// What is beyond the first or last row of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The border of the matrix. With [`Boundary::Periodic`] the tile is the whole matrix.
    Border,
    /// Other rows of the matrix. The outermost rows of the tile, as many as steps, are their copies.
    Halo,
}

/// A part of the rows of a matrix, with all of its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Number of rows, with those of the halos.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// What is above the first row.
    pub above: Edge,
    /// What is below the last row.
    pub below: Edge,
}

/// Weights of the five points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// Weight of the value itself.
    pub center: f64,
    /// Weight of each of the four neighbours.
    pub neighbour: f64,
}

impl Weights {
    /// Returns the weights of an explicit step of the heat equation with the diffusion number `a` (diffusivity times time
    /// step over the square of the grid spacing), which is stable up to 0.25.
    pub fn heat(a: f64) -> Self {
        Self { center: 1.0 - 4.0 * a, neighbour: a }
    }
}

/// Steps to compute, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stencil {
    /// Weights, rounded to the type of the values.
    pub weights: Weights,
    /// What is beyond the borders of the matrix.
    pub boundary: Boundary,
    /// Number of steps, from 1 to [`MAX_STEPS`].
    pub steps: usize,
    /// Number of threads, at least 1.
    pub threads: usize,
    /// Compute the change of the last step.
    pub residual: bool,
}

/// Change of the last step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Residual {
    /// Largest magnitude of a change. NaN if any is.
    pub max: f64,
    /// Sum of the squares of the changes of each row of the result. The squares of 256 columns at a time are added in a
    /// fixed order, so that the sums do not depend on the tiling.
    pub squares: Vec<f64>,
}

impl Residual {
    /// Returns the root of the sum of all squares. The rows are added in their order.
    pub fn l2(&self) -> f64 {
        self.squares.iter().sum::<f64>().sqrt()
    }
}

impl Tile {
    /// Returns the rows of the tile that are results after this number of steps.
    ///
    /// # Errors
    /// If there is none.
    pub fn result_rows(&self, steps: usize) -> Result<Range<usize>, StencilError> {
        let halo = |edge| if edge == Edge::Halo { steps } else { 0 };
        let (above, below) = (halo(self.above), halo(self.below));
        if self.columns == 0 || above.saturating_add(below) >= self.rows {
            return Err(StencilError::NoResult { rows: self.rows, columns: self.columns, above, below });
        }
        Ok(above..self.rows - below)
    }
}
