//! Lets another thread look at some of a run's events while they are received, at no cost to the run.
//!
//! An observer requests events; the receive thread hands it references to their buffers, without a copy, a lock or a
//! wait. The buffers are the pool's, so only as many are lent at a time as the run has set aside for that: an observer that
//! keeps them gets fewer events, and the run loses nothing.

use crossbeam_queue::ArrayQueue;
use shotline_store::shot::{Event, Shot};
use shotline_wire::shot::Presence;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// Maximum number of events of a request.
pub const MAX_EVENTS: u16 = 64;
/// Maximum stride of a request.
pub const MAX_STRIDE: u32 = 1 << 24;
/// Number of newest shots whose presence is kept.
const MARKS: usize = 512;

/// Events that an observer wants: `count` events whose numbers are `stride` apart, the first with a number that is a
/// multiple of `multiple`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number of events, at most [`MAX_EVENTS`].
    pub count: u16,
    /// Distance of their numbers, at least 1 and below [`MAX_STRIDE`].
    pub stride: u32,
    /// The first number is a multiple of this value, at least 1 and below [`MAX_STRIDE`].
    pub multiple: u32,
}

impl Request {
    /// Packs the request into a word that is not 0.
    fn pack(self) -> u64 {
        let part = |value: u32| u64::from(value.clamp(1, MAX_STRIDE - 1));
        u64::from(self.count.clamp(1, MAX_EVENTS)) << 48 | part(self.stride) << 24 | part(self.multiple)
    }

    fn unpack(word: u64) -> Self {
        let part = |shift: u32| (word >> shift) as u32 & (MAX_STRIDE - 1);
        Self { count: (word >> 48) as u16, stride: part(24), multiple: part(0) }
    }
}

/// Presence of a shot's packets, as coarse as a picture needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShotMark {
    /// Index of the link.
    pub link: u8,
    /// Number of the shot.
    pub number: u64,
    /// Every byte arrived and the trailer is valid.
    pub complete: bool,
    /// Bit `i` is set if all packets of the i-th of 64 equal parts of the shot have arrived.
    pub parts: u64,
}

impl ShotMark {
    fn of(link: u8, shot: &Shot) -> Self {
        let presence = &shot.meta.presence;
        let parts = if presence.is_complete() { u64::MAX } else { parts(presence) };
        Self { link, number: shot.meta.number, complete: shot.meta.is_complete(), parts }
    }
}

/// Returns a bit for each of 64 parts of a shot. Shots of fewer packets have parts without a packet, which share the bit
/// of the packet they lie in.
fn parts(presence: &Presence) -> u64 {
    let packets = presence.packets().max(1);
    (0..64).fold(0, |bits, part| {
        let first = part * packets / 64;
        let end = ((part + 1) * packets / 64).max(first + 1);
        bits | u64::from((first..end).all(|index| presence.contains(index))) << part
    })
}

/// An event whose buffers are lent.
#[derive(Debug)]
pub struct Lent {
    // Dropped before the place, which is free only when the buffers are back.
    event: Event,
    place: Place,
}

/// A place among the events that are lent. It is free when this value is dropped.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

impl Lent {
    /// Returns the event, and its place, which must be dropped after it.
    pub fn split(self) -> (Event, Place) {
        (self.event, self.place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Release);
    }
}

/// Place where events pass from the receive thread to an observer.
#[derive(Debug)]
pub struct Tap {
    /// Set while there is an observer.
    observed: AtomicBool,
    /// The request that the receive thread has not taken yet, packed; 0: none.
    request: AtomicU64,
    /// Set while the receive thread works on a request.
    serving: AtomicBool,
    events: ArrayQueue<Lent>,
    /// Number of events that are lent.
    lent: Arc<AtomicUsize>,
    marks: ArrayQueue<ShotMark>,
}

impl Default for Tap {
    fn default() -> Self {
        Self {
            observed: AtomicBool::new(false),
            request: AtomicU64::new(0),
            serving: AtomicBool::new(false),
            events: ArrayQueue::new(MAX_EVENTS.into()),
            lent: Arc::default(),
            marks: ArrayQueue::new(MARKS),
        }
    }
}

