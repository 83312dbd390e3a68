//! Several sources in step: items of each that belong together become one event.
//!
//! [`Aligner`] is a state machine without I/O, clock or threads; time comes in as an argument. Sources [`push`] items in
//! any interleaving, late, twice or out of order; whole events come out of [`pop`] in the order of their keys. A key is
//! the item's event number, or its stamp brought to the clock of the first source ([`By`]).
//!
//! | an event is | when |
//! |---|---|
//! | complete | every source is in it |
//! | partial | some are, at least the quorum; of each that is not it says why ([`Missing`]) |
//! | dropped | fewer than the quorum; its items come out all the same, so that they can be accounted for |
//!
//! It is decided as soon as no source can still bring anything to it: each is in it, has gone past it, or has stopped.
//! Otherwise after [`Config::patience_ns`], or when the ring of waiting events is full and it is the oldest. A source
//! that had let an event wait that long without a word has *stopped*, and nobody waits for it until it comes back. So
//! memory is bounded, and events are late by the patience once, not for ever. Nor does anybody wait for a source that is
//! there, but further behind than the ring is long (by stamp: than the patience): it counts anew, or its clock is off.
//!
//! What comes after its event was decided is refused as [`Why::Late`], a second item of a source for one event as
//! [`Why::Duplicate`] (of events decided longer ago than the ring is long it is late, too). Every item is in exactly one
//! count ([`SourceCounts::balance`]).
//!
//! # Stamps
//!
//! An item belongs to the event whose key is nearest, if that is within the window and has nothing of its source yet. The
//! window should be less than half the time between events; if nobody says how wide it is, it is a quarter of it. If it is wider, events of one source that follow each other
//! within it stay events of their own ([`Counts::crowded`] tells that there were such); items of other sources go to the
//! nearest that is free, so they may be put together wrongly, but never lost. How clocks are followed is told in `clocks`
//! and `filter`; before a clock is known to the window, items must arrive within the window of each other to be joined.
//!
//! [`push`]: Aligner::push
//! [`pop`]: Aligner::pop

mod clocks;
mod filter;
mod intervals;
mod ring;
#[cfg(test)]
mod tests;
mod types;

use arrayvec::ArrayVec;
pub use clocks::ClockState;
use clocks::Clocks;
use intervals::Intervals;
use ring::{History, Mask, Ring};
use shotline_wire::shot::DropCause;
use std::collections::VecDeque;
pub use types::{By, Config, Counts, Event, Here, MAX_SOURCES, Mark, Missing, Refused, SourceCounts, Verdict, Why};

/// Runs of lost items that each source is remembered for, to say why it is missing.
const GAPS: usize = 16;
/// Bounds of a window that follows from the time between items, in ns.
const WINDOW_NS: (u64, u64) = (10_000, 10_000_000);
/// It is this part of the shortest that is usual.
const WINDOW_SHARE: u64 = 4;
/// Events that wait at most, whatever is asked for.
const MOST_CAPACITY: usize = 1 << 24;

#[derive(Debug)]
struct Source {
    counts: SourceCounts,
    /// The newest key that it has passed.
    newest: Option<u64>,
    /// When it was last heard of; before its first word none.
    heard_ns: Option<u64>,
    stopped: bool,
    /// Its last item was so late that it cannot catch up with events that wait.
    astray: bool,
    /// The number of its item that was decided last.
    decided: Option<u64>,
    /// The stamp of its newest item, and the times between the newest.
    stamp_ns: u64,
    intervals: Intervals,
    gaps: VecDeque<Gap>,
}

/// Keys that a source has nothing for: numbers, or times that a newer item has yet to bound.
#[derive(Clone, Copy, Debug)]
struct Gap {
    first: u64,
    last: u64,
    cause: DropCause,
}

impl Source {
    fn new() -> Self {
        let gaps = VecDeque::with_capacity(GAPS);
        Self {
            counts: SourceCounts::default(),
            newest: None,
            heard_ns: None,
            stopped: false,
            astray: false,
            decided: None,
            stamp_ns: 0,
            intervals: Intervals::new(),
            gaps,
        }
    }

    fn reach(&mut self, key: u64) {
        self.newest = Some(self.newest.map_or(key, |newest| newest.max(key)));
    }

    fn gap(&mut self, gap: Gap) {
        if let Some(last) = self.gaps.back_mut()
            && last.cause == gap.cause
            && (last.last == u64::MAX || last.last + 1 == gap.first)
        {
            last.last = gap.last;
            return;
        }
        if self.gaps.len() == GAPS {
            self.gaps.pop_front();
        }
        self.gaps.push_back(gap);
    }
}

