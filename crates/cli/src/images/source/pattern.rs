//! A moving test pattern, in which every pixel depends on its place and the number of the image.

use super::super::frame::Frame;

/// Side of the squares in pixels.
const SQUARE: u32 = 64;

/// Draws an image of the pattern: blue rises along the row and green along the column, and both move; red is a chessboard with
/// a brightness of its own in each image.
pub fn draw(number: u64, frame: &mut Frame) {
    let size = frame.size();
    let n = number as u32;
    frame.place(size, |y, row| {
        for (x, pixel) in (0_u32..).zip(row.chunks_exact_mut(4)) {
            let blue = x.wrapping_add(n.wrapping_mul(4)) as u8;
            let green = y.wrapping_add(n.wrapping_mul(2)) as u8;
            let red = if (x / SQUARE + y / SQUARE).is_multiple_of(2) { n as u8 } else { (255 - n % 256) as u8 };
            pixel.copy_from_slice(&[blue, green, red, 0]);
        }
    });
}
