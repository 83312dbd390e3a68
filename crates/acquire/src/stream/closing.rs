//! Which shots are under assembly, when each must leave, and what leaves.
//!
//! Shots leave in the order of their numbers: complete ones as soon as nothing older is open, others when they time out
//! or are overtaken by the window. What never came leaves as a [`Loss`], so numbers are covered without a hole.

use super::config::StreamConfig;
use crate::books::Books;
use crate::clock::Clock;
use crate::latency::Times;
use shotline_memory::Buffer;
use shotline_store::shot::{Loss, Shot, ShotMeta};
use shotline_wire::shot::DropCause;
use std::ops::Range;
use std::sync::Arc;

/// What leaves a stream, in the order of shot numbers and without holes.
#[derive(Debug)]
pub enum Item {
    /// A shot, complete or partial.
    Shot(Box<Shot>),
    /// Shots of which there is nothing to hand on.
    Loss(Loss),
}

/// A shot under assembly. Without an entry its packets are dropped: no buffer was free when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) number: u64,
    pub(super) entry: Option<usize>,
    /// When its newest packet came, by the receiver's monotonic clock.
    pub(super) last_ns: u64,
    /// When the kernel received its first packet, by the realtime clock; 0 unknown.
    pub(super) arrived_ns: u64,
}

/// What must leave next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The oldest shot under assembly.
    Shot(Open),
    /// Shots that never came, from the next one to `end`, before the oldest one under assembly.
    Gap { end: u64, first: Open, is_stale: bool },
}

/// The shots under assembly, and how shots leave.
#[derive(Debug)]
pub(super) struct Closing {
    stream: u32,
    packets: u32,
    window: u64,
    timeout_ns: u64,
    /// Ascending by number.
    open: Vec<Open>,
    /// The first shot that has not left; none until the stream has joined.
    next: Option<u64>,
    clock: Option<Arc<Clock>>,
    times: Times,
}

impl Closing {
    /// Without shots, for `depth` of them at once.
    pub(super) fn new(config: &StreamConfig, depth: usize, clock: Option<Arc<Clock>>) -> Self {
        Self {
            stream: config.stream,
            packets: config.geometry.packets(),
            window: config.window,
            timeout_ns: config.timeout_ns,
            open: Vec::with_capacity(2 * depth),
            next: config.first_shot,
            clock,
            times: Times::default(),
        }
    }

    /// Takes over what set-up has taught, before the first packet.
    pub(super) fn reconfigure(&mut self, config: &StreamConfig) {
        (self.stream, self.window, self.timeout_ns) = (config.stream, config.window, config.timeout_ns);
        self.next = config.first_shot;
    }

    /// The first shot that has not left; none until the stream has joined.
    #[inline]
    pub(super) fn next(&self) -> Option<u64> {
        self.next
    }

    /// All shots before this one have left.
    #[inline]
    pub(super) fn set_next(&mut self, next: u64) {
        self.next = Some(next);
    }

    /// Has the stream joined anew. Returns the first shot that has not left.
    pub(super) fn take_next(&mut self) -> Option<u64> {
        self.next.take()
    }

    /// How long shots took.
    pub(super) fn times(&self) -> &Times {
        &self.times
    }

    /// Shots under assembly.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Where a shot is among those under assembly, or where it would be.
    #[inline]
    pub(super) fn find(&self, number: u64) -> Result<usize, usize> {
        self.open.binary_search_by_key(&number, |open| open.number)
    }

    /// The entry of the shot at a position that [`Self::find`] has found.
    #[inline]
    pub(super) fn entry(&self, at: usize) -> Option<usize> {
        self.open[at].entry
    }

    /// Notes that a packet of a shot has come. Returns its entry.
    #[inline]
    pub(super) fn touch(&mut self, at: usize, now_ns: u64) -> Option<usize> {
        let open = &mut self.open[at];
        open.last_ns = now_ns;
        open.entry
    }

    /// Begins a shot, at the position where [`Self::find`] would have it.
    #[inline]
    pub(super) fn insert(&mut self, at: usize, open: Open) {
        self.open.insert(at, open);
    }

    /// The oldest shot under assembly.
    #[inline]
    pub(super) fn first(&self) -> Option<&Open> {
        self.open.first()
    }

    /// Removes the oldest shot.
    pub(super) fn remove_first(&mut self) {
        self.open.remove(0);
    }

    /// The number after the newest shot under assembly.
    pub(super) fn end(&self) -> Option<u64> {
        self.open.last().map(|last| last.number + 1)
    }

    /// Raises the numbers of all shots under assembly.
    pub(super) fn raise(&mut self, ahead: u64) {
        self.open.iter_mut().for_each(|open| open.number += ahead);
    }

    /// Lowers the numbers of all shots under assembly.
    pub(super) fn lower(&mut self, ahead: u64) {
        self.open.iter_mut().for_each(|open| open.number -= ahead);
    }

    /// Whether the window has passed a shot.
    #[inline]
    pub(super) fn is_overtaken(&self, number: u64, newest: u64) -> bool {
        newest >= number + self.window
    }

