//! What happened at an endpoint, counted.

use serde::Serialize;

/// Packets for no queue pair, dropped without an answer, by the first check that they failed. What a queue pair itself
/// refuses is in its [`crate::engine::Books`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// Too short, of an unknown opcode or version, or cut short.
    pub malformed: u64,
    /// For a queue pair that is not here.
    pub unknown_qp: u64,
    /// Of another transport service than the queue pair.
    pub wrong_service: u64,
    /// The ICRC does not match.
    pub bad_icrc: u64,
    /// The ICRC could not be checked, or is missing: never taken for good. Or that of a one-sided operation holds only for
    /// an IPv4 identification that does not follow the sender's last one.
    pub unverified: u64,
}

impl Drops {
    /// All of them.
    pub fn total(&self) -> u64 {
        let Self { malformed, unknown_qp, wrong_service, bad_icrc, unverified } = *self;
        malformed + unknown_qp + wrong_service + bad_icrc + unverified
    }
}

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Packets that arrived, whatever became of them.
    pub packets_in: u64,
    /// Batches in which they arrived.
    pub batches_in: u64,
    /// Packets that were handed to the transport.
    pub packets_out: u64,
    /// Packets that the transport refused, such as for want of a route; see [`super::SoftEndpoint::last_send_error`].
    pub unsendable: u64,
    /// Times that the transport's path was full.
    pub path_full: u64,
    /// Payload bytes moved once more, because their header was not as foretold, or they were copied before they were
    /// sealed.
    pub bytes_moved: u64,
    /// Packets whose payload was copied before it was sealed: their memory is a file, shared memory or a device's, or
    /// they were sent again.
    pub packets_copied: u64,
    /// Completions lost because their queue was full.
    pub completions_lost: u64,
    /// Notices of one-sided operations lost because nobody took them.
    pub notices_lost: u64,
    /// Packets dropped.
    pub drops: Drops,
}
