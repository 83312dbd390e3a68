//! Heat maps of a matrix: a picture, and one of letters for the terminal.

use super::source::Shape;
use crate::Result;
use crate::plot::{png, title};
use plotters::prelude::*;
use std::fmt::Write as _;

/// Maximum width and height of a map in pixels.
const PIXELS: u64 = 512;
/// Width of the map on a terminal in characters, which are twice as high as wide.
const LETTERS: usize = 72;
/// Rows of the matrix whose mean is a row of the map.
const SAMPLED_ROWS: u64 = 8;
/// Letters from cold to hot.
const SHADES: &[u8] = b" .:-=+*#%@";
/// Colours from cold to hot.
const COLOURS: [[f64; 3]; 6] = [
    [0.0, 0.0, 16.0],
    [70.0, 15.0, 110.0],
    [160.0, 45.0, 95.0],
    [225.0, 90.0, 50.0],
    [250.0, 175.0, 40.0],
    [252.0, 255.0, 190.0],
];
/// Colour of a place that is not finite.
const NOT_FINITE: RGBColor = RGBColor(0, 200, 255);

/// Means of parts of a matrix.
pub struct HeatMap {
    width: usize,
    height: usize,
    means: Vec<f64>,
}

impl HeatMap {
    /// Reduces a matrix, whose rows `read` returns.
    pub fn new(shape: Shape, mut read: impl FnMut(u64, &mut [f64]) -> Result) -> Result<Self> {
        let scale = shape.rows.max(shape.columns).div_ceil(PIXELS).max(1);
        let (height, width) = (shape.rows.div_ceil(scale), shape.columns.div_ceil(scale) as usize);
        let mut means = Vec::new();
        let mut row = vec![0.0; shape.columns as usize];
        for first in (0..height).map(|index| index * scale) {
            let count = scale.min(shape.rows - first);
            let sampled = count.min(SAMPLED_ROWS);
            let mut sums = vec![0.0; width];
            for index in 0..sampled {
                read(first + index * count / sampled, &mut row)?;
                for (sum, values) in sums.iter_mut().zip(row.chunks(scale as usize)) {
                    *sum += values.iter().sum::<f64>() / values.len() as f64;
                }
            }
            means.extend(sums.into_iter().map(|sum| sum / sampled as f64));
        }
        Ok(Self { width, height: height as usize, means })
    }

    /// Returns the smallest and the largest finite value.
    pub fn range(&self) -> (f64, f64) {
        let finite = || self.means.iter().copied().filter(|value| value.is_finite());
        let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
        if low <= high { (low, high) } else { (0.0, 0.0) }
    }

    /// Returns the map in letters, with a line for the scale.
    pub fn letters(&self, (low, high): (f64, f64)) -> String {
        let width = self.width.min(LETTERS);
        let height = (self.height * width / self.width / 2).clamp(1, 2 * LETTERS);
        let mut text = String::new();
        for row in 0..height {
            text.push_str("  ");
            for column in 0..width {
                let value = self.means[(row * self.height / height) * self.width + column * self.width / width];
                let shade = (part(value, low, high) * (SHADES.len() - 1) as f64).round() as usize;
                text.push(if value.is_finite() { char::from(SHADES[shade]) } else { '?' });
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        let _ = write!(text, "  '{}' {low:.3} to '{}' {high:.3}", char::from(SHADES[0]), char::from(SHADES[9]));
        text
    }

    fn colour(&self, x: usize, y: usize, (low, high): (f64, f64)) -> RGBColor {
        let value = self.means[y * self.width + x];
        if !value.is_finite() {
            return NOT_FINITE;
        }
        let at = part(value, low, high) * (COLOURS.len() - 1) as f64;
        let lower = (at as usize).min(COLOURS.len() - 2);
        let mix = |index: usize| {
            let [a, b] = [COLOURS[lower][index], COLOURS[lower + 1][index]];
            (a + (b - a) * (at - lower as f64)) as u8
        };
        RGBColor(mix(0), mix(1), mix(2))
    }
}

/// Returns where a value is between two others, from 0 to 1.
fn part(value: f64, low: f64, high: f64) -> f64 {
    if high > low { ((value - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 }
}

/// Draws two maps of one matrix beside each other, with the same colours. Returns the bytes of a PNG file.
pub fn draw([before, after]: [&HeatMap; 2], steps: u64) -> Result<Vec<u8>> {
    let (a, b) = (before.range(), after.range());
    let range = (a.0.min(b.0), a.1.max(b.1));
    let zoom = (PIXELS as usize / before.width.max(before.height)).max(1);
    let (width, height) = ((before.width * zoom) as u32, (before.height * zoom) as u32);
    let panel = width.max(200);
    png((2 * panel + 60, height + 80), |root| {
        let names = ["before".to_owned(), format!("after {steps} steps")];
        for (map, (index, name)) in [before, after].into_iter().zip((0_u32..).zip(names)) {
            let left = (20 + index * (panel + 20)) as i32;
            root.draw_text(&name, &title(18), (left, 14))?;
            for (x, y) in (0..width).flat_map(|x| (0..height).map(move |y| (x, y))) {
                let colour = map.colour(x as usize / zoom, y as usize / zoom, range);
                root.draw_pixel((left + x as i32, 40 + y as i32), &colour)?;
            }
        }
        let words = format!("black {:.3} to white {:.3}", range.0, range.1);
        root.draw_text(&words, &title(14), (20, height as i32 + 52))?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(rows: u64, columns: u64, value: impl Fn(u64, u64) -> f64) -> HeatMap {
        let read = |row, to: &mut [f64]| {
            to.iter_mut().zip(0..).for_each(|(to, column)| *to = value(row, column));
            Ok(())
        };
        HeatMap::new(Shape { rows, columns }, read).unwrap()
    }

    #[test]
    fn maps_of_any_shape_are_reduced_to_their_means() {
        let large = map(2048, 1500, |row, _| f64::from(row >= 1024));
        assert_eq!((large.width, large.height, large.range()), (375, 512, (0.0, 1.0)));
        assert!(large.means[..375 * 256].iter().all(|mean| *mean == 0.0));
        for (rows, columns) in [(1, 1), (1, 100_000), (100_000, 1), (3, 7)] {
            let flat = map(rows, columns, |_, _| 2.0);
            assert_eq!(flat.range(), (2.0, 2.0));
            assert!(flat.letters(flat.range()).contains("'@' 2.000"), "{rows} x {columns}");
        }
    }

    #[test]
    fn values_that_are_not_finite_are_marked() {
        let map = map(64, 64, |row, column| if row == column { f64::NAN } else { column as f64 });
        let text = map.letters(map.range());
        assert!(text.contains('?') && text.contains("' ' 0.000 to '@' 63.000"), "{text}");
        assert_eq!((map.colour(5, 5, map.range()), map.colour(0, 1, map.range())), (NOT_FINITE, RGBColor(0, 0, 16)));
    }
}
