//! What goes into an aligner, what comes out, and what is counted.

use arrayvec::ArrayVec;
use shotline_wire::shot::DropCause;

/// Most sources that can be aligned. (A recording joins at most `shotline_store::shot::MAX_LINKS` of them.)
pub const MAX_SOURCES: usize = 16;

/// What makes items belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// They have one event number.
    Number,
    /// They were taken at one time.
    Stamp {
        /// Corrected stamps of one event differ by at most so much, in ns. None: by a quarter of the shortest usual time
        /// between two items of a source, 10 us to 10 ms.
        window_ns: Option<u64>,
    },
}

/// What an aligner is made for.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Sources, 1 to [`MAX_SOURCES`]. The first is the clock reference.
    pub sources: usize,
    /// What makes items belong together.
    pub by: By,
    /// How far an item of a source may come behind a newer one of the same source, in numbers or ns; 0 for sources in
    /// order. Events are decided so much later.
    pub disorder: u64,
    /// How long an event waits for its sources, in ns.
    pub patience_ns: u64,
    /// An event of fewer sources is dropped.
    pub quorum: usize,
    /// Events that wait at most, at least 1.
    pub capacity: usize,
    /// A clock whose stamps keep to its line within so much is locked, in ns.
    pub lock_ns: u64,
}

/// What is known of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Its number.
    pub number: u64,
    /// When it was taken, by its source's clock in ns; 0: unknown.
    pub stamp_ns: u64,
    /// When it arrived, by the receiver's clock in ns; 0: unknown.
    pub arrived_ns: u64,
}

/// A source's part of an event.
#[derive(Debug)]
pub struct Here<T> {
    /// What is known of it.
    pub mark: Mark,
    /// The item.
    pub item: T,
}

/// Why a source has no part in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Its item was lost, and it said so.
    Lost(DropCause),
    /// It has stopped: nothing was heard of it.
    Silent,
    /// It is there, but its item did not come in time.
    Late,
    /// It went past the event without a word.
    Skipped,
}

/// How an event was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every source is in it.
    Complete,
    /// Some are not.
    Partial,
    /// Fewer than the quorum are.
    Dropped,
}

/// Items that belong together.
#[derive(Debug)]
pub struct Event<T> {
    /// Its place in the order of events: the number, or a time in ns.
    pub key: u64,
    /// How it was decided.
    pub verdict: Verdict,
    /// Each source's part, or why there is none.
    pub parts: ArrayVec<Result<Here<T>, Missing>, MAX_SOURCES>,
}

/// Why an item is in no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its event was decided before.
    Late,
    /// Its source is in that event already.
    Duplicate,
    /// It has neither a stamp nor a time of arrival, and events are told by stamps.
    Unstamped,
    /// No event can be opened: take those that are decided first.
    Full,
}

/// An item that is in no event, and why.
#[derive(Debug)]
pub struct Refused<T> {
    /// Why.
    pub why: Why,
    /// The item.
    pub item: T,
}

/// What became of a source's items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Items that were pushed.
    pub items: u64,
    /// Of those, in events that were complete or partial.
    pub joined: u64,
    /// In events that were dropped.
    pub below_quorum: u64,
    /// Refused as [`Why::Late`].
    pub late: u64,
    /// Refused as [`Why::Duplicate`].
    pub duplicate: u64,
    /// Refused as [`Why::Unstamped`].
    pub unstamped: u64,
    /// Refused as [`Why::Full`].
    pub full: u64,
    /// In events that wait.
    pub waiting: u64,
    /// Losses that it has told of.
    pub lost: u64,
    /// Times that it stopped.
    pub stops: u64,
    /// Times that it came back.
    pub rejoins: u64,
    /// Events decided without it.
    pub missing: u64,
}

impl SourceCounts {
    /// Whether every item is in exactly one count.
    pub fn balance(&self) -> bool {
        let refused = self.late + self.duplicate + self.unstamped + self.full;
        self.items == self.joined + self.below_quorum + refused + self.waiting
    }
}

/// What became of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events of all sources.
    pub complete: u64,
    /// Events of some, at least the quorum.
    pub partial: u64,
    /// Events of fewer.
    pub dropped: u64,
    /// Of all these, decided because the ring was full.
    pub hurried: u64,
    /// Of all these, decided because the patience was over.
    pub expired: u64,
    /// By number: numbers between events that no source brought.
    pub nobody: u64,
    /// By stamp: events that have an earlier one of the same source within the window.
    pub crowded: u64,
}
