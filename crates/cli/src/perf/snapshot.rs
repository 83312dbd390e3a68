//! Counters before and after an iteration.

use std::time::Instant;

/// Counters of both sides at one time.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// Time of the snapshot.
    pub at: Instant,
    /// This side's processor time, in seconds.
    pub own_cpu: f64,
    /// The target's processor time, in seconds.
    pub target_cpu: f64,
    /// Packets retransmitted by both sides.
    pub retransmitted: u64,
    /// Response timeouts on both sides.
    pub timeouts: u64,
    /// Bytes that the target has received as messages, or written or read by its own operations.
    pub role_bytes: u64,
    /// Sequence number of the snapshot, from 1.
    pub number: u64,
}

impl Snapshot {
    /// Returns a number that is unique to this snapshot and operation, for a ping.
    pub fn ping(&self, operation: u64) -> u64 {
        self.number << 40 | operation
    }
}