    /// What must leave now, if anything must.
    #[inline]
    pub(super) fn due(&self, newest: u64, now_ns: u64, is_whole: impl FnOnce(usize) -> bool) -> Option<Due> {
        let (next, first) = (self.next?, *self.open.first()?);
        let is_overtaken = self.is_overtaken(next, newest);
        let is_stale = now_ns.saturating_sub(first.last_ns) > self.timeout_ns;
        if first.number == next {
            let is_due = first.entry.is_some_and(is_whole) || is_overtaken || is_stale;
            return is_due.then_some(Due::Shot(first));
        }
        let end = match (is_stale, is_overtaken) {
            (true, _) => first.number,
            (false, true) => first.number.min(newest - self.window + 1),
            (false, false) => return None,
        };
        Some(Due::Gap { end, first, is_stale })
    }

    /// Hands on a shot and counts it. `meta` is all that is known but when the shot arrived and was complete; the kernel
    /// received its first packet at `arrived_ns` of the realtime clock, 0 if unknown.
    pub(super) fn hand_on(
        &mut self,
        mut meta: ShotMeta,
        arrived_ns: u64,
        buffer: Buffer,
        books: &mut Books,
        out: &mut Vec<Item>,
    ) {
        if let Some(clock) = &self.clock {
            meta.completed_tai_ns = clock.now_tai_ns();
            meta.arrived_tai_ns = if arrived_ns > 0 { clock.from_realtime(arrived_ns) } else { 0 };
        }
        if meta.completed_tai_ns > 0 && meta.presence.is_complete() {
            self.times.enter(&meta);
        }
        books.shots += 1;
        if meta.is_complete() {
            books.complete += 1;
        } else {
            books.partial += 1;
        }
        out.push(Item::Shot(Box::new(Shot { meta, buffer })));
    }

    /// Counts shots of which there is nothing to hand on; none if the range is empty.
    pub(super) fn lose(&self, shots: Range<u64>, cause: DropCause, books: &mut Books, out: &mut Vec<Item>) {
        let count = shots.end.saturating_sub(shots.start);
        if count == 0 {
            return;
        }
        books.shots = books.shots.saturating_add(count);
        books.shot_drops.add(cause, count);
        if cause == DropCause::WireGap {
            let packets = count.saturating_mul(u64::from(self.packets));
            books.packets_missing = books.packets_missing.saturating_add(packets);
        }
        out.push(Item::Loss(Loss { stream: self.stream, cause, first: shots.start, count }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a stream of shots of three packets with a window of four shots and a time-out of 100 ns.
    fn closing(next: u64, numbers: &[u64]) -> Closing {
        let config = StreamConfig { first_shot: Some(next), ..StreamConfig::of_three_packets() };
        let mut closing = Closing::new(&config, 4, None);
        for number in numbers {
            let at = closing.find(*number).unwrap_err();
            closing.insert(at, Open { number: *number, entry: Some(0), last_ns: 0, arrived_ns: 0 });
        }
        closing
    }

    #[test]
    fn the_next_shot_leaves_whole_overtaken_or_timed_out() {
        let closing = closing(5, &[6, 5]);
        let first = Some(Due::Shot(*closing.first().unwrap()));
        assert_eq!(closing.due(6, 100, |_| false), None);
        assert_eq!(closing.due(6, 100, |_| true), first);
        assert_eq!((closing.due(8, 100, |_| false), closing.due(9, 100, |_| false)), (None, first));
        assert_eq!(closing.due(6, 101, |_| false), first);
    }

    #[test]
    fn a_gap_leaves_as_far_as_it_is_overtaken_or_timed_out() {
        let mut closing = closing(5, &[8]);
        let first = *closing.first().unwrap();
        assert_eq!(closing.due(8, 100, |_| true), None, "what is missing may yet come");
        assert_eq!(closing.due(9, 100, |_| true), Some(Due::Gap { end: 6, first, is_stale: false }));
        assert_eq!(closing.due(20, 100, |_| true), Some(Due::Gap { end: 8, first, is_stale: false }));
        assert_eq!(closing.due(8, 101, |_| true), Some(Due::Gap { end: 8, first, is_stale: true }));
        closing.set_next(8);
        assert_eq!(closing.due(8, 100, |_| true), Some(Due::Shot(first)));
        assert_eq!(closing.take_next(), Some(8));
        assert_eq!(closing.due(20, 500, |_| true), None, "nothing leaves before the stream has joined");
    }

    #[test]
    fn a_packet_defers_the_time_out() {
        let mut closing = closing(5, &[5]);
        assert_eq!(closing.touch(0, 50), Some(0));
        assert_eq!(closing.due(5, 150, |_| false), None);
        assert!(closing.due(5, 151, |_| false).is_some());
    }

    #[test]
    fn losses_on_the_wire_are_counted_in_packets_too() {
        let (closing, mut books, mut out) = (closing(5, &[]), Books::default(), Vec::new());
        closing.lose(5..7, DropCause::WireGap, &mut books, &mut out);
        closing.lose(7..7, DropCause::WireGap, &mut books, &mut out);
        closing.lose(7..8, DropCause::NotData, &mut books, &mut out);
        assert_eq!((books.shots, books.packets_missing, books.balance()), (3, 6, Ok(())));
        let lost =
            |item: &Item| matches!(item, Item::Loss(Loss { first: 5, count: 2, .. } | Loss { first: 7, count: 1, .. }));
        assert!(out.len() == 2 && out.iter().all(lost), "{out:?}");
    }
}