impl Tap {
    /// Sets whether there is an observer. Without one nothing is handed out.
    pub fn observe(&self, observed: bool) {
        self.observed.store(observed, Relaxed);
        if !observed {
            self.cancel();
        }
    }
    /// Returns `true` if there is an observer.
    pub fn is_observed(&self) -> bool {
        self.observed.load(Relaxed)
    }

    /// Requests events, in place of an earlier request that was not begun. Events that are there already are dropped.
    pub fn request(&self, request: Request) {
        while self.events.pop().is_some() {}
        self.request.store(request.pack(), Relaxed);
    }
    /// Withdraws the request, and returns the buffers of events that were not taken.
    pub fn cancel(&self) {
        self.request.store(0, Relaxed);
        while self.events.pop().is_some() {}
    }
    /// Returns `true` while events of a request are still to come.
    pub fn is_pending(&self) -> bool {
        self.request.load(Acquire) != 0 || self.serving.load(Acquire)
    }
    /// Returns the next event of the request. Its buffers are the pool's: drop it soon.
    pub fn pop(&self) -> Option<Lent> {
        self.events.pop()
    }
    /// Returns the presence of the next shot. Only the newest ones are kept.
    pub fn pop_mark(&self) -> Option<ShotMark> {
        self.marks.pop()
    }
}

/// The receive thread's side of a [`Tap`].
#[derive(Debug)]
pub(crate) struct TapServer {
    current: Option<Request>,
    /// Number of the next event; none: the first of the request is still to come.
    next: Option<u64>,
    /// Maximum number of events that are lent at a time.
    max_lent: usize,
}

impl TapServer {
    /// Creates the side of a run that has set the buffers of this many events aside.
    pub(crate) fn new(max_lent: usize) -> Self {
        Self { current: None, next: None, max_lent }
    }

