//! The interface that the connection manager needs in addition to the verbs.

use crate::api::{Mtu, Provider, Qp};
use crate::engine::{QpCounters, QpDropCounters};
use crate::spacefibre::{LinkParameters, LinksStatus};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Provider with the properties that the connection manager needs.
pub trait Endpoint: Provider {
    /// Returns the source address of its packets; `None` if it is not reached by IP.
    fn address(&self) -> Option<SocketAddr>;
    /// Returns the maximum MTU of its path, as far as known.
    fn mtu(&self) -> Mtu;
    /// Returns the counters of a queue pair.
    fn counters_of(&self, qp: Qp) -> EndpointCounters;
    /// Returns the counters of the endpoint: `drops` are packets dropped before they reached a queue pair, and
    /// `packets_in` is the sum over all queue pairs, destroyed ones included, plus these packets.
    fn total_counters(&self) -> EndpointCounters;
    /// Returns the options of its SpaceFibre links that far ends must have in common with it; `None`: it has no links.
    fn link_parameters(&self) -> Option<LinkParameters>;
    /// Returns the counters of its SpaceFibre links and their packets, and the status of the links from the one with
    /// index `first` on, at most `max`; `None`: it has no links.
    fn links(&self, first: usize, max: usize) -> Option<LinksStatus>;
}

/// Counters of queue pairs, as far as their provider has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct EndpointCounters {
    /// Packets received.
    pub packets_in: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Packets sent that were retransmissions.
    pub retransmitted: u64,
    /// Expirations of the acknowledgement timeout.
    pub timeouts: u64,
    /// Packets whose payload was copied before it was sealed because it may change concurrently: payloads in files, in
    /// shared memory, on a device, and all retransmissions. Counted per endpoint only.
    pub packets_copied: u64,
    /// Dropped packets by cause; causes with a count of 0 are missing.
    pub drops: BTreeMap<&'static str, u64>,
}

impl EndpointCounters {
    /// Adds other counters.
    pub fn add(&mut self, other: &Self) {
        self.packets_in += other.packets_in;
        self.packets_out += other.packets_out;
        self.retransmitted += other.retransmitted;
        self.timeouts += other.timeouts;
        self.packets_copied += other.packets_copied;
        other.drops.iter().for_each(|(cause, count)| *self.drops.entry(cause).or_default() += count);
    }
}

impl From<&QpCounters> for EndpointCounters {
    fn from(counters: &QpCounters) -> Self {
        let QpDropCounters {
            bad_key,
            bad_rights,
            bad_bounds,
            bad_psn,
            bad_ack,
            bad_opcode,
            bad_length,
            bad_state,
            bad_source,
            bad_partition,
            bad_q_key,
            no_receive,
            too_many,
        } = counters.drops;
        let drops = [
            ("bad_key", bad_key),
            ("bad_rights", bad_rights),
            ("bad_bounds", bad_bounds),
            ("bad_psn", bad_psn),
            ("bad_ack", bad_ack),
            ("bad_opcode", bad_opcode),
            ("bad_length", bad_length),
            ("bad_state", bad_state),
            ("bad_source", bad_source),
            ("bad_partition", bad_partition),
            ("bad_q_key", bad_q_key),
            ("no_receive", no_receive),
            ("too_many", too_many),
        ];
        Self {
            packets_in: counters.packets_in,
            packets_out: counters.packets_out,
            retransmitted: counters.retransmitted,
            timeouts: counters.timeouts,
            packets_copied: 0,
            drops: drops.into_iter().filter(|(_, count)| *count > 0).collect(),
        }
    }
}
