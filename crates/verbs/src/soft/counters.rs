//! Counters of an endpoint.

use serde::Serialize;

/// Packets dropped without a response before they reached a queue pair, by the first check that failed. Packets that a
/// queue pair drops are counted in its [`crate::engine::QpCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SoftDropCounters {
    /// Too short or truncated, or of an unknown opcode or version.
    pub malformed: u64,
    /// For a queue pair that does not exist.
    pub unknown_qp: u64,
    /// Of a transport service other than the queue pair's.
    pub wrong_service: u64,
    /// The ICRC does not match.
    pub bad_icrc: u64,
    /// The ICRC could not be checked, or is missing; or, for a one-sided operation, it fits only an IPv4 identification
    /// that does not follow the sender's last one.
    pub unverified: u64,
}

impl SoftDropCounters {
    /// Returns the sum over all causes.
    pub fn total(&self) -> u64 {
        let Self { malformed, unknown_qp, wrong_service, bad_icrc, unverified } = *self;
        malformed + unknown_qp + wrong_service + bad_icrc + unverified
    }
}

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SoftCounters {
    /// Packets received, including those dropped later.
    pub packets_in: u64,
    /// Batches received.
    pub batches_in: u64,
    /// Packets passed to the transport.
    pub packets_out: u64,
    /// Packets that the transport rejected, for example because there is no route; see
    /// [`super::SoftEndpoint::last_send_error`].
    pub unsendable: u64,
    /// Bursts of which the transport accepted only a part.
    pub partial_sends: u64,
    /// Payload bytes copied once more: received after a header of another length than predicted, copied before they
    /// were sealed, or saved because the transport accepted only a part of the burst.
    pub bytes_copied_again: u64,
    /// Packets whose payload was copied before it was sealed: because its memory is a file, shared or device memory, or
    /// because the packet is a retransmission.
    pub packets_copied: u64,
    /// Completions lost because their completion queue was full.
    pub completions_lost: u64,
    /// Notices of one-sided operations lost because the application did not take them.
    pub notices_lost: u64,
    /// Packets dropped.
    pub drops: SoftDropCounters,
}
