//! What a probe has done.

use super::faults::{FaultCounts, Injected};
use super::link::{Link, LinkCounts};
use super::pace::PaceCounts;
use super::samples::SourceReport;
use serde::Serialize;

/// Everything that a probe has done.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// The seed of its faults and random numbers.
    pub seed: u64,
    /// Its samples.
    pub source: SourceReport,
    /// Number of the next shot.
    pub next_shot: u64,
    /// Shots and triggers that did not happen.
    pub pace: PaceCounts,
    /// Requests refused.
    pub refused: u64,
    /// Each link.
    pub links: Vec<LinkStats>,
    /// Each fault, if they are kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Injected>,
}

/// Everything that a link has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LinkStats {
    /// Sent.
    #[serde(flatten)]
    pub counts: LinkCounts,
    /// Broken on purpose.
    pub faults: FaultCounts,
}

impl LinkStats {
    /// So far.
    pub(super) fn of(link: &Link) -> Self {
        Self { counts: link.counts(), faults: link.fault_counts() }
    }
}
