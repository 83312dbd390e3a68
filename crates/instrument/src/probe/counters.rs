//! Counters of a probe.

use super::faults::{FaultCounters, InjectedFault};
use super::link::{Link, LinkCounters};
use super::pace::PaceCounters;
use super::samples::SourceReport;
use serde::Serialize;
use shotline_transport::IoError;
use shotline_wire::shot::Geometry;
use std::net::SocketAddr;

/// Counters and settings of a probe, for reports.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeCounters {
    /// Seed of faults and random numbers.
    pub seed: u64,
    /// Source of the samples.
    pub source: SourceReport,
    /// Number of the next shot.
    pub next_shot: u64,
    /// Triggers missed and shots skipped.
    pub pace: PaceCounters,
    /// Requests refused.
    pub requests_refused: u64,
    /// Runs ended by a send failure.
    pub failures: Failures,
    /// Counters of each link.
    pub links: Vec<LinkReport>,
    /// Injected faults, if they are listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<InjectedFault>,
}

/// State of a probe while it runs.
#[derive(Clone, Debug)]
pub struct ProbeState {
    /// Counters so far, without the list of faults.
    pub counters: ProbeCounters,
    /// Shots are being sent.
    pub is_running: bool,
    /// Geometry of the shots of a link, unless a receiver requests fewer samples.
    pub geometry: Geometry,
    /// Destination of each link, once it is configured.
    pub destinations: Vec<Option<SocketAddr>>,
}

/// Counters of runs that ended because a shot could not be sent: the kernel refused the address, or there was no link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Failures {
    /// Number of runs.
    pub runs: u64,
    /// Error of the last of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl Failures {
    pub(super) fn add(&mut self, error: &IoError) {
        *self = Self { runs: self.runs + 1, last_error: Some(error.to_string()) };
    }
}

/// Counters of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LinkReport {
    /// Sent shots and packets.
    #[serde(flatten)]
    pub counters: LinkCounters,
    /// Injected faults.
    pub faults: FaultCounters,
}

impl LinkReport {
    /// Returns the link's current counters.
    pub(super) fn of(link: &Link) -> Self {
        Self { counters: link.counters(), faults: link.fault_counters() }
    }
}