/// Puts items of several sources together. See the module.
#[derive(Debug)]
pub struct Aligner<T> {
    config: Config,
    /// 0 by number.
    window: u64,
    /// Who is further behind than this, in keys, is not waited for.
    reach: u64,
    all: Mask,
    sources: ArrayVec<Source, MAX_SOURCES>,
    ring: Ring<T>,
    history: History,
    clocks: Clocks,
    counts: Counts,
    /// When the first source was heard of.
    begun_ns: Option<u64>,
}

impl<T> Aligner<T> {
    /// Makes an aligner; all the memory that it will need is taken now.
    ///
    /// # Panics
    /// With no source or more than [`MAX_SOURCES`].
    pub fn new(config: Config) -> Self {
        let Config { sources, by, lock_ns, .. } = config;
        assert!((1..=MAX_SOURCES).contains(&sources), "expected 1 to {MAX_SOURCES} sources, found {sources}");
        let capacity = config.capacity.clamp(1, MOST_CAPACITY);
        Self {
            config,
            window: if let By::Stamp { window_ns } = by { window_ns.unwrap_or(WINDOW_NS.0).max(1) } else { 0 },
            reach: if let By::Number = by { capacity as u64 } else { config.patience_ns },
            all: (1 << sources) - 1,
            sources: (0..sources).map(|_| Source::new()).collect(),
            ring: Ring::new(capacity, sources),
            history: History::new(capacity),
            clocks: Clocks::new(sources, lock_ns),
            counts: Counts::default(),
            begun_ns: None,
        }
    }

    /// Takes an item of a source at this time (of any steady clock, in ns). Take what [`Self::pop`] has after each.
    ///
    /// # Panics
    /// If there is no such source.
    pub fn push(&mut self, source: usize, now_ns: u64, mark: Mark, item: T) -> Result<(), Refused<T>> {
        self.hear(source, now_ns, mark);
        self.follow(source, mark.stamp_ns);
        self.sources[source].counts.items += 1;
        let place = self.key(source, mark).ok_or(Why::Unstamped).and_then(|key| self.place(source, key, mark, now_ns));
        let counts = &mut self.sources[source].counts;
        let (count, result) = match place {
            Ok(rank) => {
                self.ring.put(rank, source, Here { mark, item });
                (&mut counts.waiting, Ok(()))
            }
            Err(why) => {
                let count = match why {
                    Why::Late => &mut counts.late,
                    Why::Duplicate => &mut counts.duplicate,
                    Why::Unstamped => &mut counts.unstamped,
                    Why::Full => &mut counts.full,
                };
                (count, Err(Refused { why, item }))
            }
        };
        *count += 1;
        result
    }

    /// A source tells that `count` items from number `first` on are lost. One that has stopped comes back with an item, not
    /// with a loss: that may be what a receiver concludes from its silence.
    ///
    /// # Panics
    /// If there is no such source.
    pub fn lose(&mut self, source: usize, now_ns: u64, cause: DropCause, first: u64, count: u64) {
        if !self.sources[source].stopped {
            self.hear(source, now_ns, Mark::default());
        }
        let by = self.config.by;
        let source = &mut self.sources[source];
        source.counts.lost = source.counts.lost.saturating_add(count);
        let Some(last) = count.checked_sub(1).map(|more| first.saturating_add(more)) else { return };
        match by {
            By::Number => {
                source.reach(last);
                source.gap(Gap { first, last, cause });
            }
            // Between its newest item and the next one.
            By::Stamp { .. } => {
                let first = source.newest.map_or(0, |newest| newest.saturating_add(1));
                source.gap(Gap { first, last: u64::MAX, cause });
            }
        }
    }

    /// The next event that is decided by this time.
    pub fn pop(&mut self, now_ns: u64) -> Option<Event<T>> {
        let front = self.ring.front()?;
        let settled = (0..self.sources.len()).all(|source| self.is_past(source, front.key, front.here))
            || front.here == self.all && self.is_next(front.key);
        if !settled {
            let expired = now_ns.saturating_sub(front.opened_ns) >= self.config.patience_ns;
            if !expired && !self.ring.is_full() {
                return None;
            }
            *(if expired { &mut self.counts.expired } else { &mut self.counts.hurried }) += 1;
            self.stop_the_silent(now_ns);
        }
        self.decide()
    }

    /// The next event, although sources may still have had something for it: for the end.
    pub fn flush(&mut self) -> Option<Event<T>> {
        self.decide()
    }

