//! The command that computes steps of a stencil.

use super::completion::Outcome;
use super::fields::{Reader, Writer};
use super::range::overlap;
use shotline_compute::stencil::{Boundary, Edge, Stencil, Tile, Weights};

/// Working memory that a command may use in any case; one on a larger tile may use twice the bytes of the tile.
const MAX_SCRATCH: u64 = 256 << 20;
const HALO_ABOVE: u8 = 1;
const HALO_BELOW: u8 = 2;
/// Offset of the squares in a command that asks for none.
const NO_SQUARES: u64 = u64::MAX;

/// Type of the values of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// 4 bytes, IEEE 754 binary32.
    F32,
    /// 8 bytes, IEEE 754 binary64.
    F64,
}

impl Values {
    /// Returns the bytes of a value.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// Steps of a stencil on a tile in the accelerator's memory. Offsets and distances are in bytes, multiples of the bytes of
/// a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TileSteps {
    /// Type of the values.
    pub values: Values,
    /// The tile.
    pub tile: Tile,
    /// What is beyond the borders of the matrix.
    pub boundary: Boundary,
    /// Weights of the points.
    pub weights: Weights,
    /// Number of steps.
    pub steps: u32,
    /// Offset of the first row of the tile.
    pub source: u64,
    /// Offset of the first row of the result: that of the same row in the tile, or memory outside the tile.
    pub result: u64,
    /// Distance of two rows, of the tile and of the result.
    pub stride: u64,
    /// Offset at which the sums of the squares of the changes of each row of the result are stored, 8 bytes each.
    pub squares: Option<u64>,
}

impl TileSteps {
    /// Writes the numbers. Returns bytes 1 to 3 of the command and its steps.
    pub(super) fn emit(&self, put: &mut Writer<'_>) -> ([u8; 3], u32) {
        let flag = |edge, flag| if edge == Edge::Halo { flag } else { 0 };
        let edges = flag(self.tile.above, HALO_ABOVE) | flag(self.tile.below, HALO_BELOW);
        let values = u8::from(self.values == Values::F64);
        let boundary = match self.boundary {
            Boundary::Fixed => 0,
            Boundary::Periodic => 1,
            Boundary::Insulated => 2,
        };
        let (rows, columns) = (self.tile.rows as u64, self.tile.columns as u64);
        let squares = self.squares.unwrap_or(NO_SQUARES);
        put.numbers([rows, columns, self.source, self.result, self.stride, squares]);
        put.bytes(self.weights.center.to_le_bytes());
        put.bytes(self.weights.neighbour.to_le_bytes());
        ([values, boundary, edges], self.steps)
    }

    pub(super) fn parse(head: [u8; 4], steps: u32, mut body: Reader<'_>) -> Result<Self, &'static str> {
        let [_, values, boundary, flags] = head;
        let values = match values {
            0 => Values::F32,
            1 => Values::F64,
            _ => return Err("the type of the values is unknown"),
        };
        let boundary = match boundary {
            0 => Boundary::Fixed,
            1 => Boundary::Periodic,
            2 => Boundary::Insulated,
            _ => return Err("the boundary is unknown"),
        };
        let edge = |flag| if flags & flag != 0 { Edge::Halo } else { Edge::Border };
        let count = |number| usize::try_from(number).map_err(|_| "a count has more than 64 bits");
        let [rows, columns, source, result, stride, squares] = body.numbers();
        let (above, below) = (edge(HALO_ABOVE), edge(HALO_BELOW));
        let tile = Tile { rows: count(rows)?, columns: count(columns)?, above, below };
        let weights = Weights { center: body.f64(), neighbour: body.f64() };
        let squares = (squares != NO_SQUARES).then_some(squares);
        Ok(Self { values, tile, boundary, weights, steps, source, result, stride, squares })
    }
}

impl TileSteps {
    /// Returns the stencil that computes the steps.
    pub fn stencil(&self, threads: usize) -> Stencil {
        Stencil {
            weights: self.weights,
            boundary: self.boundary,
            steps: self.steps as usize,
            threads,
            residual: self.squares.is_some(),
        }
    }

