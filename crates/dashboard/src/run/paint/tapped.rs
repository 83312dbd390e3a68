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
    fn measure(&mut self, newest: u64) {
        let now = Instant::now();
        if let Some((number, then)) = self.last.replace((newest, now)) {
            let seconds = (now - then).as_secs_f64().max(1e-3);
            self.events_per_s = newest.saturating_sub(number) as f64 / seconds;
        }
    }
}

/// Events that were collected and kept. Fields are dropped in order: the events before their places.
#[derive(Default)]
struct Collected {
    events: Vec<Event>,
    places: Vec<Place>,
    /// Number of the newest event, kept or not.
    newest: Option<u64>,
}

/// Collects the events of a request that `take` returns, until all have come, the time is over or `stop` is set. Nothing
/// is pending then.
fn collect(tap: &Tap, stop: &AtomicBool, mut take: impl FnMut(Event) -> Option<Event>) -> Collected {
    let begun = Instant::now();
    let mut collected = Collected::default();
    loop {
        // Read before the events: when the request is served, all of them are in the queue.
        let is_pending = tap.is_pending();
        for (event, place) in std::iter::from_fn(|| tap.pop()).map(Lent::split) {
            collected.newest = Some(event.number);
            if let Some(event) = take(event) {
                collected.events.push(event);
                collected.places.push(place);
            }
        }
        if !is_pending || stop.load(Relaxed) || begun.elapsed() > TIMEOUT {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    tap.cancel();
    collected
}

impl Painter for Tapped {
    fn info(&self) -> PictureInfo {
        self.painter.info()
    }

    fn paint(&mut self, stop: &AtomicBool) -> Option<Picture> {
        let live = Arc::clone(&self.live);
        let about = live.about()?;
        live.tap().request(self.painter.request(about, self.events_per_s));
        let collected = collect(live.tap(), stop, |event| self.painter.take(about, event));
        let newest = collected.newest.filter(|_| !stop.load(Relaxed));
        // Also without an event: what was taken of a frame must not stay for the next one.
        let picture = self.painter.paint(about, &collected.events);
        self.measure(newest?);
        let mut picture = picture?;
        picture.header.shot = newest?;
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
        assert!(collect(&tap, &stop, Some).newest.is_none() && !tap.is_pending());
    }
}
