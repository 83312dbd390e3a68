//! Counters of an endpoint.

use serde::{Deserialize, Serialize};

/// Counters of the packets of an endpoint. Packets received = those passed to queue pairs + drops. Packets that queue
/// pairs have sent = those passed to links + those discarded + those that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceFibreCounters {
    /// Packets passed to links.
    pub packets_out: u64,
    /// Packets that the link did not accept in time, because it is down or the far end gives no credit; that a link reset
    /// has cut; or that waited when their link ended. Their requests are sent again, or fail.
    pub packets_discarded: u64,
    /// Packets received, whole or cut.
    pub packets_in: u64,
    /// Broadcast messages received.
    pub broadcasts_in: u64,
    /// Packets dropped before they reached a queue pair.
    pub drops: SpaceFibreDropCounters,
}

/// Packets dropped before they reached a queue pair, by the first check that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

impl SpaceFibreCounters {
    /// Adds the counters of another endpoint.
    pub fn add(&mut self, other: &Self) {
        let Self { packets_out, packets_discarded, packets_in, broadcasts_in, drops } = other;
        self.packets_out += packets_out;
        self.packets_discarded += packets_discarded;
        self.packets_in += packets_in;
        self.broadcasts_in += broadcasts_in;
        self.drops.add(drops);
    }
}

impl SpaceFibreDropCounters {
    /// Returns the names of the causes with their counts.
    pub fn by_cause(&self) -> [(&'static str, u64); 9] {
        [
            ("eep", self.eep),
            ("link_reset", self.link_reset),
            ("malformed", self.malformed),
            ("too_long", self.too_long),
            ("early_eop", self.early_eop),
            ("too_much_data", self.too_much_data),
            ("bad_data_crc", self.bad_data_crc),
            ("unknown_qp", self.unknown_qp),
            ("wrong_service", self.wrong_service),
        ]
    }

    /// Adds other drops.
    fn add(&mut self, other: &Self) {
        let Self {
            eep,
            link_reset,
            malformed,
            too_long,
            early_eop,
            too_much_data,
            bad_data_crc,
            unknown_qp,
            wrong_service,
        } = other;
        self.eep += eep;
        self.link_reset += link_reset;
        self.malformed += malformed;
        self.too_long += too_long;
        self.early_eop += early_eop;
        self.too_much_data += too_much_data;
        self.bad_data_crc += bad_data_crc;
        self.unknown_qp += unknown_qp;
        self.wrong_service += wrong_service;
    }
}
