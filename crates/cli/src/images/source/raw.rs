//! Frames in a file without a header.

use super::super::args::{RawFormat, RawPixels};
use super::super::frame::Frame;
use crate::Result;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// A file of raw frames.
pub struct RawFrames {
    file: File,
    path: PathBuf,
    format: RawFormat,
    count: u64,
    bytes: Vec<u8>,
}

impl RawFrames {
    /// Opens a file of whole frames.
    pub fn open(path: &Path, format: RawFormat) -> Result<Self> {
        let failed = |error| format!("cannot read {}: {error}", path.display());
        let file = File::open(path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        let frame = format.width as usize * format.height as usize * format.pixels.bytes();
        let count = len / frame as u64;
        if count == 0 || !len.is_multiple_of(frame as u64) {
            return Err(
                format!("expected whole frames of {frame} bytes in {}, found {len} bytes", path.display()).into()
            );
        }
        Ok(Self { file, path: path.into(), format, count, bytes: vec![0; frame] })
    }

    /// Returns the number of frames.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Returns the size of a frame in pixels.
    pub fn size(&self) -> (u32, u32) {
        (self.format.width, self.format.height)
    }

    /// Draws a frame. Returns its size.
    pub fn draw(&mut self, number: u64, frame: &mut Frame) -> Result<(u32, u32)> {
        let offset = number * self.bytes.len() as u64;
        let read = self.file.read_exact_at(&mut self.bytes, offset);
        read.map_err(|error| format!("cannot read {}: {error}", self.path.display()))?;
        let (size, pixels, each) = (self.size(), self.format.pixels, self.format.pixels.bytes());
        let row_bytes = size.0 as usize * each;
        frame.place(size, |y, row| {
            let from = &self.bytes[y as usize * row_bytes..][..row_bytes];
            for (to, from) in row.chunks_exact_mut(4).zip(from.chunks_exact(each)) {
                to.copy_from_slice(&match pixels {
                    RawPixels::Bgrx => [from[0], from[1], from[2], 0],
                    RawPixels::Rgb => [from[2], from[1], from[0], 0],
                    RawPixels::Gray8 => [from[0], from[0], from[0], 0],
                    RawPixels::Gray16 => [from[1], from[1], from[1], 0],
                });
            }
        });
        Ok(size)
    }
}
