//! Pictures of a run's events: one file for each kind.

mod bmode;
mod channels;
mod frame;
mod iq;
mod mmode;
mod notes;
mod on_array;
mod part;
mod registry;
mod rf;
mod signal;
mod spectrum;
mod tapped;
mod waterfall;

#[cfg(test)]
mod tests;

pub use on_array::ArrayChoice;
pub use registry::{PaintOptions, PictureSet};

use crate::pictures::Picture;
use crate::status::PictureInfo;
use shotline_acquire::live::About;
use shotline_acquire::tap::Request;
use shotline_store::shot::Event;

/// Paints one kind of picture of events.
trait EventPainter: Send {
    /// Returns the kind.
    fn info(&self) -> PictureInfo;
    /// Returns the events of the next picture. `events_per_s`: the current rate, 0 if it is unknown.
    fn request(&mut self, about: &About, events_per_s: f64) -> Request;
    /// Takes an event as soon as it has come. Returns it if its buffers are needed for painting: they are lent, and only a
    /// few are at a time.
    fn take(&mut self, _about: &About, event: Event) -> Option<Event> {
        Some(event)
    }
    /// Paints events; none if they show nothing. The events are in the order of their numbers, some may be missing.
    fn paint(&mut self, about: &About, events: &[Event]) -> Option<Picture>;
}
