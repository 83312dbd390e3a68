//! How sockets are opened.

use shotline_memory::Sge;
use std::net::SocketAddr;

/// How to open a [`UdpIo`](super::UdpIo).
#[derive(Clone, Copy, Debug)]
pub struct UdpConfig {
    /// The local address; it must name one host, because the ICRC covers it.
    pub bind: SocketAddr,
    /// Whether packets end in an ICRC (RoCEv2) or not (plain UDP).
    pub sealed: bool,
    /// Posted receives that it can hold.
    pub capacity: usize,
    /// At least [`crate::SCRATCH_BYTES`] of registered memory for payloads without a place; empty for a sender.
    pub scratch: Sge,
    /// Receive buffer to ask the kernel for, in bytes of its accounting.
    pub receive_buffer: usize,
    /// Make payload CRC remainders ([`crate::Done::payload_crc`]) of packets without an ICRC, too.
    pub remainders: bool,
    /// Ask the kernel when it received each batch ([`crate::Done::stamp_ns`]).
    pub stamps: bool,
    /// Send packets that may be marked instead of dropped where the network is congested (ECT(0) of RFC 3168), and
    /// tell of the marks on those received ([`crate::Done::congested`]). The ICRC leaves the marks out.
    pub ecn: bool,
}
