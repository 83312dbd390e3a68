//! Events for a painter, from the tap of a run.

use super::EventPainter;
use crate::pictures::{Painter, Picture};
use crate::status::PictureInfo;
use shotline_acquire::live::Live;
use shotline_acquire::tap::{Lent, Place, Tap};
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

/// Collects the events of a request, until all have come, the time is over or `stop` is set. Nothing is pending then.
fn collect(tap: &Tap, stop: &AtomicBool) -> (Vec<Place>, Vec<Event>) {
    let begun = Instant::now();
    let (mut places, mut events) = (Vec::new(), Vec::new());
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

impl Painter for Tapped {
    fn info(&self) -> PictureInfo {
        self.painter.info()
    }

    fn paint(&mut self, stop: &AtomicBool) -> Option<Picture> {
        let live = Arc::clone(&self.live);
        let about = live.about()?;
        live.tap().request(self.painter.request(about, self.events_per_s));
        // Dropped in reverse order: the events before their places.
        let (_places, events) = collect(live.tap(), stop);
        if stop.load(Relaxed) {
            return None;
        }
        self.measure(&events);
        let mut picture = self.painter.paint(about, &events)?;
        picture.header.shot = events.last()?.number;
        Some(picture)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_acquire::tap::Request;

    #[test]
    fn a_request_that_is_not_waited_for_is_withdrawn() {
        let (tap, stop) = (Tap::default(), AtomicBool::new(true));
        tap.observe(true);
        tap.request(Request { count: 3, stride: 1, multiple: 1 });
        assert!(tap.is_pending());
        assert!(collect(&tap, &stop).1.is_empty() && !tap.is_pending());
    }
}