    /// What became of a source's items.
    pub fn source(&self, source: usize) -> &SourceCounts {
        &self.sources[source].counts
    }
    /// Whether a source has stopped, and nobody waits for it.
    pub fn is_stopped(&self, source: usize) -> bool {
        self.sources[source].stopped
    }
    /// A source's clock as it is known by now.
    pub fn clock(&self, source: usize) -> ClockState {
        let state = self.clocks.state(source);
        ClockState { locked: state.locked && !self.sources[source].stopped, ..state }
    }
    /// What became of events.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
    /// How far stamps of one event may be apart by now, in ns; 0 by number.
    pub fn window_ns(&self) -> u64 {
        self.window
    }
    /// Events that wait.
    pub fn waiting(&self) -> usize {
        self.ring.len()
    }

    fn hear(&mut self, source: usize, now_ns: u64, mark: Mark) {
        self.begun_ns.get_or_insert(now_ns);
        let state = &mut self.sources[source];
        state.heard_ns = Some(now_ns);
        if std::mem::take(&mut state.stopped) {
            state.counts.rejoins += 1;
            self.clocks.rejoined(source, mark.stamp_ns, mark.arrived_ns);
        }
        if mark.stamp_ns > 0 && mark.arrived_ns > 0 {
            self.clocks.arrived(source, mark.stamp_ns, mark.arrived_ns);
        }
    }

    /// Has the window follow from the time between items, if nobody has said how wide it is.
    fn follow(&mut self, source: usize, stamp_ns: u64) {
        let before = std::mem::replace(&mut self.sources[source].stamp_ns, stamp_ns);
        if self.config.by == (By::Stamp { window_ns: None }) && before > 0 && stamp_ns > before {
            self.sources[source].intervals.add(stamp_ns - before);
            let shortest = self.sources.iter().filter_map(|source| source.intervals.usual()).min();
            self.window = shortest.map_or(WINDOW_NS.0, |ns| (ns / WINDOW_SHARE).clamp(WINDOW_NS.0, WINDOW_NS.1));
        }
    }

    fn key(&self, source: usize, mark: Mark) -> Option<u64> {
        match self.config.by {
            By::Number => Some(mark.number),
            By::Stamp { .. } => self.clocks.key(source, mark.stamp_ns, mark.arrived_ns),
        }
    }

    /// The rank of the event that an item belongs to, which is opened if there is none.
    fn place(&mut self, source: usize, key: u64, mark: Mark, now_ns: u64) -> Result<usize, Why> {
        let window = self.window;
        let state = &mut self.sources[source];
        if window > 0
            && let Some(open) = state.gaps.back_mut().filter(|gap| gap.last == u64::MAX)
        {
            open.last = key.saturating_sub(1).max(open.first);
        }
        state.reach(key);
        if let Some((last, here)) = self.history.last()
            && key <= last.saturating_add(window)
        {
            let had = self.history.had(source, key, window);
            if key <= last {
                self.sources[source].astray = !had && last - key > self.reach;
                return Err(if had { Why::Duplicate } else { Why::Late });
            }
            // Behind it, but within its window: the same again, or a part of it that comes late, unless it has one.
            if self.sources[source].decided == Some(mark.number) {
                return Err(Why::Duplicate);
            }
            if here & 1 << source == 0 && self.nearest(source, key, mark)?.is_none() {
                return Err(Why::Late);
            }
        }
        self.sources[source].astray = false;
        let rank = match self.nearest(source, key, mark)? {
            Some(rank) => return Ok(rank),
            None => self.ring.rank(key),
        };
        let crowded = window > 0 && self.is_crowded(source, key);
        if !self.ring.open(rank, key, now_ns) {
            return Err(Why::Full);
        }
        self.counts.crowded += u64::from(crowded);
        Ok(rank)
    }

    /// The nearest event that waits within the window and has nothing of this source.
    fn nearest(&self, source: usize, key: u64, mark: Mark) -> Result<Option<usize>, Why> {
        let from = self.ring.rank(key.saturating_sub(self.window));
        let mut best = None;
        for rank in from..self.ring.len() {
            let waiting = self.ring.get(rank);
            let distance = waiting.key.abs_diff(key);
            if distance > self.window {
                break;
            }
            match self.ring.part(rank, source) {
                Some(other) if other.mark.number == mark.number => return Err(Why::Duplicate),
                Some(_) => {}
                None if best.is_none_or(|(nearest, _)| distance < nearest) => best = Some((distance, rank)),
                None => {}
            }
        }
        Ok(best.map(|(_, rank)| rank))
    }

