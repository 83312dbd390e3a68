//! Input, output and counters of an aligner.

use arrayvec::ArrayVec;
use shotline_wire::shot::DropCause;

/// Maximum number of sources that can be aligned. (A recording joins at most `shotline_store::shot::MAX_LINKS` of
/// them.)
pub const MAX_SOURCES: usize = 16;

/// Criterion by which items belong to one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlignBy {
    /// They have the same event number.
    Number,
    /// They were taken at the same time.
    Stamp {
        /// Maximum difference between the corrected stamps of one event, in ns. None: a quarter of the shortest usual
        /// time between two items of a source, limited to 10 us to 10 ms.
        window_ns: Option<u64>,
    },
}

/// Configuration of an aligner.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of sources, 1 to [`MAX_SOURCES`]. The first is the clock reference.
    pub sources: usize,
    /// Criterion by which items belong to one event.
    pub by: AlignBy,
    /// Maximum distance that an item may arrive after a newer one of the same source, in numbers or ns; 0 for sources
    /// in order. Decisions about events are delayed by as much.
    pub disorder: u64,
    /// Maximum time that an event waits for its sources, in ns.
    pub timeout_ns: u64,
    /// Minimum number of sources of an event: an event with fewer is dropped.
    pub quorum: usize,
    /// Maximum number of pending events, at least 1.
    pub capacity: usize,
    /// Maximum residual of a locked clock, in ns: how closely its stamps must follow the fitted line.
    pub lock_ns: u64,
}

/// Number and times of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemMeta {
    /// Event number.
    pub number: u64,
    /// Time at which the item was taken, by its source's clock in ns; 0 if unknown.
    pub stamp_ns: u64,
    /// Arrival time by the receiver's clock in ns; 0 if unknown.
    pub arrived_ns: u64,
}

/// A source's item in an event.
#[derive(Debug)]
pub struct Present<T> {
    /// Number and times of the item.
    pub meta: ItemMeta,
    /// The item itself.
    pub item: T,
}

/// Reason why an event has no item of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The source reported the item as lost.
    Lost(DropCause),
    /// The source has stopped, or nothing has arrived from it since the event was opened.
    Silent,
    /// The source is active, but its item did not arrive in time.
    Late,
    /// The source went past the event without reporting a loss.
    Skipped,
}

/// Result of the decision about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every source has an item in it.
    Complete,
    /// Some sources have none.
    Partial,
    /// Fewer sources than the quorum have one.
    Dropped,
}

/// Items that belong together.
#[derive(Debug)]
pub struct Event<T> {
    /// Sort key of the event: its number, or a time in ns.
    pub key: u64,
    /// Result of the decision.
    pub verdict: Verdict,
    /// Each source's item, or the reason why there is none.
    pub parts: ArrayVec<Result<Present<T>, Missing>, MAX_SOURCES>,
}

/// Reason why an item is in no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// Its event was already decided.
    Late,
    /// The event already has an item of this source.
    Duplicate,
    /// It has neither a stamp nor an arrival time, and events are aligned by stamps.
    Unstamped,
    /// No event can be opened: take the decided ones first.
    Full,
}

/// An item that was not accepted, with the reason.
#[derive(Debug)]
pub struct RefusedItem<T> {
    /// Reason for the refusal.
    pub reason: RefusalReason,
    /// The item, returned to the source.
    pub item: T,
}

/// Counters of a source's items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounters {
    /// Items that were pushed.
    pub items: u64,
    /// Of these, items in complete or partial events.
    pub joined: u64,
    /// Items in dropped events.
    pub below_quorum: u64,
    /// Items refused as [`RefusalReason::Late`].
    pub late: u64,
    /// Items refused as [`RefusalReason::Duplicate`].
    pub duplicate: u64,
    /// Items refused as [`RefusalReason::Unstamped`].
    pub unstamped: u64,
    /// Items refused as [`RefusalReason::Full`].
    pub full: u64,
    /// Items in pending events.
    pub waiting: u64,
    /// Items that were reported as lost ([`Aligner::note_loss`](super::Aligner::note_loss)).
    pub lost: u64,
    /// Number of times that the source stopped.
    pub stops: u64,
    /// Number of times that the source came back.
    pub rejoins: u64,
    /// Events decided without an item of the source.
    pub missing: u64,
}

impl SourceCounters {
    /// Returns `true` if every item is in exactly one counter.
    pub fn balance(&self) -> bool {
        let refused = self.late + self.duplicate + self.unstamped + self.full;
        self.items == self.joined + self.below_quorum + refused + self.waiting
    }
}

/// Counters of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounters {
    /// Events with all sources.
    pub complete: u64,
    /// Events with some sources, at least the quorum.
    pub partial: u64,
    /// Events with fewer sources than the quorum.
    pub dropped: u64,
    /// Of all events, those decided because the ring was full.
    pub forced: u64,
    /// Of all events, those decided because `timeout_ns` had passed.
    pub expired: u64,
    /// By number: numbers between events for which no source had an item.
    pub absent: u64,
    /// By stamp: events with an earlier event of the same source within the window.
    pub crowded: u64,
}
