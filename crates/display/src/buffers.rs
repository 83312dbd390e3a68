//! Frame buffers and who uses them.

use crate::{DisplayError, Mode, PIXEL_BYTES};
use shotline_memory::Region;
use std::sync::Arc;

/// Alignment of a frame buffer in its region, in bytes: a page.
const ALIGNMENT: usize = 4096;

/// A frame buffer: rows of pixels in a region.
#[derive(Clone, Debug)]
pub struct FrameBuffer {
    /// The region.
    pub region: Arc<Region>,
    /// Offset of the first row in the region, in bytes.
    pub offset: usize,
    /// Distance of two rows in bytes.
    pub stride: usize,
}

/// The frame buffers of a display, and which of them it uses.
#[derive(Debug)]
pub(crate) struct Buffers {
    all: Vec<FrameBuffer>,
    in_use: Vec<bool>,
}

impl Buffers {
    pub(crate) fn new(all: Vec<FrameBuffer>) -> Self {
        let in_use = vec![false; all.len()];
        Self { all, in_use }
    }

    /// Allocates shared memory for `count` frame buffers without gaps between their rows.
    pub(crate) fn shared(mode: Mode, count: u32) -> Result<Self, DisplayError> {
        let stride = mode.width as usize * PIXEL_BYTES;
        let each = (stride * mode.height as usize).next_multiple_of(ALIGNMENT);
        let region = Region::memfd("shotline-frames", each * count as usize)?;
        let buffer = |index| FrameBuffer { region: Arc::clone(&region), offset: index * each, stride };
        Ok(Self::new((0..count as usize).map(buffer).collect()))
    }

    pub(crate) fn all(&self) -> &[FrameBuffer] {
        &self.all
    }

    /// Marks a buffer as used by the display.
    pub(crate) fn acquire(&mut self, buffer: usize) -> Result<(), DisplayError> {
        match self.in_use.get_mut(buffer) {
            None => Err(DisplayError::NoSuchBuffer { buffer, count: self.all.len() }),
            Some(true) => Err(DisplayError::BufferInUse { buffer }),
            Some(in_use) => {
                *in_use = true;
                Ok(())
            }
        }
    }

    /// Marks a buffer as no longer used by the display. Returns `false` if it was not used.
    pub(crate) fn release(&mut self, buffer: usize) -> bool {
        self.in_use.get_mut(buffer).is_some_and(std::mem::take)
    }
}
