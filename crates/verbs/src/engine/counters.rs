//! Counters of one queue pair.

use shotline_memory::AccessError;
use shotline_wire::aeth::NakCode;

/// Counters of a queue pair. Every received packet is counted in `packets_in`, and if it was not used, once more by its
/// drop cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct QpCounters {
    /// Packets received for this queue pair.
    pub packets_in: u64,
    /// Packets sent.
    pub packets_out: u64,
    /// Payload bytes of accepted requests and READ responses, without padding.
    pub bytes_in: u64,
    /// Payload bytes sent, retransmissions and padding included.
    pub bytes_out: u64,
    /// Payload bytes copied after reception because their destination was not known before.
    pub bytes_copied: u64,
    /// Packets retransmitted.
    pub retransmitted: u64,
    /// Duplicate requests and responses (by PSN).
    pub duplicates: u64,
    /// Packets received ahead of a missing one (RC), or after a gap (UC).
    pub out_of_sequence: u64,
    /// Messages abandoned because one of their packets was lost (UC).
    pub abandoned: u64,
    /// Acknowledgements received, without READ responses and atomic acknowledgements.
    pub acks_in: u64,
    /// Acknowledgements sent.
    pub acks_out: u64,
    /// Negative acknowledgements received.
    pub naks_in: NakCounters,
    /// Negative acknowledgements sent.
    pub naks_out: NakCounters,
    /// Expirations of the acknowledgement timeout.
    pub timeouts: u64,
    /// Congestion notification packets received.
    pub cnps_in: u64,
    /// Congestion notification packets sent.
    pub cnps_out: u64,
    /// Negative acknowledgements suppressed by the rate limit.
    pub naks_suppressed: u64,
    /// Dropped packets, by cause.
    pub drops: QpDropCounters,
}

/// Negative acknowledgements by code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct NakCounters {
    /// PSN sequence error: a packet is missing.
    pub sequence: u64,
    /// Invalid request.
    pub invalid: u64,
    /// Remote access error: key, bounds or rights.
    pub access: u64,
    /// Remote operational error.
    pub operational: u64,
    /// Receiver not ready: no receive was posted.
    pub receiver_not_ready: u64,
}

impl NakCounters {
    /// Counts a NAK by its code.
    pub(super) fn count(&mut self, code: NakCode) {
        *match code {
            NakCode::PsnSequenceError => &mut self.sequence,
            NakCode::InvalidRequest | NakCode::InvalidRdRequest => &mut self.invalid,
            NakCode::RemoteAccessError => &mut self.access,
            NakCode::RemoteOperationalError => &mut self.operational,
        } += 1;
    }
}

/// Dropped packets, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct QpDropCounters {
    /// rkey that is unknown, belongs to another protection domain or queue pair, or has expired.
    pub bad_key: u64,
    /// Access that the rights of the memory or of the queue pair do not allow.
    pub bad_rights: u64,
    /// Access outside the bounds of the memory, or an atomic operation at an address that is not a multiple of 8.
    pub bad_bounds: u64,
    /// Impossible PSN: a response without a request, or a duplicate READ that was never requested.
    pub bad_psn: u64,
    /// Acknowledgement of a PSN that was never sent or is already acknowledged.
    pub bad_ack: u64,
    /// Opcode, or part of an operation, that does not follow the one before; or an opcode that the queue pair does not
    /// support.
    pub bad_opcode: u64,
    /// Invalid payload or message length, or a message longer than its receive.
    pub bad_length: u64,
    /// Received in a state in which the queue pair does not receive.
    pub bad_state: u64,
    /// Source address, or once it is known source port, other than the peer's.
    pub bad_source: u64,
    /// Partition key of another partition.
    pub bad_partition: u64,
    /// Q_Key that is not the queue pair's (UD).
    pub bad_q_key: u64,
    /// No receive was posted.
    pub no_receive: u64,
    /// More outstanding READs and atomic operations than negotiated.
    pub too_many: u64,
}

impl QpDropCounters {
    /// Counts a packet rejected by the memory protection.
    pub(super) fn count(&mut self, error: AccessError) {
        *match error {
            AccessError::UnknownKey | AccessError::WrongDomain | AccessError::WrongQueuePair | AccessError::Expired => {
                &mut self.bad_key
            }
            AccessError::Rights => &mut self.bad_rights,
            AccessError::Bounds | AccessError::Misaligned => &mut self.bad_bounds,
        } += 1;
    }
}
