//! Lets another thread look at some of a run's events while they are received, at no cost to the run.
//!
//! An observer requests events; the receive thread hands it references to their buffers, without a copy, a lock or a
//! wait. The buffers are the pool's, so only as many are lent at a time as the run has set aside for that: an observer that
//! keeps them gets fewer events, and the run loses nothing.

mod marks;

use crossbeam_queue::ArrayQueue;
use marks::Marks;
pub use marks::ShotMark;
use shotline_store::shot::Event;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};

/// Maximum number of events of a request.
pub const MAX_EVENTS: u16 = 64;
/// Maximum number of events that are lent at a time. The queue is twice as long: so the receive thread never waits for an
/// observer that was suspended while it took an event.
const MAX_LENT: usize = 32;
/// Word that withdraws a request, whether it has begun or not.
const WITHDRAWN: u64 = u64::MAX;
/// Maximum stride of a request.
pub const MAX_STRIDE: u32 = 1 << 24;

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
    /// Packs the request and its generation into a word that is neither 0 nor [`WITHDRAWN`].
    fn pack(self, generation: u8) -> u64 {
        let part = |value: u32| u64::from(value.clamp(1, MAX_STRIDE - 1));
        let count = u64::from(self.count.clamp(1, MAX_EVENTS)) << 48;
        u64::from(generation) << 56 | count | part(self.stride) << 24 | part(self.multiple)
    }

    /// Returns the request and its generation.
    fn unpack(word: u64) -> (Self, u8) {
        let part = |shift: u32| (word >> shift) as u32 & (MAX_STRIDE - 1);
        (Self { count: (word >> 48) as u16 & 0xFF, stride: part(24), multiple: part(0) }, (word >> 56) as u8)
    }
}

/// An event whose buffers are lent.
#[derive(Debug)]
pub struct Lent {
    // Dropped before the place, which is free only when the buffers are back.
    event: Event,
    place: Place,
    /// Generation of the request.
    generation: u8,
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
    /// Counts requests, so that events of an earlier one are recognised.
    generation: AtomicU8,
    /// Set while the receive thread works on a request.
    serving: AtomicBool,
    events: ArrayQueue<Lent>,
    /// Number of events that are lent.
    lent: Arc<AtomicUsize>,
    marks: Marks,
}

