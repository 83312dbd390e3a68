//! What happened to one queue pair, counted.

use shotline_memory::Refused;
use shotline_wire::aeth::NakCode;

/// Counters of a queue pair. Every packet that came in is counted in `packets_in`, and if it was not used, once more
/// by its cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Books {
    /// Packets that were for this queue pair.
    pub packets_in: u64,
    /// Packets that it sent.
    pub packets_out: u64,
    /// Payload bytes of requests and READ responses that were accepted, without padding.
    pub bytes_in: u64,
    /// Payload bytes that it sent, those sent again and padding included.
    pub bytes_out: u64,
    /// Payload bytes that had to be moved after they had landed, because their place was not known before.
    pub bytes_copied: u64,
    /// Packets that it sent again.
    pub retransmitted: u64,
    /// Requests and responses that had arrived before (by their sequence numbers).
    pub duplicates: u64,
    /// Packets that came ahead of one that is missing, or (UC) told that some are.
    pub out_of_sequence: u64,
    /// Messages given up because a packet of them was lost (UC).
    pub abandoned: u64,
    /// Acknowledgements that came in, READ responses and atomic ones apart.
    pub acks_in: u64,
    /// Acknowledgements that it sent.
    pub acks_out: u64,
    /// Negative acknowledgements that came in.
    pub naks_in: Naks,
    /// Negative acknowledgements that it sent.
    pub naks_out: Naks,
    /// Times that no answer came in time.
    pub timeouts: u64,
    /// Congestion notification packets that came in.
    pub cnps_in: u64,
    /// Congestion notification packets that it sent.
    pub cnps_out: u64,
    /// What was refused, by cause.
    pub refused: Refusals,
}

/// Negative acknowledgements by code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Naks {
    /// A packet is missing.
    pub sequence: u64,
    /// Invalid request.
    pub invalid: u64,
    /// Key, bounds or rights.
    pub access: u64,
    /// The responder could not.
    pub operational: u64,
    /// No receive was posted.
    pub receiver_not_ready: u64,
}

impl Naks {
    /// Counts one.
    pub(super) fn count(&mut self, code: NakCode) {
        *match code {
            NakCode::PsnSequenceError => &mut self.sequence,
            NakCode::InvalidRequest | NakCode::InvalidRdRequest => &mut self.invalid,
            NakCode::RemoteAccessError => &mut self.access,
            NakCode::RemoteOperationalError => &mut self.operational,
        } += 1;
    }
}

/// Packets that were dropped because something about them was wrong, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Refusals {
    /// A remote key that is unknown, of another domain or queue pair, or has expired.
    pub bad_key: u64,
    /// The memory, or the queue pair, does not allow it.
    pub bad_rights: u64,
    /// Not all bytes are inside the memory, or an atomic operation is not on a multiple of 8.
    pub bad_bounds: u64,
    /// A sequence number that cannot be: a response to what was not asked, a READ again that never was.
    pub bad_psn: u64,
    /// An acknowledgement of what was never sent, or is acknowledged already.
    pub bad_ack: u64,
    /// An opcode that does not follow the one before, or that the queue pair has not.
    pub bad_opcode: u64,
    /// A payload or message length that cannot be.
    pub bad_length: u64,
    /// In a state in which packets are not received.
    pub bad_state: u64,
    /// From somebody else than the peer.
    pub bad_source: u64,
    /// A partition key of another partition.
    pub bad_partition: u64,
    /// A queue key that is not the queue pair's (UD).
    pub bad_q_key: u64,
    /// No receive was posted.
    pub no_receive: u64,
    /// More READs and atomic operations at once than were agreed.
    pub too_many: u64,
    /// Negative acknowledgements that were not sent, because one was a moment ago.
    pub naks_held: u64,
}

impl Refusals {
    /// Counts a memory refusal.
    pub(super) fn count(&mut self, refused: Refused) {
        *match refused {
            Refused::UnknownKey | Refused::ForeignDomain | Refused::ForeignQueuePair | Refused::Expired => {
                &mut self.bad_key
            }
            Refused::Rights => &mut self.bad_rights,
            Refused::Bounds | Refused::Misaligned => &mut self.bad_bounds,
        } += 1;
    }
}
