//! Configuration of an interface's queues.

use shotline_memory::Sge;
use std::net::SocketAddr;

/// Where the XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver if it supports it, else in the kernel's generic path.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// In the kernel's generic path, which works with every driver.
    Generic,
}

/// How received frames get into the chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// Written by the device if its driver supports it, else copied by the kernel.
    #[default]
    Auto,
    /// Copied by the kernel.
    Copy,
    /// Written by the device (zero-copy).
    Zero,
}

/// Configuration of an [`XdpIo`](super::XdpIo).
#[derive(Clone, Debug)]
pub struct XdpConfig {
    /// The interface, such as `eth0`.
    pub interface: String,
    /// The receive queues to use; empty: all. Our frames that arrive in another queue go to the kernel, which discards
    /// them.
    pub queues: Vec<u32>,
    /// Where the XDP program runs.
    pub mode: AttachMode,
    /// How received frames get into the chunks.
    pub copy: CopyMode,
    /// Receive chunks of 4096 bytes for each queue, a power of two.
    pub chunks: u32,
    /// The local address, which must be the interface's; with port 0 the kernel chooses one.
    pub bind: SocketAddr,
    /// Destination Ethernet address of all packets: that of the only peer or of a router. Without it the kernel's
    /// neighbour table is used, and peers must be on the link itself.
    pub peer: Option<[u8; 6]>,
    /// `true` if packets end in an ICRC (RoCEv2), `false` for plain UDP.
    pub sealed: bool,
    /// Compute payload CRC remainders ([`crate::RxPacket::payload_crc`]) also for packets without an ICRC.
    pub remainders: bool,
    /// Maximum number of posted receives.
    pub capacity: usize,
    /// At least [`crate::SCRATCH_BYTES`] of registered memory for payloads without a destination.
    pub scratch: Sge,
    /// Send packets as ECN-capable ([`crate::udp::UdpConfig::ecn`]); received marks are always reported.
    pub ecn: bool,
}

impl XdpConfig {
    /// Returns a configuration for all queues of an interface, with 16 MiB of chunks for each and defaults for the
    /// rest.
    pub fn new(interface: impl Into<String>, bind: SocketAddr, scratch: Sge) -> Self {
        Self {
            interface: interface.into(),
            queues: Vec::new(),
            mode: AttachMode::Auto,
            copy: CopyMode::Auto,
            chunks: 4096,
            bind,
            peer: None,
            sealed: true,
            remainders: true,
            capacity: 4096,
            scratch,
            ecn: false,
        }
    }
}