impl Default for Tap {
    fn default() -> Self {
        Self {
            observed: AtomicBool::new(false),
            request: AtomicU64::new(0),
            generation: AtomicU8::new(0),
            serving: AtomicBool::new(false),
            events: ArrayQueue::new(2 * MAX_LENT),
            lent: Arc::default(),
            marks: Marks::default(),
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

    /// Requests events, in place of an earlier request. Called by one thread at a time.
    pub fn request(&self, request: Request) {
        let generation = self.generation.load(Relaxed).wrapping_add(1);
        self.generation.store(generation, Relaxed);
        self.request.store(request.pack(generation), Release);
    }
    /// Withdraws the request, and returns the buffers of events that were not taken.
    pub fn cancel(&self) {
        self.request.store(WITHDRAWN, Release);
        while self.events.pop().is_some() {}
    }
    /// Returns `true` while events of a request are still to come.
    pub fn is_pending(&self) -> bool {
        match self.request.load(Acquire) {
            0 => self.serving.load(Acquire),
            request => request != WITHDRAWN,
        }
    }
    /// Returns the next event of the request. Its buffers are the pool's: drop it soon.
    pub fn pop(&self) -> Option<Lent> {
        let generation = self.generation.load(Relaxed);
        std::iter::from_fn(|| self.events.pop()).find(|lent| lent.generation == generation)
    }
    /// Returns the presence of the next shot. Only the newest ones are kept.
    pub fn pop_mark(&self) -> Option<ShotMark> {
        self.marks.pop()
    }
}

/// The receive thread's side of a [`Tap`].
#[derive(Debug)]
pub(crate) struct TapServer {
    current: Option<(Request, u8)>,
    /// Number of the next event; none: the first of the request is still to come.
    next: Option<u64>,
    /// Maximum number of events that are lent at a time.
    max_lent: usize,
}

impl TapServer {
    /// Creates the side of a run that has set the buffers of this many events aside.
    pub(crate) fn new(max_lent: usize) -> Self {
        Self { current: None, next: None, max_lent: max_lent.min(MAX_LENT) }
    }

    /// Shows an event to the observer, if there is one.
    pub(crate) fn show(&mut self, tap: &Tap, event: &Event) {
        if !tap.is_observed() {
            return;
        }
        for (link, shot) in event.shots.iter().enumerate() {
            if let Some(shot) = shot {
                tap.marks.push(ShotMark::of(link as u8, shot));
            }
        }
        if tap.request.load(Relaxed) != 0 {
            self.take_request(tap);
        }
        let Some((request, generation)) = &mut self.current else { return };
        let wanted = match self.next {
            None => event.number.is_multiple_of(request.multiple.into()),
            // Where the wanted event is missing, the next one in whole strides follows.
            Some(next) => event.number >= next && (event.number - next).is_multiple_of(request.stride.into()),
        };
        if !wanted {
            return;
        }
        // Only this thread adds to the number. It is read after the buffers of dropped events are back.
        if tap.lent.load(Acquire) < self.max_lent {
            tap.lent.fetch_add(1, Relaxed);
            let place = Place(Arc::clone(&tap.lent));
            // The queue has space for all that are lent.
            let _ = tap.events.push(Lent { event: event.clone(), place, generation: *generation });
        }
        self.next = Some(event.number + u64::from(request.stride));
        request.count -= 1;
        if request.count == 0 {
            self.current = None;
            tap.serving.store(false, Release);
        }
    }

    fn take_request(&mut self, tap: &Tap) {
        // Set first, so that a request is pending without a gap.
        tap.serving.store(true, Release);
        let word = tap.request.swap(0, AcqRel);
        self.current = (word != 0 && word != WITHDRAWN).then(|| Request::unpack(word));
        self.next = None;
        tap.serving.store(self.current.is_some(), Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::{Pool, Registrar};
    use shotline_store::shot::{Shot, ShotMeta};
    use shotline_wire::shot::{DropCounters, Presence};
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
    fn a_withdrawn_request_gets_nothing_more() {
        let (tap, pool) = (Tap::default(), Pool::new(&mut Registrar::new(), 32, 8).unwrap());
        tap.observe(true);
        let mut server = TapServer::new(32);
        tap.request(Request { count: 20, stride: 1, multiple: 1 });
        (0..3).for_each(|number| server.show(&tap, &event(&pool, number)));
        tap.cancel();
        assert!(!tap.is_pending());
        (3..6).for_each(|number| server.show(&tap, &event(&pool, number)));
        assert!(tap.pop().is_none());
        assert_eq!(pool.available(), 32);
        // What was in the queue when the next request came is not of this one.
        tap.request(Request { count: 20, stride: 1, multiple: 1 });
        (6..9).for_each(|number| server.show(&tap, &event(&pool, number)));
        tap.request(Request { count: 2, stride: 1, multiple: 10 });
        (9..12).for_each(|number| server.show(&tap, &event(&pool, number)));
        assert_eq!(std::iter::from_fn(|| tap.pop()).map(|lent| lent.event.number).collect::<Vec<_>>(), [10, 11]);
    }

    #[test]
    fn strides_continue_over_missing_events() {
        let (tap, pool) = (Tap::default(), Pool::new(&mut Registrar::new(), 32, 8).unwrap());
        tap.observe(true);
        let mut server = TapServer::new(32);
        tap.request(Request { count: 3, stride: 5, multiple: 5 });
        (3..40).filter(|number| *number != 10).for_each(|number| server.show(&tap, &event(&pool, number)));
        assert_eq!(std::iter::from_fn(|| tap.pop()).map(|lent| lent.event.number).collect::<Vec<_>>(), [5, 15, 20]);
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
            assert_eq!(Request::unpack(request.pack(200)), (request, 200));
        }
        let (clamped, _) = Request::unpack(Request { count: 0, stride: 0, multiple: u32::MAX }.pack(0));
        assert_eq!(clamped, Request { count: 1, stride: 1, multiple: MAX_STRIDE - 1 });
    }
}
