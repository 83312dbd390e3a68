//! Alignment of several sources: items that belong together become one event.
//!
//! [`Aligner`] is a state machine without I/O, clock or threads; time is an argument. Sources [`push`] items in any
//! interleaving, late, twice or out of order; [`pop`] returns decided events in the order of their keys. A key is the
//! item's event number, or its stamp converted to the clock of the first source ([`AlignBy`]).
//!
//! | an event is | when |
//! |---|---|
//! | complete | every source is in it |
//! | partial | some are, at least the quorum; for each of the others there is a reason ([`Missing`]) |
//! | dropped | fewer than the quorum; its items are returned nevertheless, so that they can be accounted for |
//!
//! An event is decided as soon as no source can still add an item to it: each is in it, has gone past it, or has
//! stopped. Otherwise it is decided after [`Config::timeout_ns`], or when the ring of pending events is full and it is
//! the oldest. A source that was silent while an event waited that long has *stopped*, and no event waits for it until
//! it comes back. Memory is therefore bounded, and events are delayed by `timeout_ns` once, not permanently. Events do
//! not wait either for a source that is active but lags by more than the ring's length (by stamp: by more than
//! `timeout_ns`): its count has started again, or its clock is off.
//!
//! An item whose event was already decided is refused as [`RefusalReason::Late`], a second item of a source for one
//! event as [`RefusalReason::Duplicate`] (for events decided longer ago than the ring is long, as late, too). Every
//! item is in exactly one counter ([`SourceCounters::balance`]).
//!
//! # Stamps
//!
//! An item belongs to the event with the nearest key, if that is within the window and has no item of its source. The
//! window should be less than half the time between events; by default it is a quarter of that time. If it is wider,
//! consecutive events of one source within the window remain separate ([`EventCounters::crowded`] counts them); items
//! of other sources go to the nearest free event, so they may be matched wrongly, but are never lost. `clocks` and
//! `filter` describe how clocks are followed; until a clock is known to within the window, items are joined if they
//! arrive within the window of each other.
//!
//! [`push`]: Aligner::push
//! [`pop`]: Aligner::pop

mod clocks;
mod filter;
mod intervals;
mod ring;
mod status;
#[cfg(test)]
mod tests;
mod types;

use arrayvec::ArrayVec;
pub use clocks::ClockState;
use clocks::Clocks;
use intervals::Intervals;
use ring::{History, Mask, Ring};
use shotline_wire::shot::DropCause;
pub use status::{AlignmentStatus, LinkStatus};
use std::collections::VecDeque;
pub use types::{
    AlignBy, Config, Event, EventCounters, ItemMeta, MAX_SOURCES, Missing, Present, RefusalReason, RefusedItem,
    SourceCounters, Verdict,
};

/// Maximum number of loss runs remembered for each source, to explain a missing item.
const MAX_GAPS: usize = 16;
/// Bounds of the automatic window, in ns.
const WINDOW_NS: (u64, u64) = (10_000, 10_000_000);
/// Divisor of the shortest usual interval that gives the automatic window.
const WINDOW_DIVISOR: u64 = 4;
/// Maximum number of pending events, overriding the configuration.
const MAX_CAPACITY: usize = 1 << 24;

#[derive(Debug)]
struct Source {
    counters: SourceCounters,
    /// The newest key that the source has passed.
    newest: Option<u64>,
    /// Time of the last activity; none before the first.
    last_seen_ns: Option<u64>,
    stopped: bool,
    /// Set if the last item was so late that the source cannot catch up with pending events.
    lagging: bool,
    /// Number of the source's last decided item.
    decided: Option<u64>,
    /// Stamp of its newest item.
    stamp_ns: u64,
    intervals: Intervals,
    gaps: VecDeque<Gap>,
}

/// Range of keys without an item of a source: numbers, or times whose end the next item gives.
#[derive(Clone, Copy, Debug)]
struct Gap {
    first: u64,
    last: u64,
    cause: DropCause,
}

