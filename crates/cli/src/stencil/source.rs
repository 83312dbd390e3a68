//! The matrix before the first step. Any part of it can be read at any time, so that no copy of it is needed to verify the
//! result.

use crate::Result;
use shotline_accelerate::command::Values;
use shotline_accelerate::stencil::Before;
use shotline_compute::stencil::Real;
use shotline_random::SplitMix64;
use shotline_store::npy::Array;
use std::error::Error;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Number of rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows.
    pub rows: u64,
    /// Columns.
    pub columns: u64,
}

/// Values of a matrix.
pub struct Source {
    /// Number of rows and columns.
    pub shape: Shape,
    /// Type of the values.
    pub values: Values,
    origin: Origin,
}

enum Origin {
    Generated { seed: u64 },
    File { array: Array, path: PathBuf },
}

/// Hot and cold discs of generated values: centre and radius as parts of the shorter side, and the value.
const DISCS: [(f64, f64, f64, f64); 6] = [
    (0.22, 0.30, 0.12, 1.0),
    (0.62, 0.22, 0.07, -1.0),
    (0.75, 0.70, 0.16, 0.8),
    (0.35, 0.72, 0.09, -0.8),
    (0.50, 0.48, 0.04, 1.0),
    (0.90, 0.40, 0.03, 1.0),
];
/// Range of the noise of generated values. Without it, a tile at a wrong place could go unnoticed.
const NOISE: f64 = 0.25;

impl Source {
    /// Returns discs with noise.
    pub fn generated(shape: Shape, values: Values, seed: u64) -> Self {
        Self { shape, values, origin: Origin::Generated { seed } }
    }

    /// Opens a NumPy file.
    pub fn open(path: &Path) -> Result<Self> {
        let array = Array::open(path)?;
        let values = match (array.kind, array.width) {
            ('f', 4) => Values::F32,
            ('f', 8) => Values::F64,
            _ => return Err(array.wrong(path, "float32 or float64 (convert it: array.astype(\"float32\"))").into()),
        };
        let [rows, columns] = array.dimensions[..] else {
            return Err(array.wrong(path, "two dimensions: row, column").into());
        };
        if rows == 0 || columns == 0 {
            return Err(array.wrong(path, "at least one row and one column").into());
        }
        array.check_length(path)?;
        Ok(Self { shape: Shape { rows, columns }, values, origin: Origin::File { array, path: path.into() } })
    }

    /// Reads a part of a row. `F` is the type of the [values](Self::values).
    pub fn read<F: Real>(&self, row: u64, column: u64, to: &mut [F]) -> Result {
        Ok(self.read_bytes::<F>(row, column, F::bytes_mut(to))?)
    }

    fn read_bytes<F: Real>(&self, row: u64, column: u64, to: &mut [u8]) -> std::result::Result<(), String> {
        match &self.origin {
            Origin::Generated { seed } => {
                self.generate::<F>(row, column, to, *seed);
                Ok(())
            }
            Origin::File { array, path } => {
                let at = array.start + (row * self.shape.columns + column) * size_of::<F>() as u64;
                let read = array.file.read_exact_at(to, at);
                read.map_err(|error| format!("cannot read row {row} of {}: {error}", path.display()))
            }
        }
    }

    /// Generates a part of a row.
    fn generate<F: Real>(&self, row: u64, column: u64, to: &mut [u8], seed: u64) {
        let side = self.shape.rows.min(self.shape.columns) as f64;
        let mut discs = vec![0.0; to.len() / size_of::<F>()];
        // The first disc is in front.
        for (x, y, radius, value) in DISCS.into_iter().rev() {
            let below = (row as f64 - y * self.shape.rows as f64) / side;
            let half = (radius * radius - below * below).max(0.0).sqrt() * side;
            // In columns of the matrix, so that every part of a row has the same edges.
            let middle = x * self.shape.columns as f64;
            let edge = |at: f64| (at.ceil().max(0.0) as u64).saturating_sub(column).min(discs.len() as u64) as usize;
            let inside = edge(middle - half)..edge(middle + half);
            discs[inside].fill(value);
        }
        let first = row.wrapping_mul(self.shape.columns).wrapping_add(column);
        for ((place, disc), value) in (first..).zip(discs).zip(to.chunks_exact_mut(size_of::<F>())) {
            let noise = SplitMix64::new(seed ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15)).next_u64() >> 11;
            let number = F::from_f64(disc + NOISE * (noise as f64 / (1_u64 << 53) as f64 - 0.5));
            value.copy_from_slice(F::bytes(&[number]));
        }
    }
}

impl Before for Source {
    fn read(&self, row: u64, column: u64, to: &mut [u8]) -> std::result::Result<(), Box<dyn Error + Send + Sync>> {
        let read = match self.values {
            Values::F32 => self.read_bytes::<f32>(row, column, to),
            Values::F64 => self.read_bytes::<f64>(row, column, to),
        };
        Ok(read?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_store::npy::header_bytes;

    #[test]
    fn generated_values_depend_on_place_and_seed() {
        let row = |row, seed| {
            let mut values = [0_f64; 16];
            Source::generated(Shape { rows: 64, columns: 64 }, Values::F64, seed).read(row, 3, &mut values).unwrap();
            values
        };
        assert!(row(5, 1) == row(5, 1) && row(5, 1) != row(6, 1) && row(5, 1) != row(5, 2));
        assert!(row(5, 1).windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn parts_of_a_row_are_those_of_the_whole_row() {
        let source = Source::generated(Shape { rows: 1000, columns: 1000 }, Values::F64, 1);
        let (mut whole, mut part) = ([0_f64; 1000], [0_f64; 100]);
        for row in (0..1000).step_by(7) {
            source.read(row, 0, &mut whole).unwrap();
            for column in (0..900).step_by(13) {
                source.read(row, column, &mut part).unwrap();
                assert_eq!(part, whole[column as usize..][..100], "row {row}, column {column}");
            }
        }
    }

    #[test]
    fn arrays_of_other_shapes_and_types_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let open = |kind, width, dimensions: &[u64], bytes: usize| {
            let header = header_bytes(kind, width, dimensions, 64);
            std::fs::write(&path, [header, vec![1; bytes]].concat()).unwrap();
            Source::open(&path).map(|source| source.shape).map_err(|error| error.to_string())
        };
        assert_eq!(open('f', 8, &[2, 3], 48), Ok(Shape { rows: 2, columns: 3 }));
        for (found, words) in [
            (open('i', 4, &[2, 3], 24), "float32 or float64"),
            (open('f', 4, &[2, 3, 4], 96), "two dimensions"),
            (open('f', 4, &[2, 0], 0), "at least one row"),
            (open('f', 4, &[2, 3], 23), "expected 24 bytes of numbers"),
        ] {
            let error = found.unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
