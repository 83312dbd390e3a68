//! The matrix as a picture of the page.

use super::source::Shape;
use shotline_accelerate::command::Values;
use shotline_dashboard::pictures::{Axis, Format, Header, Painter, Picture};
use shotline_dashboard::status::PictureInfo;
use shotline_memory::Region;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const KIND: &str = "matrix";
/// Maximum width and height of the picture; of larger matrices every n-th value of every n-th row is shown.
const MAX_SIDE: u64 = 512;
/// Above this step the shown values are read one by one instead of with their rows.
const MAX_ROW_STEP: u64 = 16;
/// Time between two pictures, which take bandwidth of the memory.
const INTERVAL: Duration = Duration::from_millis(500);

/// The region of the matrix and the offset of its first value, once it has its values.
pub type MatrixMemory = Arc<OnceLock<(Arc<Region>, u64)>>;

/// Paints the matrix as it is in the memory of the run: rows of tiles that are back are those after their steps.
pub struct MatrixPainter {
    shape: Shape,
    values: Values,
    memory: MatrixMemory,
    last: Option<Instant>,
}

impl MatrixPainter {
    /// Creates the painter of a matrix.
    pub fn new(shape: Shape, values: Values, memory: MatrixMemory) -> Self {
        Self { shape, values, memory, last: None }
    }

    /// Returns every `step`-th value of a row.
    fn row(&self, (region, offset): &(Arc<Region>, u64), row: u64, step: u64) -> Vec<f64> {
        let Shape { columns, .. } = self.shape;
        let width: u64 = if self.values == Values::F32 { 4 } else { 8 };
        let first = offset + row * columns * width;
        let number = |bytes: &[u8]| match bytes {
            [a, b, c, d] => f32::from_ne_bytes([*a, *b, *c, *d]).into(),
            [a, b, c, d, e, f, g, h] => f64::from_ne_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
            _ => f64::NAN,
        };
        if step > MAX_ROW_STEP {
            let mut bytes = [0; 8];
            let bytes = &mut bytes[..width as usize];
            let mut read = |column: u64| {
                region.read((first + column * width) as usize, bytes);
                number(bytes)
            };
            return (0..columns).step_by(step as usize).map(&mut read).collect();
        }
        let mut bytes = vec![0; (columns * width) as usize];
        region.read(first as usize, &mut bytes);
        bytes.chunks_exact(width as usize).step_by(step as usize).map(number).collect()
    }
}

impl Painter for MatrixPainter {
    fn info(&self) -> PictureInfo {
        let about = "The matrix, from the smallest to the largest value that is shown.";
        PictureInfo { kind: KIND, label: "Matrix".into(), about: about.into() }
    }

    fn paint(&mut self, _stop: &AtomicBool) -> Option<Picture> {
        let memory = self.memory.get()?;
        if self.last.is_some_and(|last| last.elapsed() < INTERVAL) {
            return None;
        }
        let Shape { rows, columns } = self.shape;
        let step = rows.max(columns).div_ceil(MAX_SIDE);
        let values: Vec<f64> = (0..rows).step_by(step as usize).flat_map(|row| self.row(memory, row, step)).collect();
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
        let (low, high) = if low <= high { (low, high) } else { (0.0, 0.0) };
        let level = |value: &f64| ((value - low) / (high - low).max(f64::MIN_POSITIVE) * 255.0) as u8;
        let payload = values.iter().map(level).collect();
        self.last = Some(Instant::now());
        let reduced = (step > 1).then(|| format!("reduced from {rows} x {columns} values"));
        let others = values.len() - finite().count();
        let others = (others > 0).then(|| format!("{others} values are not finite"));
        let note = reduced.into_iter().chain(others).collect::<Vec<_>>().join("; ");
        let axis = |label, side: u64| Axis { label, unit: "", from: 0.0, to: (side - 1) as f64 };
        let (width, height) = (columns.div_ceil(step) as usize, rows.div_ceil(step) as usize);
        let value = Axis { label: "value", unit: "", from: low, to: high };
        let (x, y) = (axis("column", columns), axis("row", rows));
        let header = Header { value, note, ..Header::new(KIND, Format::Gray8, width, height, x, y) };
        Some(Picture { header, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn painted(shape: Shape, values: &[f32]) -> Picture {
        let region = Region::host(8 + 4 * values.len()).unwrap();
        region.write(8, &values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<_>>());
        let memory = MatrixMemory::default();
        let mut painter = MatrixPainter::new(shape, Values::F32, Arc::clone(&memory));
        let stop = AtomicBool::new(false);
        assert_eq!(painter.paint(&stop), None, "it has no values yet");
        assert!(memory.set((region, 8)).is_ok());
        let picture = painter.paint(&stop).unwrap();
        assert_eq!(painter.paint(&stop), None, "the next one comes later");
        picture
    }

    #[test]
    fn values_are_levels_from_the_smallest_to_the_largest() {
        let picture = painted(Shape { rows: 2, columns: 3 }, &[-1.0, 1.0, 0.0, f32::NAN, 1.0, -1.0]);
        assert_eq!(picture.payload, [0, 255, 127, 0, 255, 0]);
        assert_eq!((picture.header.value.from, picture.header.value.to), (-1.0, 1.0));
        assert_eq!(picture.header.note, "1 values are not finite");
        assert_eq!(painted(Shape { rows: 1, columns: 1 }, &[7.0]).payload, [0]);
    }

    #[test]
    fn large_matrices_are_reduced_by_rows_and_by_values() {
        for columns in [1024, 512 * 20] {
            let values: Vec<f32> = (0..3 * columns).map(|index| (index % columns) as f32).collect();
            let picture = painted(Shape { rows: 3, columns: columns as u64 }, &values);
            let step = columns / 512;
            let expected = if step > 2 { 1 } else { 2 };
            assert_eq!((picture.header.width, picture.header.height), (512, expected));
            assert_eq!(picture.header.value.to, (columns - step) as f64);
            assert!(picture.payload.windows(2).all(|pair| pair[0] <= pair[1] || pair[0] == 255));
        }
    }
}
