//! How an interface's queues are opened.

use shotline_memory::Sge;
use std::net::SocketAddr;

/// Where the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver if it can, else in the kernel's own path.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// In the kernel's own path, for every driver.
    Generic,
}

/// How frames come into our chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copy {
    /// By the device if its driver can, else by the kernel.
    #[default]
    Auto,
    /// By the kernel.
    Copy,
    /// By the device.
    Zero,
}

/// How to open an [`XdpIo`](super::XdpIo).
#[derive(Clone, Debug)]
pub struct XdpConfig {
    /// The interface, such as `eth0`.
    pub interface: String,
    /// Its receive queues to take frames from; empty: all. Frames for us that come by another go to the kernel, which
    /// throws them away.
    pub queues: Vec<u32>,
    /// Where the program runs.
    pub mode: Mode,
    /// How frames come into our chunks.
    pub copy: Copy,
    /// Chunks of 4096 bytes for frames to come, for each queue, a power of two.
    pub chunks: u32,
    /// The local address, one of the interface's; port 0 lets the kernel choose.
    pub bind: SocketAddr,
    /// The Ethernet address of whatever is sent to: the one peer's or a router's. Without it the kernel's neighbour
    /// table is asked, and peers must be on the link itself.
    pub peer: Option<[u8; 6]>,
    /// Whether packets end in an ICRC (RoCEv2) or not (plain UDP).
    pub sealed: bool,
    /// Make payload CRC remainders ([`crate::Done::payload_crc`]) of packets without an ICRC, too.
    pub remainders: bool,
    /// Posted receives that it can hold.
    pub capacity: usize,
    /// At least [`crate::SCRATCH_BYTES`] of registered memory for payloads without a place.
    pub scratch: Sge,
    /// Send packets that may be marked instead of dropped ([`crate::udp::UdpConfig::ecn`]); marks are told always.
    pub ecn: bool,
}

impl XdpConfig {
    /// All queues of an interface, 16 MiB of chunks for each, everything else chosen well.
    pub fn new(interface: impl Into<String>, bind: SocketAddr, scratch: Sge) -> Self {
        Self {
            interface: interface.into(),
            queues: Vec::new(),
            mode: Mode::Auto,
            copy: Copy::Auto,
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
