//! What opens a transport, and what it gives.

use shotline_memory::Sge;
use std::net::{IpAddr, SocketAddr};

/// What a receiver wants of a transport.
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

/// A transport opened as receiver.
#[derive(Debug)]
pub struct Opened<P> {
    /// The transport.
    pub io: P,
    /// Where a sender reaches it.
    pub local: SocketAddr,
    /// Receive buffer that was granted, in bytes.
    pub receive_buffer: usize,
}

impl<P> Opened<P> {
    /// The same with the transport as another type.
    pub fn map<Q>(self, into: impl FnOnce(P) -> Q) -> Opened<Q> {
        Opened { io: into(self.io), local: self.local, receive_buffer: self.receive_buffer }
    }
}

/// What a sender wants of a transport.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    /// The local address; without one that of the route, or for a device that no kernel knows one next to `to`.
    pub source: Option<IpAddr>,
    /// Where packets go.
    pub to: SocketAddr,
    /// Whether packets end in an ICRC.
    pub sealed: bool,
    /// Bytes of prebuilt frames, which a memif client leaves where they are until they have been read.
    pub frames: usize,
    /// Registered memory that the transport may use; empty where the sender has none.
    pub scratch: Sge,
}

/// A transport opened as sender.
#[derive(Debug)]
pub struct Outgoing<P> {
    /// The transport.
    pub io: P,
    /// Where its packets come from.
    pub source: SocketAddr,
}

impl<P> Outgoing<P> {
    /// The same with the transport as another type.
    pub fn map<Q>(self, into: impl FnOnce(P) -> Q) -> Outgoing<Q> {
        Outgoing { io: into(self.io), source: self.source }
    }
}

/// What a program opens a transport for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// To receive packets.
    Receiver,
    /// To send packets whose headers the program or the backend makes.
    Sender,
    /// To send frames that are whole, Ethernet headers included.
    WholeFrames,
}

/// Flags of the user that only some transports use. Which transport uses which is in [`About`](crate::About).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `--mtu`: longest IP packet in bytes.
    pub mtu: Option<u16>,
    /// `--peer-mac`: Ethernet address of the other side or the router.
    pub peer_mac: Option<String>,
    /// `--eal`: more words for DPDK's command line.
    pub eal: Option<String>,
    /// `--receive-buffer` in bytes, if it was given. What opens a receiver is [`Wanted::receive_buffer`], which has a
    /// default.
    pub receive_buffer: Option<u64>,
}

impl Options {
    /// The Ethernet address of the other side, if it is given.
    ///
    /// # Errors
    /// If it is none.
    pub fn peer(&self) -> Result<Option<[u8; 6]>, String> {
        self.peer_mac.as_deref().map(mac).transpose()
    }
}

/// An Ethernet address.
///
/// # Errors
/// If the text is none.
pub fn mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| format!("expected an Ethernet address such as 02:00:00:00:00:01, found {text}"))
}
