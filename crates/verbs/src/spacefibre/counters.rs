//! Counters of an endpoint.

/// Counters of the packets of an endpoint. Packets received = those passed to queue pairs + drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SpaceFibreCounters {
    /// Packets passed to links.
    pub packets_out: u64,
    /// Packets that the link did not accept in time: it is down, or the far end gives no credit. Their requests are sent
    /// again, or fail.
    pub packets_discarded: u64,
    /// Packets received, whole or cut.
    pub packets_in: u64,
    /// Broadcast messages received.
    pub broadcasts_in: u64,
    /// Packets dropped before they reached a queue pair.
    pub drops: SpaceFibreDropCounters,
}

/// Packets dropped before they reached a queue pair, by the first check that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SpaceFibreDropCounters {
    /// Cut by an EEP.
    pub eep: u64,
    /// Cut by a link reset.
    pub link_reset: u64,
    /// Not an RDMA packet of this version, or its header is not valid.
    pub malformed: u64,
    /// More data than the largest segment of this endpoint.
    pub too_long: u64,
    /// EOP before the end of header, data or data CRC.
    pub early_eop: u64,
    /// Data after the data CRC.
    pub too_much_data: u64,
    /// The data CRC does not match.
    pub bad_data_crc: u64,
    /// Not for this node's logical address, or no queue pair has the destination's number.
    pub unknown_qp: u64,
    /// The queue pair is not an RC queue pair.
    pub wrong_service: u64,
}