impl Source {
    fn new() -> Self {
        let gaps = VecDeque::with_capacity(MAX_GAPS);
        Self {
            counters: SourceCounters::default(),
            newest: None,
            last_seen_ns: None,
            stopped: false,
            lagging: false,
            decided: None,
            stamp_ns: 0,
            intervals: Intervals::new(),
            gaps,
        }
    }

    /// Notes that the source has passed a key.
    fn note_key(&mut self, key: u64) {
        self.newest = Some(self.newest.map_or(key, |newest| newest.max(key)));
    }

    /// Adds a gap, extending the newest one where it continues it.
    fn add_gap(&mut self, gap: Gap) {
        if let Some(last) = self.gaps.back_mut()
            && last.cause == gap.cause
            && (last.last == u64::MAX || last.last + 1 == gap.first)
        {
            last.last = gap.last;
            return;
        }
        if self.gaps.len() == MAX_GAPS {
            self.gaps.pop_front();
        }
        self.gaps.push_back(gap);
    }
}

/// Aligns items of several sources. See the module.
///
/// # Examples
///
/// ```
/// use shotline_acquire::align::{AlignBy, Aligner, Config, ItemMeta, Verdict};
///
/// let mut aligner = Aligner::new(Config {
///     sources: 2,
///     by: AlignBy::Number,
///     disorder: 0,
///     timeout_ns: 300_000_000,
///     quorum: 1,
///     capacity: 64,
///     lock_ns: 50_000,
/// });
/// let seven = ItemMeta { number: 7, ..ItemMeta::default() };
/// aligner.push(0, 1000, seven, "item of source 0").unwrap();
/// assert!(aligner.pop(1000).is_none()); // source 1 can still add its item
/// aligner.push(1, 2000, seven, "item of source 1").unwrap();
/// let event = aligner.pop(2000).unwrap();
/// assert_eq!((event.key, event.verdict), (7, Verdict::Complete));
/// ```
#[derive(Debug)]
pub struct Aligner<T> {
    config: Config,
    /// Current window in ns; 0 by number.
    window: u64,
    /// Maximum lag of a source for which events wait: in numbers, or in ns by stamp.
    max_lag: u64,
    all: Mask,
    sources: ArrayVec<Source, MAX_SOURCES>,
    ring: Ring<T>,
    history: History,
    clocks: Clocks,
    counters: EventCounters,
    /// Time of the first activity of any source.
    started_ns: Option<u64>,
}

impl<T> Aligner<T> {
    /// Creates an aligner, with all the memory that it will need.
    ///
    /// # Panics
    /// With no source or more than [`MAX_SOURCES`].
    pub fn new(config: Config) -> Self {
        let Config { sources, by, lock_ns, .. } = config;
        assert!((1..=MAX_SOURCES).contains(&sources), "expected 1 to {MAX_SOURCES} sources, found {sources}");
        let capacity = config.capacity.clamp(1, MAX_CAPACITY);
        Self {
            config,
            window: if let AlignBy::Stamp { window_ns } = by { window_ns.unwrap_or(WINDOW_NS.0).max(1) } else { 0 },
            max_lag: if let AlignBy::Number = by { capacity as u64 } else { config.timeout_ns },
            all: (1 << sources) - 1,
            sources: (0..sources).map(|_| Source::new()).collect(),
            ring: Ring::new(capacity, sources),
            history: History::new(capacity),
            clocks: Clocks::new(sources, lock_ns),
            counters: EventCounters::default(),
            started_ns: None,
        }
    }

    /// Adds an item of a source at `now_ns` of any steady clock. Call [`Self::pop`] until it returns none after each
    /// call.
    ///
    /// # Errors
    /// Returns the item with the reason if it is in no event.
    ///
    /// # Panics
    /// If there is no such source.
    pub fn push(&mut self, source: usize, now_ns: u64, meta: ItemMeta, item: T) -> Result<(), RefusedItem<T>> {
        self.note_activity(source, now_ns, meta);
        self.adapt_window(source, meta.stamp_ns);
        self.sources[source].counters.items += 1;
        let rank = self
            .key(source, meta)
            .ok_or(RefusalReason::Unstamped)
            .and_then(|key| self.find_event(source, key, meta, now_ns));
        let counters = &mut self.sources[source].counters;
        let (count, result) = match rank {
            Ok(rank) => {
                self.ring.put(rank, source, Present { meta, item });
                (&mut counters.waiting, Ok(()))
            }
            Err(reason) => {
                let count = match reason {
                    RefusalReason::Late => &mut counters.late,
                    RefusalReason::Duplicate => &mut counters.duplicate,
                    RefusalReason::Unstamped => &mut counters.unstamped,
                    RefusalReason::Full => &mut counters.full,
                };
                (count, Err(RefusedItem { reason, item }))
            }
        };
        *count += 1;
        result
    }

