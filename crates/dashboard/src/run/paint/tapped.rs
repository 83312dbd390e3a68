//! Events for a painter, from the tap of a run.

use super::EventPainter;
use crate::pictures::{Painter, Picture};
use crate::status::PictureInfo;
use shotline_acquire::live::Live;
use shotline_acquire::tap::{Lent, Place};
use shotline_store::shot::Event;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Maximum time for the events of a picture. Then it is painted with those that came.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Interval at which events are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A painter of events.
pub(super) struct Tapped {
    live: Arc<Live>,
    painter: Box<dyn EventPainter>,
    /// Number of the last event, and when it was seen.
    last: Option<(u64, Instant)>,
    events_per_s: f64,
}

impl Tapped {
    pub(super) fn new(live: Arc<Live>, painter: Box<dyn EventPainter>) -> Self {
        Self { live, painter, last: None, events_per_s: 0.0 }
    }

    /// Collects the events of a request, until all have come, the time is over or `stop` is set.
    fn collect(&self, stop: &AtomicBool) -> (Vec<Place>, Vec<Event>) {
        let (tap, begun) = (self.live.tap(), Instant::now());
        let (mut events, mut places) = (Vec::new(), Vec::new());
        loop {
            // Read before the events: when the request is served, all of them are in the queue.
            let is_pending = tap.is_pending();
            for (event, place) in std::iter::from_fn(|| tap.pop()).map(Lent::split) {
                events.push(event);
                places.push(place);
            }
            if !is_pending || stop.load(Relaxed) || begun.elapsed() > TIMEOUT {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        tap.cancel();
        (places, events)
    }

    /// Measures the rate of events by their numbers.
    fn measure(&mut self, events: &[Event]) {
        let Some(event) = events.last() else { return };
        let now = Instant::now();
        if let Some((number, then)) = self.last.replace((event.number, now)) {
            let seconds = (now - then).as_secs_f64().max(1e-3);
            self.events_per_s = event.number.saturating_sub(number) as f64 / seconds;
        }
    }
}

impl Painter for Tapped {
    fn info(&self) -> PictureInfo {
        self.painter.info()
    }

    fn paint(&mut self, stop: &AtomicBool) -> Option<Picture> {
        let live = Arc::clone(&self.live);
        let about = live.about()?;
        live.tap().request(self.painter.request(about, self.events_per_s));
        // Dropped in reverse order: the events before their places.
        let (_places, events) = self.collect(stop);
        self.measure(&events);
        let mut picture = self.painter.paint(about, &events)?;
        picture.header.shot = events.last()?.number;
        Some(picture)
    }
}
