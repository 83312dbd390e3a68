//! Complete shots of a recording, as pictures.

use super::super::frame::Frame;
use crate::Result;
use crate::plot::shots::{self, Place};
use shotline_store::read::Recording;
use std::path::Path;

/// The complete shots of a recording.
pub struct Shots {
    recording: Recording,
    places: Vec<Place>,
}

impl Shots {
    /// Opens a recording.
    pub fn open(path: &Path) -> Result<Self> {
        let recording = Recording::open(path)?;
        let places = shots::complete(&recording)?;
        if places.is_empty() {
            return Err(format!("expected complete shots in {}, found none", path.display()).into());
        }
        Ok(Self { recording, places })
    }

    /// Returns the number of complete shots.
    pub fn len(&self) -> u64 {
        self.places.len() as u64
    }

    /// Draws a shot over the whole frame: channels from left to right, time downwards, amplitude in dB.
    pub fn draw(&self, number: u64, frame: &mut Frame) -> Result {
        let place = *self.places.get(number as usize).ok_or("there are fewer shots")?;
        let picture = shots::picture(&self.recording, place)?;
        let (channels, samples) = (usize::from(picture.geometry.channels()), picture.geometry.samples() as usize);
        let (width, height) = frame.size();
        let (columns, rows) = (channels.min(width as usize), samples.min(height as usize));
        let levels = picture.levels(columns, rows);
        frame.place((width, height), |y, row| {
            let levels = &levels[y as usize * rows / height as usize * columns..][..columns];
            for (x, pixel) in row.chunks_exact_mut(4).enumerate() {
                let level = levels[x * columns / width as usize];
                pixel.copy_from_slice(&[level, level, level, 0]);
            }
        });
        Ok(())
    }
}