    /// Notes that `count` items of a source from number `first` on are lost. A stopped source comes back with an item,
    /// not with a loss: a receiver may have concluded the loss from its silence.
    ///
    /// # Panics
    /// If there is no such source.
    pub fn note_loss(&mut self, source: usize, now_ns: u64, cause: DropCause, first: u64, count: u64) {
        if !self.sources[source].stopped {
            self.note_activity(source, now_ns, ItemMeta::default());
        }
        let by = self.config.by;
        let source = &mut self.sources[source];
        source.counters.lost = source.counters.lost.saturating_add(count);
        let Some(last) = count.checked_sub(1).map(|more| first.saturating_add(more)) else { return };
        match by {
            AlignBy::Number => {
                source.note_key(last);
                source.add_gap(Gap { first, last, cause });
            }
            // The gap lies between its newest item and the next one.
            AlignBy::Stamp { .. } => {
                let first = source.newest.map_or(0, |newest| newest.saturating_add(1));
                source.add_gap(Gap { first, last: u64::MAX, cause });
            }
        }
    }

    /// Returns the next event that is decided by this time.
    pub fn pop(&mut self, now_ns: u64) -> Option<Event<T>> {
        let front = self.ring.front()?;
        let settled = (0..self.sources.len()).all(|source| self.is_past(source, front.key, front.present))
            || front.present == self.all && self.is_next(front.key);
        if !settled {
            let expired = now_ns.saturating_sub(front.opened_ns) >= self.config.timeout_ns;
            if !expired && !self.ring.is_full() {
                return None;
            }
            *(if expired { &mut self.counters.expired } else { &mut self.counters.forced }) += 1;
            self.stop_silent_sources(now_ns);
        }
        self.decide()
    }

    /// Returns the next event, although sources could still add to it: for the end of a run.
    pub fn flush(&mut self) -> Option<Event<T>> {
        self.decide()
    }

    /// Returns the counters of a source's items.
    pub fn source(&self, source: usize) -> &SourceCounters {
        &self.sources[source].counters
    }
    /// Returns `true` if a source has stopped, so that events do not wait for it.
    pub fn is_stopped(&self, source: usize) -> bool {
        self.sources[source].stopped
    }
    /// Returns the current state of a source's clock.
    pub fn clock(&self, source: usize) -> ClockState {
        let state = self.clocks.state(source);
        ClockState { locked: state.locked && !self.sources[source].stopped, ..state }
    }
    /// Returns the counters of events.
    pub fn counters(&self) -> &EventCounters {
        &self.counters
    }
    /// Returns the current maximum distance between the stamps of one event, in ns; 0 by number.
    pub fn window_ns(&self) -> u64 {
        self.window
    }
    /// Returns the number of pending events.
    pub fn pending(&self) -> usize {
        self.ring.len()
    }

    /// Notes that a source is active: if it had stopped, it comes back.
    fn note_activity(&mut self, source: usize, now_ns: u64, meta: ItemMeta) {
        self.started_ns.get_or_insert(now_ns);
        let state = &mut self.sources[source];
        state.last_seen_ns = Some(now_ns);
        if std::mem::take(&mut state.stopped) {
            state.counters.rejoins += 1;
            self.clocks.rejoin(source, meta.stamp_ns, meta.arrived_ns);
        }
        if meta.stamp_ns > 0 && meta.arrived_ns > 0 {
            self.clocks.add_arrival(source, meta.stamp_ns, meta.arrived_ns);
        }
    }

