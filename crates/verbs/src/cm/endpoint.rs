//! What the connection manager asks of providers besides the verbs.

use crate::api::{Mtu, Provider, Qp};
use crate::engine::{Books, Refusals};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What the connection manager has to know of a provider besides its verbs.
pub trait Endpoint: Provider {
    /// Where its packets come from; none if it is reached by other means.
    fn address(&self) -> Option<SocketAddr>;
    /// The longest payload that its path carries, as far as it knows.
    fn mtu(&self) -> Mtu;
    /// What happened to a queue pair.
    fn tally(&self, qp: Qp) -> Tally;
    /// What happened to the endpoint as a whole; refused is what was dropped before any queue pair saw it. Packets that
    /// arrived are those of all queue pairs, past ones included, and these.
    fn total(&self) -> Tally;
}

/// What happened to queue pairs, as far as their provider knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Tally {
    /// Packets that arrived.
    pub packets_in: u64,
    /// Packets that were sent.
    pub packets_out: u64,
    /// Of these, packets that were sent again.
    pub retransmitted: u64,
    /// Times that no answer came in time.
    pub timeouts: u64,
    /// Packets whose payload was copied before it was sealed, because others may change it meanwhile: of files, of shared
    /// memory, of a device, and all that are sent again. Known of an endpoint as a whole.
    pub packets_copied: u64,
    /// What was refused, by cause; causes that never occurred are missing.
    pub refused: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        self.packets_in += other.packets_in;
        self.packets_out += other.packets_out;
        self.retransmitted += other.retransmitted;
        self.timeouts += other.timeouts;
        self.packets_copied += other.packets_copied;
        other.refused.iter().for_each(|(cause, count)| *self.refused.entry(cause).or_default() += count);
    }
}

impl From<&Books> for Tally {
    fn from(books: &Books) -> Self {
        let Refusals {
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
            naks_held: _, // what was refused is counted under its cause
        } = books.refused;
        let refused = [
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
            packets_in: books.packets_in,
            packets_out: books.packets_out,
            retransmitted: books.retransmitted,
            timeouts: books.timeouts,
            packets_copied: 0,
            refused: refused.into_iter().filter(|(_, count)| *count > 0).collect(),
        }
    }
}
