//! What a run tells.

use super::error::Lost;
use std::time::{Duration, Instant};

/// What happens in a run.
#[derive(Clone, Debug)]
pub enum Update {
    /// Tiles are complete.
    Progress(Progress),
    /// What each node has done so far, before the progress that includes it; at most ten times a second.
    Nodes(Vec<NodeReport>),
    /// A node is lost.
    Lost(Lost),
}

/// Time between two of [`Update::Nodes`].
const INTERVAL: Duration = Duration::from_millis(100);

/// When the next [`Update::Nodes`] is due.
#[derive(Default)]
pub(super) struct Pace(Option<Instant>);

impl Pace {
    /// Returns `true` if the last time that it did so is long enough ago.
    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.0.is_none_or(|last| now - last >= INTERVAL);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Steps of complete rounds.
    pub steps: u64,
    /// Complete tiles of all rounds.
    pub tiles: u64,
    /// Tiles of all rounds.
    pub tiles_in_all: u64,
}

/// Times and bytes of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeReport {
    /// Tiles computed.
    pub tiles: u64,
    /// Bytes written to the node, with halos.
    pub bytes_out: u64,
    /// Bytes read back.
    pub bytes_back: u64,
    /// Time in which at least one tile was being written.
    pub writing: Duration,
    /// Sum of the times that commands waited for the one before.
    pub waiting: Duration,
    /// Time that the node computed.
    pub computing: Duration,
    /// Bytes written to other nodes.
    pub bytes_exchanged: u64,
    /// Time that the node wrote to others.
    pub exchanging: Duration,
    /// Time that the node waited for halos.
    pub waiting_for_halos: Duration,
    /// Time in which at least one tile was being read back.
    pub reading: Duration,
    /// Why the node was lost, if it was.
    pub lost: Option<String>,
}

impl NodeReport {
    /// Returns the bytes of tiles that were computed: of one that stays in the node (`resident`) once for each result.
    pub fn computed_bytes(&self, resident: bool) -> u64 {
        if resident { self.tiles * self.bytes_back } else { self.bytes_out }
    }
}

/// What a run took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Each node.
    pub nodes: Vec<NodeReport>,
    /// Time of the run.
    pub elapsed: Duration,
    /// Largest change of the last step, if it was requested.
    pub max_change: f64,
    /// Root of the sum of the squares of the changes of the last step, if it was requested.
    pub l2_change: f64,
}

/// Time in which at least one of several transfers was in progress.
#[derive(Default)]
pub(super) struct Busy {
    active: u32,
    since: Option<Instant>,
    pub(super) total: Duration,
}

impl Busy {
    pub(super) fn begin(&mut self) {
        self.active += 1;
        self.since.get_or_insert_with(Instant::now);
    }

    pub(super) fn end(&mut self) {
        self.active = self.active.saturating_sub(1);
        if self.active == 0 {
            self.total = self.time();
            self.since = None;
        }
    }

    pub(super) fn time(&self) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Returns the larger value, or NaN if one is.
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if b <= a || a.is_nan() { a } else { b }
}
