//! Statistics in the top rows of the frames.

use super::args::STATISTICS_ROWS;
use crate::Result;
use crate::plot;
use plotters::backend::BGRXPixel;
use plotters::prelude::*;
use shotline_display::{FrameBuffer, PIXEL_BYTES};
use std::time::{Duration, Instant};

/// Size of the letters in pixels.
const LETTERS: u32 = 20;
/// Time between two texts: drawing letters takes longer than copying them.
const INTERVAL: Duration = Duration::from_millis(250);

/// The statistics as pixels, which are drawn a few times a second and copied into every frame.
pub struct StatisticsBar {
    width: u32,
    pixels: Vec<u8>,
    /// Number of the text, from 1.
    text: u64,
    drawn: Option<Instant>,
    /// Number of the text that each frame buffer has.
    has: Vec<u64>,
}

impl StatisticsBar {
    /// Creates the bar for frames of this width in this number of buffers.
    pub fn new(width: u32, buffers: usize) -> Self {
        let bytes = width as usize * STATISTICS_ROWS as usize * PIXEL_BYTES;
        Self { width, pixels: vec![0; bytes], text: 1, drawn: None, has: vec![0; buffers] }
    }

    /// Draws a new text, if the last one is old enough.
    pub fn update(&mut self, text: impl FnOnce() -> String) -> Result {
        let now = Instant::now();
        if self.drawn.is_some_and(|drawn| now - drawn < INTERVAL) {
            return Ok(());
        }
        self.drawn = Some(now);
        self.text += 1;
        plot::register_letters()?;
        let size = (self.width, STATISTICS_ROWS);
        let root = BitMapBackend::<BGRXPixel>::with_buffer_and_format(&mut self.pixels, size)?.into_drawing_area();
        root.fill(&BLACK)?;
        let style = ("sans-serif", LETTERS).into_font().color(&WHITE);
        root.draw_text(&text(), &style, (8, (STATISTICS_ROWS - LETTERS) as i32 / 2))?;
        root.present()?;
        Ok(())
    }

    /// Copies the text into a frame buffer, unless it has it.
    pub fn copy_to(&mut self, index: usize, buffer: &FrameBuffer) {
        if self.has[index] == self.text {
            return;
        }
        self.has[index] = self.text;
        for (number, row) in self.pixels.chunks(self.width as usize * PIXEL_BYTES).enumerate() {
            buffer.region.write(buffer.offset + number * buffer.stride, row);
        }
    }
}