    /// Adapts the window to the time between items, unless the configuration fixes it.
    fn adapt_window(&mut self, source: usize, stamp_ns: u64) {
        let before = std::mem::replace(&mut self.sources[source].stamp_ns, stamp_ns);
        if self.config.by == (AlignBy::Stamp { window_ns: None }) && before > 0 && stamp_ns > before {
            self.sources[source].intervals.add(stamp_ns - before);
            let shortest = self.sources.iter().filter_map(|source| source.intervals.usual()).min();
            self.window = shortest.map_or(WINDOW_NS.0, |ns| (ns / WINDOW_DIVISOR).clamp(WINDOW_NS.0, WINDOW_NS.1));
        }
    }

    fn key(&self, source: usize, meta: ItemMeta) -> Option<u64> {
        match self.config.by {
            AlignBy::Number => Some(meta.number),
            AlignBy::Stamp { .. } => self.clocks.key(source, meta.stamp_ns, meta.arrived_ns),
        }
    }

    /// Returns the rank of the event that an item belongs to; opens one if there is none.
    fn find_event(&mut self, source: usize, key: u64, meta: ItemMeta, now_ns: u64) -> Result<usize, RefusalReason> {
        let window = self.window;
        let state = &mut self.sources[source];
        if window > 0
            && let Some(open) = state.gaps.back_mut().filter(|gap| gap.last == u64::MAX)
        {
            open.last = key.saturating_sub(1).max(open.first);
        }
        state.note_key(key);
        if let Some((last, present)) = self.history.last()
            && key <= last.saturating_add(window)
        {
            let is_duplicate = self.history.contains(source, key, window);
            if key <= last {
                self.sources[source].lagging = !is_duplicate && last - key > self.max_lag;
                return Err(if is_duplicate { RefusalReason::Duplicate } else { RefusalReason::Late });
            }
            // After the last decided event but within its window: a duplicate, or a late item of that event, unless the
            // event has an item of this source.
            if self.sources[source].decided == Some(meta.number) {
                return Err(RefusalReason::Duplicate);
            }
            if present & 1 << source == 0 && self.nearest(source, key, meta)?.is_none() {
                return Err(RefusalReason::Late);
            }
        }
        self.sources[source].lagging = false;
        let rank = match self.nearest(source, key, meta)? {
            Some(rank) => return Ok(rank),
            None => self.ring.rank(key),
        };
        let crowded = window > 0 && self.is_crowded(source, key);
        if !self.ring.open(rank, key, now_ns) {
            return Err(RefusalReason::Full);
        }
        self.counters.crowded += u64::from(crowded);
        Ok(rank)
    }

    /// Returns the nearest pending event within the window that has no item of this source.
    fn nearest(&self, source: usize, key: u64, meta: ItemMeta) -> Result<Option<usize>, RefusalReason> {
        let from = self.ring.rank(key.saturating_sub(self.window));
        let mut best = None;
        for rank in from..self.ring.len() {
            let waiting = self.ring.get(rank);
            let distance = waiting.key.abs_diff(key);
            if distance > self.window {
                break;
            }
            match self.ring.part(rank, source) {
                Some(other) if other.meta.number == meta.number => return Err(RefusalReason::Duplicate),
                Some(_) => {}
                None if best.is_none_or(|(nearest, _)| distance < nearest) => best = Some((distance, rank)),
                None => {}
            }
        }
        Ok(best.map(|(_, rank)| rank))
    }

    /// Returns `true` if an event within the window has an item of this source.
    fn is_crowded(&self, source: usize, key: u64) -> bool {
        let from = self.ring.rank(key.saturating_sub(self.window));
        let near =
            (from..self.ring.len()).take_while(|rank| self.ring.get(*rank).key <= key.saturating_add(self.window));
        near.into_iter().any(|rank| self.ring.get(rank).present & 1 << source != 0)
            || self.history.contains(source, key, self.window)
    }

    /// Returns `true` if a source can no longer add an item to an event, or to one before it.
    fn is_past(&self, source: usize, key: u64, present: Mask) -> bool {
        let Source { newest, stopped, lagging, .. } = self.sources[source];
        if stopped || lagging {
            return true;
        }
        let Some(newest) = newest else { return false };
        let limit = key.saturating_add(self.config.disorder);
        if present & 1 << source != 0 {
            newest >= limit
        } else {
            newest > limit.saturating_add(self.window) || newest >= limit && self.loss_cause(source, key).is_some()
        }
    }

