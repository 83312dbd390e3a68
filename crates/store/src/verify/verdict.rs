//! What a verification found.

use serde::Serialize;
use std::path::PathBuf;

/// What a verification found.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The file.
    pub path: PathBuf,
    /// Nothing contradicts anything.
    pub verified: bool,
    /// The run ended in order, so its books were there to be checked.
    pub finished: bool,
    /// Rows.
    pub rows: u64,
    /// The links.
    pub links: Vec<LinkVerdict>,
    /// Shots in `/losses`.
    pub lost_shots: u64,
    /// Whether test patterns were compared.
    pub pattern: bool,
    /// Contradictions.
    pub mismatches: u64,
    /// The first of them.
    pub described: Vec<String>,
    /// Bytes read from slots.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
}

/// What was found of one link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkVerdict {
    /// Its stream.
    pub stream: u32,
    /// Complete shots.
    pub complete: u64,
    /// Partial shots.
    pub partial: u64,
    /// Lost shots.
    pub lost: u64,
    /// Of the lost ones, those whose write failed.
    pub sink_error: u64,
    /// Records whose CRC was found to hold over the whole shot.
    pub records: u64,
    /// Packets compared with the test pattern.
    pub pattern_packets: u64,
    /// Shots with all packets whose record does not prove them; not compared with the pattern.
    pub unproven: u64,
}

impl LinkVerdict {
    pub(super) fn merge(&mut self, other: &Self) {
        self.complete += other.complete;
        self.partial += other.partial;
        self.lost += other.lost;
        self.sink_error += other.sink_error;
        self.records += other.records;
        self.pattern_packets += other.pattern_packets;
        self.unproven += other.unproven;
    }
}
