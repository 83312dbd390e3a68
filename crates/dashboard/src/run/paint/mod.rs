//! Pictures of a run's events: one file for each kind.

mod bmode;
mod channels;
mod mmode;
mod rf;
mod tapped;

use crate::pictures::Painter;
use crate::pictures::Picture;
use crate::status::PictureInfo;
use shotline_acquire::live::{About, Live};
use shotline_acquire::tap::Request;
use shotline_compute::ultrasound::Array;
use shotline_store::shot::{Event, Shot};
use std::sync::Arc;
use tapped::Tapped;

/// Paints one kind of picture of events.
trait EventPainter: Send {
    /// Returns the kind.
    fn info(&self) -> PictureInfo;
    /// Returns the events of the next picture. `events_per_s`: the current rate, 0 if it is unknown.
    fn request(&self, about: &About, events_per_s: f64) -> Request;
    /// Paints events; none if they show nothing. The events are in the order of their numbers, some may be missing.
    fn paint(&mut self, about: &About, events: &[Event]) -> Option<Picture>;
}

/// Returns the pictures of an ultrasound probe's shots.
pub fn ultrasound(live: &Arc<Live>, array: &Array) -> Vec<Box<dyn Painter>> {
    let tapped =
        |painter: Box<dyn EventPainter>| -> Box<dyn Painter> { Box::new(Tapped::new(Arc::clone(live), painter)) };
    vec![
        tapped(Box::new(bmode::BMode::new(array.clone()))),
        tapped(Box::new(mmode::MMode::new(array.clone()))),
        tapped(Box::new(channels::Channels::default())),
        tapped(Box::new(rf::Traces::default())),
    ]
}

/// Sample bytes of shots, copied out of their buffers.
#[derive(Default)]
struct Samples {
    bytes: Vec<u8>,
}

impl Samples {
    /// Returns the sample bytes of a shot.
    fn of(&mut self, about: &About, shot: &Shot) -> &[u8] {
        let len = about.geometry.sample_bytes().min(shot.buffer.len());
        self.bytes.resize(len as usize, 0);
        shot.buffer.read(0, &mut self.bytes);
        &self.bytes
    }
}

/// Returns the number of links of an event.
fn links(event: &Event) -> usize {
    event.shots.iter().flatten().count()
}

/// Says which part of the data is missing; empty if none is.
fn missing(found: usize, expected: usize, what: &str) -> String {
    if found == expected { String::new() } else { format!("{found} of {expected} {what}") }
}