    /// Returns the reported cause if the source has no item with this key.
    fn loss_cause(&self, source: usize, key: u64) -> Option<DropCause> {
        let mut gaps = self.sources[source].gaps.iter().rev();
        gaps.find(|gap| (gap.first..=gap.last).contains(&key)).map(|gap| gap.cause)
    }

    /// By number: returns `true` if nothing can be missing between the last decided event and this one.
    fn is_next(&self, key: u64) -> bool {
        self.window == 0 && self.history.last().is_some_and(|(last, _)| last.checked_add(1) == Some(key))
    }

    /// Marks sources as stopped that have been silent since before the oldest event was opened, and for `timeout_ns`.
    fn stop_silent_sources(&mut self, now_ns: u64) {
        let Some(front) = self.ring.front() else { return };
        for (index, source) in self.sources.iter_mut().enumerate() {
            let silent = source.last_seen_ns.is_none_or(|last_seen| last_seen < front.opened_ns)
                && now_ns.saturating_sub(source.last_seen_ns.unwrap_or(self.started_ns.unwrap_or(0)))
                    >= self.config.timeout_ns;
            if silent && !source.stopped && front.present & 1 << index == 0 {
                source.stopped = true;
                source.counters.stops += 1;
            }
        }
    }

    /// Returns the reason why the oldest event has no item of a source.
    fn missing_reason(&self, source: usize, front: &ring::Pending) -> Missing {
        let state = &self.sources[source];
        match self.loss_cause(source, front.key) {
            Some(cause) => Missing::Lost(cause),
            None if state.stopped => Missing::Silent,
            None if state.lagging => Missing::Late,
            None if self.is_past(source, front.key, front.present) => Missing::Skipped,
            None if state.last_seen_ns.is_none_or(|last_seen| last_seen < front.opened_ns) => Missing::Silent,
            None => Missing::Late,
        }
    }

    /// Removes the oldest event and returns it with its verdict.
    fn decide(&mut self) -> Option<Event<T>> {
        let front = *self.ring.front()?;
        let present = front.present.count_ones() as usize;
        let verdict = match present {
            _ if present < self.config.quorum.max(1) => Verdict::Dropped,
            _ if front.present == self.all => Verdict::Complete,
            _ => Verdict::Partial,
        };
        let reasons: ArrayVec<Missing, MAX_SOURCES> = (0..self.sources.len())
            .filter(|source| front.present & 1 << source == 0)
            .map(|source| self.missing_reason(source, &front))
            .collect();
        let mut reasons = reasons.into_iter();
        let (mut parts, mut stamps) = (ArrayVec::new(), ArrayVec::<(usize, u64), MAX_SOURCES>::new());
        let sources = &mut self.sources;
        self.ring.take(|index, part| {
            let source = &mut sources[index];
            let Some(part) = part else {
                source.counters.missing += 1;
                return parts.extend(reasons.next().map(Err));
            };
            if part.meta.stamp_ns > 0 {
                stamps.push((index, part.meta.stamp_ns));
            }
            source.decided = Some(part.meta.number);
            source.counters.waiting -= 1;
            *(if verdict == Verdict::Dropped {
                &mut source.counters.below_quorum
            } else {
                &mut source.counters.joined
            }) += 1;
            parts.push(Ok(part));
        });
        let by_stamp = matches!(self.config.by, AlignBy::Stamp { .. });
        self.clocks.add_event(&stamps, by_stamp, !self.sources[0].stopped);
        if let (AlignBy::Number, Some((last, _))) = (self.config.by, self.history.last()) {
            self.counters.absent += front.key.saturating_sub(last).saturating_sub(1);
        }
        self.history.add(front.key, front.present);
        *match verdict {
            Verdict::Complete => &mut self.counters.complete,
            Verdict::Partial => &mut self.counters.partial,
            Verdict::Dropped => &mut self.counters.dropped,
        } += 1;
        Some(Event { key: front.key, verdict, parts })
    }
}
