//! Shots under assembly: when each leaves, and what is emitted.
//!
//! Shots leave in the order of their numbers: complete ones as soon as nothing older is open, others when they time out
//! or the window passes them. Shots that never arrived leave as a [`Loss`], so numbers are covered without a gap.

use super::config::StreamConfig;
use crate::clock::Clock;
use crate::counters::StreamCounters;
use crate::latency::ShotLatencies;
use shotline_memory::Buffer;
use shotline_store::shot::{Loss, Shot, ShotMeta};
use shotline_wire::shot::DropCause;
use std::ops::Range;
use std::sync::Arc;

/// Output of a stream, in the order of shot numbers and without gaps.
#[derive(Debug)]
pub enum Item {
    /// A shot, complete or partial.
    Shot(Box<Shot>),
    /// Shots without any data to hand on.
    Loss(Loss),
}

/// A shot under assembly. Without an entry its packets are dropped: no buffer was free when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenShot {
    pub(super) number: u64,
    pub(super) entry: Option<usize>,
    /// Arrival of its newest packet, by the receiver's monotonic clock.
    pub(super) last_ns: u64,
    /// Time at which the kernel received its first packet, by the realtime clock; 0 if unknown.
    pub(super) arrived_ns: u64,
}

/// What leaves next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// The oldest shot under assembly.
    Shot(OpenShot),
    /// Shots that never arrived, from the next one to `end`, before the oldest one under assembly.
    Gap { end: u64, first: OpenShot, is_stale: bool },
}

/// Shots under assembly.
#[derive(Debug)]
pub(super) struct OpenShots {
    stream: u32,
    packets: u32,
    window: u64,
    timeout_ns: u64,
    /// Sorted by number.
    open: Vec<OpenShot>,
    /// First shot that has not left; none until the stream has joined.
    next: Option<u64>,
    clock: Option<Arc<Clock>>,
    latencies: ShotLatencies,
}

impl OpenShots {
    /// Creates an empty list, for `depth` shots at once.
    pub(super) fn new(config: &StreamConfig, depth: usize, clock: Option<Arc<Clock>>) -> Self {
        Self {
            stream: config.stream,
            packets: config.geometry.packets(),
            window: config.window,
            timeout_ns: config.timeout_ns,
            open: Vec::with_capacity(2 * depth),
            next: config.first_shot,
            clock,
            latencies: ShotLatencies::default(),
        }
    }

    /// Applies the results of set-up, before the first packet.
    pub(super) fn reconfigure(&mut self, config: &StreamConfig) {
        (self.stream, self.window, self.timeout_ns) = (config.stream, config.window, config.timeout_ns);
        self.next = config.first_shot;
    }

    /// Returns the first shot that has not left; none until the stream has joined.
    #[inline]
    pub(super) fn next(&self) -> Option<u64> {
        self.next
    }

    /// Notes that all shots before this one have left.
    #[inline]
    pub(super) fn set_next(&mut self, next: u64) {
        self.next = Some(next);
    }

    /// Makes the stream join again. Returns the first shot that has not left.
    pub(super) fn take_next(&mut self) -> Option<u64> {
        self.next.take()
    }

    /// Returns the latencies of shots.
    pub(super) fn latencies(&self) -> &ShotLatencies {
        &self.latencies
    }

    /// Returns the number of shots under assembly.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns the position of a shot among those under assembly, or that at which to insert it.
    #[inline]
    pub(super) fn find(&self, number: u64) -> Result<usize, usize> {
        self.open.binary_search_by_key(&number, |open| open.number)
    }

    /// Returns the entry of the shot at a position found by [`Self::find`].
    #[inline]
    pub(super) fn entry(&self, at: usize) -> Option<usize> {
        self.open[at].entry
    }

    /// Notes the arrival of a packet of a shot. Returns the shot's entry.
    #[inline]
    pub(super) fn note_packet(&mut self, at: usize, now_ns: u64) -> Option<usize> {
        let open = &mut self.open[at];
        open.last_ns = now_ns;
        open.entry
    }

    /// Inserts a shot at the position given by [`Self::find`].
    #[inline]
    pub(super) fn insert(&mut self, at: usize, open: OpenShot) {
        self.open.insert(at, open);
    }

    /// Returns the oldest shot under assembly.
    #[inline]
    pub(super) fn first(&self) -> Option<&OpenShot> {
        self.open.first()
    }

    /// Removes the oldest shot.
    pub(super) fn remove_first(&mut self) {
        self.open.remove(0);
    }

    /// Returns the number after the newest shot under assembly.
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

    /// Returns `true` if the window has passed a shot.
    #[inline]
    pub(super) fn is_overtaken(&self, number: u64, newest: u64) -> bool {
        newest >= number + self.window
    }

    /// Returns what leaves now, if anything.
    #[inline]
    pub(super) fn next_departure(
        &self,
        newest: u64,
        now_ns: u64,
        is_whole: impl FnOnce(usize) -> bool,
    ) -> Option<Departure> {
        let (next, first) = (self.next?, *self.open.first()?);
        let is_overtaken = self.is_overtaken(next, newest);
        let is_stale = now_ns.saturating_sub(first.last_ns) > self.timeout_ns;
        if first.number == next {
            let is_ready = first.entry.is_some_and(is_whole) || is_overtaken || is_stale;
            return is_ready.then_some(Departure::Shot(first));
        }
        let end = match (is_stale, is_overtaken) {
            (true, _) => first.number,
            (false, true) => first.number.min(newest - self.window + 1),
            (false, false) => return None,
        };
        Some(Departure::Gap { end, first, is_stale })
    }

