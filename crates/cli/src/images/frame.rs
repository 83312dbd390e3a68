//! An image as it is in a frame buffer.

use shotline_display::{Mode, PIXEL_BYTES};

/// Rows of pixels in the layout of a frame buffer.
pub struct Frame {
    width: usize,
    height: usize,
    stride: usize,
    bytes: Vec<u8>,
    row: Vec<u8>,
}

impl Frame {
    /// Creates a black frame.
    pub fn new(mode: Mode, stride: usize) -> Self {
        let (width, height) = (mode.width as usize, mode.height as usize);
        Self { width, height, stride, bytes: vec![0; stride * height], row: Vec::new() }
    }

    /// Returns width and height in pixels.
    pub fn size(&self) -> (u32, u32) {
        (self.width as u32, self.height as u32)
    }

    /// Returns the rows, each with its gap.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Places an image of this width and height in the middle, on black. What does not fit is cut off on all sides. `fill` fills
    /// a row of the image.
    pub fn place(&mut self, (width, height): (u32, u32), mut fill: impl FnMut(u32, &mut [u8])) {
        let (width, height) = (width as usize, height as usize);
        if (width, height) != (self.width, self.height) {
            self.bytes.fill(0);
        }
        self.row.resize(width * PIXEL_BYTES, 0);
        let (columns, rows) = (width.min(self.width), height.min(self.height));
        let middle = |frame: usize, image: usize| (frame.saturating_sub(image) / 2, image.saturating_sub(frame) / 2);
        let ((left, cut_left), (top, cut_top)) = (middle(self.width, width), middle(self.height, height));
        for row in 0..rows {
            fill((cut_top + row) as u32, &mut self.row);
            let to = (top + row) * self.stride + left * PIXEL_BYTES;
            let from = &self.row[cut_left * PIXEL_BYTES..][..columns * PIXEL_BYTES];
            self.bytes[to..to + from.len()].copy_from_slice(from);
        }
    }

    /// Returns the CRC-32 of the rows from this one on, each without its gap.
    pub fn crc32(&self, from_row: u32) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        for row in self.bytes.chunks(self.stride).skip(from_row as usize) {
            crc.update(&row[..self.width * PIXEL_BYTES]);
        }
        crc.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pixels of a frame of this size after an image was placed whose pixels are their row and column.
    fn placed(width: u32, height: u32, image: (u32, u32)) -> Vec<Vec<(u8, u8)>> {
        let mode = Mode { width, height, refresh_mhz: 1 };
        let mut frame = Frame::new(mode, width as usize * 4 + 8);
        frame.place((1, 1), |_, row| row.fill(9));
        frame.place(image, |number, row| {
            row.chunks_exact_mut(4)
                .enumerate()
                .for_each(|(column, pixel)| pixel.copy_from_slice(&[number as u8 + 1, column as u8 + 1, 0, 0]));
        });
        let row = |row: &[u8]| row[..width as usize * 4].chunks_exact(4).map(|pixel| (pixel[0], pixel[1])).collect();
        frame.bytes().chunks(width as usize * 4 + 8).map(row).collect()
    }

    #[test]
    fn smaller_image_is_centred_on_black() {
        let (o, black) = ((0, 0), vec![(0, 0); 4]);
        let image = [vec![o, (1, 1), (1, 2), o], vec![o, (2, 1), (2, 2), o]];
        assert_eq!(placed(4, 5, (2, 2)), [black.clone(), image[0].clone(), image[1].clone(), black.clone(), black]);
    }

    #[test]
    fn larger_image_is_cut_off_on_all_sides() {
        assert_eq!(placed(2, 1, (4, 3)), [[(2, 2), (2, 3)]]);
        assert_eq!(placed(2, 2, (2, 2)), [[(1, 1), (1, 2)], [(2, 1), (2, 2)]]);
    }

    #[test]
    fn checksum_is_of_the_pixels_without_gaps() {
        let mode = Mode { width: 2, height: 3, refresh_mhz: 1 };
        let [tight, wide] = [8, 24].map(|stride| {
            let mut frame = Frame::new(mode, stride);
            frame.place((2, 3), |number, row| row.fill(number as u8 + 1));
            frame
        });
        assert_eq!((tight.crc32(1), wide.crc32(0)), (wide.crc32(1), tight.crc32(0)));
        assert_eq!(tight.crc32(1), crc32fast::hash(&[[2; 8], [3; 8]].concat()));
    }
}
