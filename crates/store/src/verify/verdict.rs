//! Result of a verification.

use serde::Serialize;
use std::path::PathBuf;

/// Result of a verification.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Path of the recording.
    pub path: PathBuf,
    /// No mismatches were found.
    pub verified: bool,
    /// The run ended normally, so its final counters were checked.
    pub finished: bool,
    /// Number of rows.
    pub rows: u64,
    /// Results per link.
    pub links: Vec<LinkVerdict>,
    /// Shots in `/losses`.
    pub lost_shots: u64,
    /// Test patterns were compared.
    pub pattern: bool,
    /// Number of mismatches.
    pub mismatches: u64,
    /// Descriptions of the first mismatches.
    pub first_mismatches: Vec<String>,
    /// Bytes read from slots.
    pub bytes: u64,
    /// Duration of the verification, in seconds.
    pub seconds: f64,
}

/// Result of one link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkVerdict {
    /// Stream of the link.
    pub stream: u32,
    /// Complete shots.
    pub complete: u64,
    /// Partial shots.
    pub partial: u64,
    /// Lost shots.
    pub lost: u64,
    /// Lost shots whose write failed.
    pub sink_error: u64,
    /// Records whose CRC is valid over the whole shot.
    pub records: u64,
    /// Packets compared with the test pattern.
    pub pattern_packets: u64,
    /// Shots without a valid record, if all their packets arrived or their packets have no CRC. They are not compared
    /// with the pattern.
    pub unverified: u64,
}

impl LinkVerdict {
    pub(super) fn merge(&mut self, other: &Self) {
        self.complete += other.complete;
        self.partial += other.partial;
        self.lost += other.lost;
        self.sink_error += other.sink_error;
        self.records += other.records;
        self.pattern_packets += other.pattern_packets;
        self.unverified += other.unverified;
    }
}