    /// Emits a shot and counts it. `meta` is complete except for the times of arrival and completion; the kernel
    /// received its first packet at `arrived_ns` of the realtime clock, 0 if unknown.
    pub(super) fn emit(
        &mut self,
        mut meta: ShotMeta,
        arrived_ns: u64,
        buffer: Buffer,
        counters: &mut StreamCounters,
        out: &mut Vec<Item>,
    ) {
        if let Some(clock) = &self.clock {
            meta.completed_tai_ns = clock.now_tai_ns();
            meta.arrived_tai_ns = if arrived_ns > 0 { clock.tai_from_realtime(arrived_ns) } else { 0 };
        }
        if meta.completed_tai_ns > 0 && meta.presence.is_complete() {
            self.latencies.add(&meta);
        }
        counters.shots += 1;
        if meta.is_complete() {
            counters.complete += 1;
        } else {
            counters.partial += 1;
        }
        out.push(Item::Shot(Box::new(Shot { meta, buffer })));
    }

    /// Emits and counts shots without any data, if the range is not empty.
    pub(super) fn emit_loss(
        &self,
        shots: Range<u64>,
        cause: DropCause,
        counters: &mut StreamCounters,
        out: &mut Vec<Item>,
    ) {
        let count = shots.end.saturating_sub(shots.start);
        if count == 0 {
            return;
        }
        counters.shots = counters.shots.saturating_add(count);
        counters.shot_drops.add(cause, count);
        if cause == DropCause::WireGap {
            let packets = count.saturating_mul(u64::from(self.packets));
            counters.packets_missing = counters.packets_missing.saturating_add(packets);
        }
        out.push(Item::Loss(Loss { stream: self.stream, cause, first: shots.start, count }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates the list for shots of three packets, with a window of four shots and a timeout of 100 ns.
    fn open_shots(next: u64, numbers: &[u64]) -> OpenShots {
        let config = StreamConfig { first_shot: Some(next), ..StreamConfig::of_three_packets() };
        let mut open_shots = OpenShots::new(&config, 4, None);
        for number in numbers {
            let at = open_shots.find(*number).unwrap_err();
            open_shots.insert(at, OpenShot { number: *number, entry: Some(0), last_ns: 0, arrived_ns: 0 });
        }
        open_shots
    }

    #[test]
    fn the_next_shot_leaves_when_whole_passed_or_timed_out() {
        let open_shots = open_shots(5, &[6, 5]);
        let first = Some(Departure::Shot(*open_shots.first().unwrap()));
        assert_eq!(open_shots.next_departure(6, 100, |_| false), None);
        assert_eq!(open_shots.next_departure(6, 100, |_| true), first);
        assert_eq!(
            (open_shots.next_departure(8, 100, |_| false), open_shots.next_departure(9, 100, |_| false)),
            (None, first)
        );
        assert_eq!(open_shots.next_departure(6, 101, |_| false), first);
    }

    #[test]
    fn a_gap_leaves_as_far_as_it_is_passed_or_timed_out() {
        let mut open_shots = open_shots(5, &[8]);
        let first = *open_shots.first().unwrap();
        assert_eq!(open_shots.next_departure(8, 100, |_| true), None, "missing packets may still arrive");
        assert_eq!(
            open_shots.next_departure(9, 100, |_| true),
            Some(Departure::Gap { end: 6, first, is_stale: false })
        );
        assert_eq!(
            open_shots.next_departure(20, 100, |_| true),
            Some(Departure::Gap { end: 8, first, is_stale: false })
        );
        assert_eq!(open_shots.next_departure(8, 101, |_| true), Some(Departure::Gap { end: 8, first, is_stale: true }));
        open_shots.set_next(8);
        assert_eq!(open_shots.next_departure(8, 100, |_| true), Some(Departure::Shot(first)));
        assert_eq!(open_shots.take_next(), Some(8));
        assert_eq!(open_shots.next_departure(20, 500, |_| true), None, "nothing leaves before the stream has joined");
    }

    #[test]
    fn a_packet_defers_the_timeout() {
        let mut open_shots = open_shots(5, &[5]);
        assert_eq!(open_shots.note_packet(0, 50), Some(0));
        assert_eq!(open_shots.next_departure(5, 150, |_| false), None);
        assert!(open_shots.next_departure(5, 151, |_| false).is_some());
    }

    #[test]
    fn network_losses_are_also_counted_in_packets() {
        let (open_shots, mut counters, mut out) = (open_shots(5, &[]), StreamCounters::default(), Vec::new());
        open_shots.emit_loss(5..7, DropCause::WireGap, &mut counters, &mut out);
        open_shots.emit_loss(7..7, DropCause::WireGap, &mut counters, &mut out);
        open_shots.emit_loss(7..8, DropCause::NotData, &mut counters, &mut out);
        assert_eq!((counters.shots, counters.packets_missing, counters.balance()), (3, 6, Ok(())));
        let lost =
            |item: &Item| matches!(item, Item::Loss(Loss { first: 5, count: 2, .. } | Loss { first: 7, count: 1, .. }));
        assert!(out.len() == 2 && out.iter().all(lost), "{out:?}");
    }
}
