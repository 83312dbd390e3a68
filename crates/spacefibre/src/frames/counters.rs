//! Counters of a carrier's datagrams.

/// Counters of the datagrams of one end. Received = accepted + `old` + `malformed` + `other_lanes` + those that
/// initialise the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
