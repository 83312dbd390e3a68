//! What a probe has done.

use super::faults::{FaultCounts, Injected};
use super::link::{Link, LinkCounts};
use super::pace::PaceCounts;
use super::samples::SourceReport;
use serde::Serialize;
use shotline_transport::IoError;

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
    /// Runs that a failure to send ended.
    pub failures: Failures,
    /// Each link.
    pub links: Vec<LinkStats>,
    /// Each fault, if they are kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Injected>,
}

/// Runs that ended because a shot could not be sent: to an address that the kernel sends nothing to, or without a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Failures {
    /// How many.
    pub runs: u64,
    /// What the last one failed of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
}

impl Failures {
    pub(super) fn add(&mut self, error: &IoError) {
        *self = Self { runs: self.runs + 1, last: Some(error.to_string()) };
    }
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
