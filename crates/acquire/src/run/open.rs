//! What a run wants of a transport, and what it gets.

use shotline_memory::Sge;
use std::net::SocketAddr;

/// What a run wants of a transport.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The local address.
    pub bind: SocketAddr,
    /// Whether packets end in an ICRC.
    pub sealed: bool,
    /// Whether payload CRC remainders are wanted of packets that do not.
    pub remainders: bool,
    /// Receives that will be posted at once.
    pub capacity: usize,
    /// Registered memory for payloads without a place.
    pub scratch: Sge,
    /// Receive buffer to ask for, in bytes.
    pub receive_buffer: usize,
}

/// A transport for a run.
#[derive(Debug)]
pub struct Opened<P> {
    /// The transport.
    pub io: P,
    /// Where the probe is to send.
    pub local: SocketAddr,
    /// Receive buffer that was granted, in bytes.
    pub receive_buffer: usize,
}
