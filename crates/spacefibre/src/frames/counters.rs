//! Counters of a carrier's datagrams.

use serde::{Deserialize, Serialize};

/// Counters of the datagrams of one end. Received = accepted + `old` + `malformed` + `other_lanes` + those that
/// initialise the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameCounters {
    /// Datagrams sent.
    pub datagrams_out: u64,
    /// Datagrams received.
    pub datagrams_in: u64,
    /// Datagrams that were lost, by the gaps in their numbers.
    pub lost: u64,
    /// Datagrams of an old session, duplicates, and those that arrived after a later one.
    pub old: u64,
    /// Datagrams whose header is not valid.
    pub malformed: u64,
    /// Datagrams of a far end with another number of lanes.
    pub other_lanes: u64,
    /// Records that are not valid; the rest of their datagram is dropped.
    pub malformed_records: u64,
    /// Link resets that the far end has begun.
    pub far_end_resets: u64,
}

impl FrameCounters {
    /// Adds the counters of another end.
    pub fn add(&mut self, other: &Self) {
        sum_fields!(self, other: FrameCounters {
            datagrams_out, datagrams_in, lost, old, malformed, other_lanes, malformed_records, far_end_resets,
        });
    }
}