    /// Whether an event within the window has an item of this source.
    fn is_crowded(&self, source: usize, key: u64) -> bool {
        let from = self.ring.rank(key.saturating_sub(self.window));
        let near =
            (from..self.ring.len()).take_while(|rank| self.ring.get(*rank).key <= key.saturating_add(self.window));
        near.into_iter().any(|rank| self.ring.get(rank).here & 1 << source != 0)
            || self.history.had(source, key, self.window)
    }

    /// Whether a source cannot bring anything any more to an event, or to one before it.
    fn is_past(&self, source: usize, key: u64, here: Mask) -> bool {
        let Source { newest, stopped, astray, .. } = self.sources[source];
        if stopped || astray {
            return true;
        }
        let Some(newest) = newest else { return false };
        let behind = key.saturating_add(self.config.disorder);
        if here & 1 << source != 0 {
            newest >= behind
        } else {
            newest > behind.saturating_add(self.window) || newest >= behind && self.lost(source, key).is_some()
        }
    }

    /// Why a source has nothing with this key, if it told.
    fn lost(&self, source: usize, key: u64) -> Option<DropCause> {
        let mut gaps = self.sources[source].gaps.iter().rev();
        gaps.find(|gap| (gap.first..=gap.last).contains(&key)).map(|gap| gap.cause)
    }

    /// By number: whether nothing can be missing between the event that was decided last and this one.
    fn is_next(&self, key: u64) -> bool {
        self.window == 0 && self.history.last().is_some_and(|(last, _)| last.checked_add(1) == Some(key))
    }

    /// The oldest event goes without them: sources that said nothing since before it, and for the patience, have stopped.
    fn stop_the_silent(&mut self, now_ns: u64) {
        let Some(front) = self.ring.front() else { return };
        for (index, source) in self.sources.iter_mut().enumerate() {
            let silent = source.heard_ns.is_none_or(|heard| heard < front.opened_ns)
                && now_ns.saturating_sub(source.heard_ns.unwrap_or(self.begun_ns.unwrap_or(0)))
                    >= self.config.patience_ns;
            if silent && !source.stopped && front.here & 1 << index == 0 {
                source.stopped = true;
                source.counts.stops += 1;
            }
        }
    }

    fn why(&self, source: usize, front: &ring::Waiting) -> Missing {
        let state = &self.sources[source];
        match self.lost(source, front.key) {
            Some(cause) => Missing::Lost(cause),
            None if state.stopped => Missing::Silent,
            None if state.astray => Missing::Late,
            None if self.is_past(source, front.key, front.here) => Missing::Skipped,
            None if state.heard_ns.is_none_or(|heard| heard < front.opened_ns) => Missing::Silent,
            None => Missing::Late,
        }
    }

    fn decide(&mut self) -> Option<Event<T>> {
        let front = *self.ring.front()?;
        let here = front.here.count_ones() as usize;
        let verdict = match here {
            _ if here < self.config.quorum.max(1) => Verdict::Dropped,
            _ if front.here == self.all => Verdict::Complete,
            _ => Verdict::Partial,
        };
        let why: ArrayVec<Missing, MAX_SOURCES> = (0..self.sources.len())
            .filter(|source| front.here & 1 << source == 0)
            .map(|source| self.why(source, &front))
            .collect();
        let mut why = why.into_iter();
        let (mut parts, mut stamps) = (ArrayVec::new(), ArrayVec::<(usize, u64), MAX_SOURCES>::new());
        let sources = &mut self.sources;
        self.ring.take(|index, part| {
            let source = &mut sources[index];
            let Some(part) = part else {
                source.counts.missing += 1;
                return parts.extend(why.next().map(Err));
            };
            if part.mark.stamp_ns > 0 {
                stamps.push((index, part.mark.stamp_ns));
            }
            source.decided = Some(part.mark.number);
            source.counts.waiting -= 1;
            *(if verdict == Verdict::Dropped { &mut source.counts.below_quorum } else { &mut source.counts.joined }) +=
                1;
            parts.push(Ok(part));
        });
        let by_stamp = matches!(self.config.by, By::Stamp { .. });
        self.clocks.event(&stamps, by_stamp, !self.sources[0].stopped);
        if let (By::Number, Some((last, _))) = (self.config.by, self.history.last()) {
            self.counts.nobody += front.key.saturating_sub(last).saturating_sub(1);
        }
        self.history.add(front.key, front.here);
        *match verdict {
            Verdict::Complete => &mut self.counts.complete,
            Verdict::Partial => &mut self.counts.partial,
            Verdict::Dropped => &mut self.counts.dropped,
        } += 1;
        Some(Event { key: front.key, verdict, parts })
    }
}