    /// Checks that the work can be done in a memory of this many bytes, by this many threads.
    ///
    /// # Errors
    /// [`Outcome::NoResult`], [`Outcome::OutOfRange`] or [`Outcome::TooLarge`].
    pub fn check(&self, memory: u64, threads: usize) -> Result<(), Outcome> {
        let results = self.stencil(1).check(self.tile).map_err(|_| Outcome::NoResult)?;
        let span = |offset: u64, rows: usize| {
            let row = self.values.bytes().checked_mul(self.tile.columns as u64)?;
            let before = self.stride.checked_mul(rows as u64 - 1)?;
            let end = offset.checked_add(before)?.checked_add(row)?;
            (row <= self.stride && end <= memory).then_some(offset..end)
        };
        let unit = self.values.bytes();
        let is_aligned = [self.source, self.result, self.stride].iter().all(|number| number.is_multiple_of(unit));
        let tile = span(self.source, self.tile.rows).filter(|_| is_aligned).ok_or(Outcome::OutOfRange)?;
        let result = span(self.result, results.len()).ok_or(Outcome::OutOfRange)?;
        if self.scratch_bytes(threads) > u128::from(MAX_SCRATCH.max(2 * (tile.end - tile.start))) {
            return Err(Outcome::TooLarge);
        }
        let in_place = self.source + results.start as u64 * self.stride;
        if self.result != in_place && overlap(&tile, &result) {
            return Err(Outcome::OutOfRange);
        }
        if let Some(at) = self.squares {
            let end = at.checked_add(8 * results.len() as u64).filter(|end| *end <= memory && at.is_multiple_of(8));
            let squares = at..end.ok_or(Outcome::OutOfRange)?;
            if overlap(&squares, &tile) || overlap(&squares, &result) {
                return Err(Outcome::OutOfRange);
            }
        }
        Ok(())
    }
}

impl TileSteps {
    /// Returns an upper bound of the memory for rows next to the bands of threads, columns next to panels, and sums.
    fn scratch_bytes(&self, threads: usize) -> u128 {
        let (rows, columns, steps) = (self.tile.rows as u128, self.tile.columns as u128, u128::from(self.steps));
        let values = 2 * steps * columns * (threads as u128 + 1) + 2 * steps * rows;
        values * u128::from(self.values.bytes()) + 16 * rows
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::work;
    use super::*;

    #[test]
    fn memory_outside_and_overlapping_results_are_refused() {
        let end = 4096 + 32 * 512 - 112;
        assert_eq!(work().check(end, 1), Ok(()));
        assert_eq!(work().check(end - 1, 1), Err(Outcome::OutOfRange));
        let refused = |change: fn(&mut TileSteps)| {
            let mut work = work();
            change(&mut work);
            work.check(1 << 20, 1).unwrap_err()
        };
        assert_eq!(refused(|work| work.result += 512), Outcome::OutOfRange);
        assert_eq!(refused(|work| work.source += 2), Outcome::OutOfRange);
        assert_eq!(refused(|work| work.stride = 396), Outcome::OutOfRange);
        assert_eq!(refused(|work| work.squares = Some(4096)), Outcome::OutOfRange);
        assert_eq!(refused(|work| work.squares = Some(u64::MAX - 7)), Outcome::OutOfRange);
        assert_eq!(refused(|work| work.result = u64::MAX - 3), Outcome::OutOfRange);
        assert_eq!(refused(|work| work.tile.rows = usize::MAX), Outcome::OutOfRange);
        assert_eq!(refused(|work| work.tile.columns = usize::MAX), Outcome::OutOfRange);
        assert_eq!(refused(|work| work.tile.rows = 8), Outcome::NoResult);
        assert_eq!(refused(|work| work.steps = 0), Outcome::NoResult);
        assert_eq!(refused(|work| work.steps = u32::MAX), Outcome::NoResult);
    }
}
