//! Verification of a result: the same steps by plain loops, from the source, without tiles, nodes or cache blocks.

use super::plan::Matrix;
use crate::command::Values;
use shotline_compute::stencil::{Boundary, Real};
use shotline_memory::Region;
use shotline_random::SplitMix64;
use std::error::Error;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;

/// A result was not verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A value differs.
    #[error("NOT VERIFIED: row {row}, column {column}: expected {expected:e}, found {found:e}")]
    Mismatch {
        /// Row of the value.
        row: u64,
        /// Column of the value.
        column: u64,
        /// What the definition gives.
        expected: f64,
        /// What is in memory.
        found: f64,
    },
    /// So many steps reach too far for the memory of a thread.
    #[error(
        "a value after {steps} steps depends on so many others that they take more than {MAX_BYTES} bytes: verify fewer \
         values (--verify 100), or fewer steps"
    )]
    TooManySteps {
        /// Number of steps.
        steps: u64,
    },
    /// The verification was interrupted.
    #[error("interrupted during the verification")]
    Interrupted,
    /// The matrix before the first step cannot be read.
    #[error("{0}")]
    Before(Box<dyn Error + Send + Sync>),
}

/// The matrix before the first step.
pub trait Before: Sync {
    /// Reads a part of a row: bytes of values of the matrix's type, in the order of this machine.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read(&self, row: u64, column: u64, to: &mut [u8]) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// Maximum memory of a thread in bytes.
const MAX_BYTES: u64 = 256 << 20;
/// Rows that are verified at once, if the memory suffices. More rows, and fewer of them are computed twice.
const BAND_ROWS: u64 = 256;

/// Which values are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All.
    All,
    /// The corners and places chosen at random.
    Places(u64),
}

impl FromStr for Extent {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "all" => Ok(Self::All),
            Ok(0) | Err(_) => Err(format!("expected all, or a number of places above 0, found {text}")),
            Ok(places) => Ok(Self::Places(places)),
        }
    }
}

/// A result that is to be verified.
pub struct Verification<'a> {
    /// Values before the first step.
    pub before: &'a dyn Before,
    /// Matrix, boundary and weights.
    pub matrix: Matrix,
    /// Number of steps.
    pub steps: u64,
    /// Memory of the result.
    pub result: &'a Region,
    /// Offset of its first value.
    pub offset: u64,
    /// Ends it.
    pub stop: &'a AtomicBool,
}

/// Windows by their number.
type Windows = Box<dyn Fn(u64) -> Option<Window> + Sync>;

/// Places of the matrix that are computed again. Values beyond the matrix are periodic.
#[derive(Clone, Copy, Debug)]
struct Window {
    first_row: i64,
    rows: u64,
    first_column: i64,
    columns: u64,
}

