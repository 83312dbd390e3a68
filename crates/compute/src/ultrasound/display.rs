//! Envelope and logarithmic compression of an image to bytes.

use realfft::num_complex::Complex;

/// Envelope that is shown in white.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reference {
    /// The maximum of each image.
    Maximum,
    /// This value, for images that can be compared with each other.
    Given(f32),
}

/// Logarithmic compression: the reference becomes 255, and `dynamic_range_db` below it and less 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Display {
    dynamic_range_db: f32,
    reference: Reference,
}

/// An invalid compression, or images of different sizes.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DisplayError {
    /// The dynamic range is out of range.
    #[error("expected a dynamic range of 1 to 200 dB, found {0}")]
    DynamicRange(f32),
    /// The reference is not a positive number.
    #[error("expected a positive reference, found {0}")]
    Reference(f32),
    /// The image is not divided into columns of equal length, or the picture has another size.
    #[error("{values} values in {columns} columns do not fill a picture of {pixels} pixels")]
    Size {
        /// Values of the image.
        values: usize,
        /// Columns of the image.
        columns: usize,
        /// Bytes of the picture.
        pixels: usize,
    },
}

impl Display {
    /// Creates a compression.
    ///
    /// # Errors
    /// If the dynamic range or the reference is out of range.
    pub fn new(dynamic_range_db: f32, reference: Reference) -> Result<Self, DisplayError> {
        if !(1.0..=200.0).contains(&dynamic_range_db) {
            return Err(DisplayError::DynamicRange(dynamic_range_db));
        }
        if let Reference::Given(value) = reference
            && !(value.is_normal() && value > 0.0)
        {
            return Err(DisplayError::Reference(value));
        }
        Ok(Self { dynamic_range_db, reference })
    }

    /// Draws an image of `columns` columns, one after another as a beamformer returns them, into a picture in rows.
    /// Returns the reference that was used; an image of zeros is black.
    ///
    /// # Errors
    /// If the sizes of image and picture differ.
    pub fn draw(&self, image: &[Complex<f32>], columns: usize, picture: &mut [u8]) -> Result<f32, DisplayError> {
        let size = DisplayError::Size { values: image.len(), columns, pixels: picture.len() };
        if columns == 0 || image.len() != picture.len() || !image.len().is_multiple_of(columns) {
            return Err(size);
        }
        let rows = image.len() / columns;
        let peak = match self.reference {
            Reference::Given(value) => value * value,
            Reference::Maximum => image.iter().map(Complex::norm_sqr).fold(0.0, f32::max),
        };
        if rows == 0 || peak.partial_cmp(&f32::MIN_POSITIVE).is_none_or(|order| order.is_lt()) {
            picture.fill(0);
            return Ok(peak.max(0.0).sqrt());
        }
        // log2 of the power, times this, is in steps of a 255th of the dynamic range.
        let scale = 255.0 * (10.0 * std::f32::consts::LOG10_2) / self.dynamic_range_db;
        let offset = 255.5 - scale * log2(peak);
        // In squares, of which the columns that are read and the rows that are written stay in the cache.
        for first in (0..rows).step_by(TILE) {
            for (column, values) in image.chunks_exact(rows).enumerate() {
                let mut levels = [0; TILE];
                let values = &values[first..rows.min(first + TILE)];
                for (level, value) in levels.iter_mut().zip(values) {
                    // The cast saturates.
                    *level = (offset + scale * log2(value.norm_sqr())) as u8;
                }
                for (row, level) in levels[..values.len()].iter().enumerate() {
                    picture[(first + row) * columns + column] = *level;
                }
            }
        }
        Ok(peak.sqrt())
    }
}

/// Rows that are drawn together.
const TILE: usize = 64;

/// Returns the binary logarithm to 10^-4, about -127 for zero. Unlike `f32::log2` it is vectorised.
#[inline]
fn log2(value: f32) -> f32 {
    let bits = value.to_bits();
    let exponent = (bits >> 23) as i32 - 127;
    // The mantissa, in 1 to 2.
    let m = f32::from_bits(bits & 0x7f_ffff | 0x3f80_0000) - 1.0;
    // Polynomial of log2(1 + m) / m, for m of 0 to 1.
    let series =
        1.442_683 + m * (-0.720_442_4 + m * (0.469_301_7 + m * (-0.303_389_7 + m * (0.146_433_6 + m * -0.034_595_21))));
    exponent as f32 + m * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_close_to_the_exact_one() {
        for step in 0..100_000 {
            let value = 1e-20_f32 * 1.001_f32.powi(step);
            if value.is_finite() {
                assert!((log2(value) - value.log2()).abs() < 1e-4, "{value}: {} {}", log2(value), value.log2());
            }
        }
    }

    #[test]
    fn levels_follow_decibels_and_the_picture_has_rows() {
        let image: Vec<_> = [1.0, 0.1, 0.01, 0.001, 0.0, 1e-6].map(|level| Complex::new(0.0, level)).to_vec();
        let mut picture = [9; 6];
        let display = Display::new(60.0, Reference::Maximum).unwrap();
        assert_eq!(display.draw(&image, 2, &mut picture), Ok(1.0));
        assert_eq!(picture, [255, 0, 170, 0, 85, 0]);
        let display = Display::new(60.0, Reference::Given(10.0)).unwrap();
        assert_eq!(display.draw(&image, 2, &mut picture), Ok(10.0));
        assert_eq!(picture, [170, 0, 85, 0, 0, 0]);
    }

    #[test]
    fn an_image_of_zeros_is_black() {
        let mut picture = [9; 4];
        let display = Display::new(60.0, Reference::Maximum).unwrap();
        assert_eq!(display.draw(&[Complex::default(); 4], 2, &mut picture), Ok(0.0));
        assert_eq!(picture, [0; 4]);
        assert_eq!(display.draw(&[], 2, &mut []), Ok(0.0));
    }

    #[test]
    fn wrong_sizes_and_ranges_are_refused() {
        let display = Display::new(60.0, Reference::Maximum).unwrap();
        for (columns, pixels) in [(0, 6), (2, 5), (4, 6)] {
            assert!(display.draw(&[Complex::default(); 6], columns, &mut vec![0; pixels]).is_err());
        }
        assert!(Display::new(f32::NAN, Reference::Maximum).is_err());
        assert!(Display::new(60.0, Reference::Given(0.0)).is_err());
        assert!(Display::new(60.0, Reference::Given(f32::NAN)).is_err());
    }
}
