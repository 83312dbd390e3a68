//! Configuration of UDP sockets.

use shotline_memory::Sge;
use std::net::SocketAddr;

/// Configuration of a [`UdpIo`](super::UdpIo).
#[derive(Clone, Copy, Debug)]
pub struct UdpConfig {
    /// The local address; it must not be unspecified, because the ICRC covers it.
    pub bind: SocketAddr,
    /// `true` if packets end in an ICRC (RoCEv2), `false` for plain UDP.
    pub sealed: bool,
    /// Maximum number of posted receives.
    pub capacity: usize,
    /// At least [`crate::SCRATCH_BYTES`] of registered memory for payloads without a destination; empty for a sender.
    pub scratch: Sge,
    /// Receive buffer to request from the kernel, in bytes of its accounting.
    pub receive_buffer: usize,
    /// Compute payload CRC remainders ([`crate::RxPacket::payload_crc`]) also for packets without an ICRC.
    pub remainders: bool,
    /// Have the kernel timestamp each received batch ([`crate::RxPacket::stamp_ns`]).
    pub stamps: bool,
    /// Send packets as ECN-capable (ECT(0) of RFC 3168: the network marks them instead of dropping them), and report
    /// the marks of received packets ([`crate::RxPacket::congested`]). The ICRC does not cover the marks.
    pub ecn: bool,
}