impl Verification<'_> {
    /// Verifies values, and tells `progress` how many of how many. Returns how many.
    ///
    /// # Errors
    /// The first difference that is found, or why the values cannot be computed.
    pub fn run(&self, extent: Extent, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<u64, VerifyError> {
        match self.matrix.values {
            Values::F32 => self.run_with::<f32>(extent, progress),
            Values::F64 => self.run_with::<f64>(extent, progress),
        }
    }

    fn run_with<F: Real>(&self, extent: Extent, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<u64, VerifyError> {
        let windows = self.windows(extent)?;
        let all = match extent {
            Extent::All => self.matrix.rows * self.matrix.columns,
            Extent::Places(places) => places,
        };
        let (next, done, failed) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(None));
        let work = || {
            while !self.stop.load(Relaxed)
                && let Some(window) = windows(next.fetch_add(1, Relaxed))
            {
                match self.compare::<F>(window) {
                    Ok(()) => {
                        let count = window.rows * window.columns;
                        progress(done.fetch_add(count, Relaxed) + count, all);
                    }
                    Err(error) => {
                        next.store(u64::MAX / 2, Relaxed);
                        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..available_parallelism().map_or(1, usize::from) {
                scope.spawn(work);
            }
        });
        if self.stop.load(Relaxed) {
            return Err(VerifyError::Interrupted);
        }
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(done.into_inner()),
        }
    }

    /// Returns the windows by their number.
    fn windows(&self, extent: Extent) -> Result<Windows, VerifyError> {
        let too_many = VerifyError::TooManySteps { steps: self.steps };
        let Matrix { rows, columns, .. } = self.matrix;
        let row_bytes = 2 * self.matrix.row_bytes();
        let reach = self.steps.saturating_mul(2);
        match extent {
            Extent::All => {
                let at_once = (MAX_BYTES / row_bytes.max(1)).saturating_sub(reach).min(rows);
                // A matrix of few rows is computed as a whole.
                let band = at_once.min(BAND_ROWS.max(reach));
                if band == 0 {
                    return Err(too_many);
                }
                Ok(Box::new(move |number| {
                    let first = number.checked_mul(band).filter(|first| *first < rows)?;
                    let rows = band.min(rows - first);
                    Some(Window { first_row: first as i64, rows, first_column: 0, columns })
                }))
            }
            Extent::Places(places) => {
                let side = reach.saturating_add(1);
                if side.saturating_mul(side).saturating_mul(2 * self.matrix.values.bytes()) > MAX_BYTES {
                    return Err(too_many);
                }
                Ok(Box::new(move |number| {
                    let mut random = SplitMix64::new(number);
                    let (row, column) = match number {
                        0..4 => (number / 2 * (rows - 1), number % 2 * (columns - 1)),
                        _ => (random.next_u64() % rows, random.next_u64() % columns),
                    };
                    let window = Window { first_row: row as i64, rows: 1, first_column: column as i64, columns: 1 };
                    (number < places).then_some(window)
                }))
            }
        }
    }

    /// Computes a window again and compares it with the result.
    fn compare<F: Real>(&self, window: Window) -> Result<(), VerifyError> {
        let expected = self.compute::<F>(window)?;
        let mut found = vec![F::default(); window.columns as usize];
        for (index, expected) in expected.chunks_exact(window.columns as usize).enumerate() {
            let row = window.first_row as u64 + index as u64;
            let at = row * self.matrix.row_bytes() + window.first_column as u64 * size_of::<F>() as u64;
            self.result.read((self.offset + at) as usize, F::bytes_mut(&mut found));
            if F::bytes(expected) == F::bytes(&found) {
                continue;
            }
            for (column, (expected, found)) in expected.iter().zip(&found).enumerate() {
                let (expected, found): (f64, f64) = ((*expected).into(), (*found).into());
                // The payload of a NaN is not defined. Other values are compared by their bits: 0 is not -0.
                if expected.to_bits() != found.to_bits() && !(expected.is_nan() && found.is_nan()) {
                    let column = window.first_column as u64 + column as u64;
                    return Err(VerifyError::Mismatch { row, column, expected, found });
                }
            }
        }
        Ok(())
    }

    /// Computes the values of a window from all values that influence them.
    fn compute<F: Real>(&self, window: Window) -> Result<Vec<F>, VerifyError> {
        let (rows, first_row) = self.widen(window.first_row, window.rows, self.matrix.rows, false);
        let all_columns = window.columns == self.matrix.columns;
        let (columns, first_column) = self.widen(window.first_column, window.columns, self.matrix.columns, all_columns);
        let area = Window { first_row, rows, first_column, columns };
        let mut old = self.load::<F>(area)?;
        let mut new = old.clone();
        for _ in 0..self.steps {
            self.step(area, all_columns, &old, &mut new);
            std::mem::swap(&mut old, &mut new);
        }
        let (skip_rows, skip) =
            ((window.first_row - first_row) as usize, (window.first_column - first_column) as usize);
        let part = |row: &[F]| row[skip..skip + window.columns as usize].to_vec();
        Ok(old.chunks_exact(columns as usize).skip(skip_rows).take(window.rows as usize).flat_map(part).collect())
    }

    /// Returns the range that influences `count` rows or columns from `first` on: its length and beginning.
    fn widen(&self, first: i64, count: u64, all: u64, is_whole: bool) -> (u64, i64) {
        let steps = self.steps as i64;
        let end = first + count as i64;
        match self.matrix.boundary {
            _ if is_whole => (count, first),
            Boundary::Periodic => (count + 2 * self.steps, first - steps),
            Boundary::Fixed | Boundary::Insulated => {
                let first = first.saturating_sub(steps).max(0);
                (end.saturating_add(steps).min(all as i64).abs_diff(first), first)
            }
        }
    }

    fn load<F: Real>(&self, area: Window) -> Result<Vec<F>, VerifyError> {
        let mut values = vec![F::default(); (area.rows * area.columns) as usize];
        let (rows, columns) = (self.matrix.rows as i64, self.matrix.columns as i64);
        for (row, values) in (area.first_row..).zip(values.chunks_exact_mut(area.columns as usize)) {
            let mut at = 0;
            while at < values.len() {
                let column = (area.first_column + at as i64).rem_euclid(columns);
                let len = (values.len() - at).min((columns - column) as usize);
                let to = F::bytes_mut(&mut values[at..at + len]);
                self.before.read(row.rem_euclid(rows) as u64, column as u64, to).map_err(VerifyError::Before)?;
                at += len;
            }
        }
        Ok(values)
    }

    /// Computes one step of an area. Values next to an edge of the area that is not a border become wrong, one more row or
    /// column per step; the area is wide enough for that.
    fn step<F: Real>(&self, area: Window, all_columns: bool, old: &[F], new: &mut [F]) {
        let Matrix { boundary, weights, .. } = self.matrix;
        let (center, neighbour) = (F::from_f64(weights.center), F::from_f64(weights.neighbour));
        let (rows, columns) = (area.rows as usize, area.columns as usize);
        let wraps = boundary == Boundary::Periodic && all_columns;
        let is_fixed = |place: i64, all: u64| boundary == Boundary::Fixed && (place == 0 || place == all as i64 - 1);
        for row in 0..rows {
            let line = |row: usize| &old[row * columns..(row + 1) * columns];
            let (above, middle, below) = (line(row.saturating_sub(1)), line(row), line((row + 1).min(rows - 1)));
            let out = &mut new[row * columns..(row + 1) * columns];
            if is_fixed(area.first_row + row as i64, self.matrix.rows) {
                out.copy_from_slice(middle);
                continue;
            }
            let value = |up, down, left, middle, right| center * middle + neighbour * ((up + down) + (left + right));
            let sides = middle.windows(3).zip(above[1..].iter().zip(&below[1..]));
            for (out, (sides, (up, down))) in out[1..].iter_mut().zip(sides) {
                *out = value(*up, *down, sides[0], sides[1], sides[2]);
            }
            let last = columns - 1;
            let [first_left, last_right] = if wraps { [last, 0] } else { [0, last] };
            for (column, left, right) in [(0, first_left, 1.min(last)), (last, last.saturating_sub(1), last_right)] {
                out[column] = value(above[column], below[column], middle[left], middle[column], middle[right]);
            }
            for (place, column) in [(area.first_column, 0), (area.first_column + last as i64, last)] {
                if is_fixed(place, self.matrix.columns) {
                    out[column] = middle[column];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_compute::stencil::{Edge, RegionCells, Stencil, Tile, Weights};
    use std::sync::Arc;

    /// Values that depend on their place.
    struct Pattern(u64);

    impl Before for Pattern {
        fn read(&self, row: u64, column: u64, to: &mut [u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
            for (value, column) in to.as_chunks_mut::<8>().0.iter_mut().zip(column..) {
                *value = (SplitMix64::new(row * self.0 + column).next_u64() as f64).to_ne_bytes();
            }
            Ok(())
        }
    }

    /// Computes the steps of the pattern by the production code.
    fn computed(matrix: &Matrix, steps: u64) -> Arc<Region> {
        let region = Region::heap((matrix.rows * matrix.row_bytes()) as usize).unwrap();
        let mut row = vec![0; matrix.row_bytes() as usize];
        for number in 0..matrix.rows {
            Pattern(matrix.columns).read(number, 0, &mut row).unwrap();
            region.write(number as usize * row.len(), &row);
        }
        let (rows, columns) = (matrix.rows as usize, matrix.columns as usize);
        let tile = Tile { rows, columns, above: Edge::Border, below: Edge::Border };
        let cells = RegionCells { region: &region, offset: 0, stride: row.len() };
        let Matrix { weights, boundary, .. } = *matrix;
        let stencil = Stencil { weights, boundary, steps: steps as usize, threads: 2, residual: false };
        stencil.advance::<f64>(tile, &cells, &cells).unwrap();
        region
    }

    const BOUNDARIES: [Boundary; 3] = [Boundary::Fixed, Boundary::Periodic, Boundary::Insulated];
    const SHAPES: [(u64, u64); 6] = [(1, 1), (1, 9), (9, 1), (5, 7), (600, 31), (70, 300)];

    fn verify(matrix: &Matrix, steps: u64, result: &Region, extent: Extent) -> Result<u64, VerifyError> {
        let (before, stop) = (&Pattern(matrix.columns), &AtomicBool::new(false));
        Verification { before, matrix: *matrix, steps, result, offset: 0, stop }.run(extent, &|_, _| ())
    }

    fn matrix((rows, columns): (u64, u64), boundary: Boundary) -> Matrix {
        Matrix { rows, columns, values: Values::F64, boundary, weights: Weights::heat(0.2) }
    }

    #[test]
    fn results_are_verified_as_a_whole_and_at_places() {
        for (shape, boundary) in SHAPES.into_iter().flat_map(|shape| BOUNDARIES.map(|boundary| (shape, boundary))) {
            let matrix = matrix(shape, boundary);
            let result = computed(&matrix, 13);
            assert_eq!(verify(&matrix, 13, &result, Extent::All).unwrap(), shape.0 * shape.1, "{matrix:?}");
            assert_eq!(verify(&matrix, 13, &result, Extent::Places(50)).unwrap(), 50, "{matrix:?}");
        }
    }

    #[test]
    fn one_wrong_bit_anywhere_is_found() {
        let matrix = matrix((600, 31), Boundary::Periodic);
        let result = computed(&matrix, 3);
        for (row, column) in [(0, 0), (0, 30), (255, 17), (256, 0), (599, 30)] {
            let at = (row * 31 + column) * 8;
            let mut byte = [0];
            result.read(at, &mut byte);
            result.write(at, &[byte[0] ^ 1]);
            let found = verify(&matrix, 3, &result, Extent::All).unwrap_err();
            assert!(
                matches!(found, VerifyError::Mismatch { row: r, column: c, .. } if (r, c) == (row as u64, column as u64)),
                "{found}"
            );
            result.write(at, &byte);
        }
        assert!(verify(&matrix, 2, &result, Extent::Places(4)).is_err());
    }

    #[test]
    fn steps_that_reach_too_far_are_refused() {
        let matrix = matrix((10, 1 << 20), Boundary::Fixed);
        let result = Region::heap(4096).unwrap();
        for (steps, extent) in [(10, Extent::All), (5000, Extent::Places(1)), (u64::MAX, Extent::Places(1))] {
            let refused = verify(&matrix, steps, &result, extent).unwrap_err();
            assert!(matches!(refused, VerifyError::TooManySteps { .. }), "{refused}");
        }
        assert!("0".parse::<Extent>().unwrap_err().contains("found 0"));
        assert_eq!(("all".parse(), "12".parse()), (Ok(Extent::All), Ok(Extent::Places(12))));
    }
}