    /// Shows an event to the observer, if there is one.
    pub(crate) fn show(&mut self, tap: &Tap, event: &Event) {
        if !tap.is_observed() {
            return;
        }
        for (link, shot) in event.shots.iter().enumerate() {
            if let Some(shot) = shot {
                tap.marks.force_push(ShotMark::of(link as u8, shot));
            }
        }
        if tap.request.load(Relaxed) != 0 {
            // Set first, so that a request is pending without a gap.
            tap.serving.store(true, Release);
            let request = tap.request.swap(0, AcqRel);
            (self.current, self.next) = ((request != 0).then(|| Request::unpack(request)), None);
            tap.serving.store(self.current.is_some(), Release);
        }
        let Some(request) = &mut self.current else { return };
        let wanted = match self.next {
            None => event.number.is_multiple_of(request.multiple.into()),
            Some(next) => event.number >= next,
        };
        if !wanted {
            return;
        }
        // Only this thread adds to the number. It is read after the buffers of dropped events are back.
        if tap.lent.load(Acquire) < self.max_lent {
            tap.lent.fetch_add(1, Relaxed);
            // The queue has space for every event of a request; what does not fit is dropped here, with its place.
            let _ = tap.events.push(Lent { event: event.clone(), place: Place(Arc::clone(&tap.lent)) });
        }
        self.next = Some(event.number + u64::from(request.stride));
        request.count -= 1;
        if request.count == 0 {
            self.current = None;
            tap.serving.store(false, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::{Pool, Registrar};
    use shotline_store::shot::ShotMeta;
    use shotline_wire::shot::DropCounters;
    use std::sync::Arc;

    fn event(pool: &Arc<Pool>, number: u64) -> Event {
        let mut presence = Presence::empty(4);
        (0..4).filter(|index| number != 5 || *index != 2).for_each(|index| assert!(presence.insert(index)));
        let meta = ShotMeta {
            stream: 0,
            number,
            stamp_tai_ns: 0,
            arrived_tai_ns: 0,
            completed_tai_ns: 0,
            flags: 0,
            record_good: true,
            valid_bytes: 0,
            presence: Arc::new(presence),
            drops: DropCounters::default(),
        };
        Event { number, shots: [Some(Shot { meta, buffer: pool.take().unwrap() })].into_iter().collect() }
    }

    /// Shows events 0 to 19 and returns the numbers that the observer gets.
    fn seen(tap: &Tap, max_lent: usize) -> Vec<u64> {
        let pool = Pool::new(&mut Registrar::new(), 32, 8).unwrap();
        let mut server = TapServer::new(max_lent);
        (0..20).for_each(|number| server.show(tap, &event(&pool, number)));
        let seen: Vec<_> = std::iter::from_fn(|| tap.pop()).map(|lent| lent.event.number).collect();
        assert_eq!((pool.available(), tap.lent.load(Relaxed)), (32, 0), "every buffer is back");
        seen
    }

    #[test]
    fn requested_events_are_seen_without_a_copy() {
        let tap = Tap::default();
        tap.observe(true);
        tap.request(Request { count: 3, stride: 2, multiple: 7 });
        assert!(tap.is_pending());
        assert_eq!(seen(&tap, 32), [0, 2, 4]);
        assert!(!tap.is_pending());
        assert!(seen(&tap, 32).is_empty(), "a request is served once");
    }

    #[test]
    fn no_more_is_lent_than_was_set_aside() {
        let tap = Tap::default();
        tap.observe(true);
        tap.request(Request { count: 9, stride: 1, multiple: 1 });
        assert_eq!(seen(&tap, 4), [0, 1, 2, 3]);
        tap.request(Request { count: 9, stride: 1, multiple: 1 });
        assert!(seen(&tap, 0).is_empty());
    }

    #[test]
    fn events_that_an_observer_keeps_count_as_lent() {
        let (tap, pool) = (Tap::default(), Pool::new(&mut Registrar::new(), 32, 8).unwrap());
        tap.observe(true);
        let mut server = TapServer::new(2);
        tap.request(Request { count: 20, stride: 1, multiple: 1 });
        server.show(&tap, &event(&pool, 0));
        let (kept, place) = tap.pop().unwrap().split();
        (1..5).for_each(|number| server.show(&tap, &event(&pool, number)));
        assert_eq!(tap.pop().map(|lent| lent.event.number), Some(1), "the second place");
        assert!(tap.pop().is_none());
        drop((kept, place));
        server.show(&tap, &event(&pool, 5));
        assert_eq!(tap.pop().map(|lent| lent.event.number), Some(5));
        assert_eq!(pool.available(), 32);
    }

    #[test]
    fn without_an_observer_nothing_is_handed_out() {
        let tap = Tap::default();
        tap.request(Request { count: 3, stride: 1, multiple: 1 });
        assert!(seen(&tap, 32).is_empty() && tap.pop_mark().is_none());
        tap.observe(true);
        tap.request(Request { count: 64, stride: 1, multiple: 1 });
        assert_eq!(seen(&tap, 1), [0]);
        tap.observe(false);
        assert!(!std::iter::from_fn(|| tap.pop_mark()).any(|mark| mark.complete && mark.number == 5));
    }

    #[test]
    fn marks_show_the_missing_part_of_a_shot() {
        let tap = Tap::default();
        tap.observe(true);
        assert!(seen(&tap, 4).is_empty());
        let marks: Vec<_> = std::iter::from_fn(|| tap.pop_mark()).collect();
        assert_eq!(marks.len(), 20);
        assert_eq!((marks[4].complete, marks[4].parts), (true, u64::MAX));
        assert_eq!((marks[5].complete, marks[5].parts), (false, !(0xFFFF << 32)), "packet 2 of 4");
    }

    #[test]
    fn requests_are_packed_without_loss_and_clamped() {
        for request in [
            Request { count: 1, stride: 1, multiple: 1 },
            Request { count: MAX_EVENTS, stride: MAX_STRIDE - 1, multiple: 12345 },
        ] {
            assert_eq!(Request::unpack(request.pack()), request);
        }
        let clamped = Request::unpack(Request { count: 0, stride: 0, multiple: u32::MAX }.pack());
        assert_eq!(clamped, Request { count: 1, stride: 1, multiple: MAX_STRIDE - 1 });
    }
}
