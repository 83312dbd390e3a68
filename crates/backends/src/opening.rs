//! Parameters and results of opening a transport.

use shotline_memory::Sge;
use std::net::{IpAddr, SocketAddr};

/// Parameters of opening a transport as receiver.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverParameters {
    /// The local address.
    pub bind: SocketAddr,
    /// `true` if packets end in an ICRC.
    pub sealed: bool,
    /// Compute payload CRC remainders also for packets without an ICRC.
    pub remainders: bool,
    /// Maximum number of posted receives.
    pub capacity: usize,
    /// Registered memory for payloads without a destination.
    pub scratch: Sge,
    /// Receive buffer to request, in bytes.
    pub receive_buffer: usize,
    /// Shape of the packets, if receives may be filled in the order of posting: a transport whose device writes payloads
    /// itself does so.
    pub in_order: Option<PacketShape>,
}

/// Shape of packets that are received in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketShape {
    /// Bytes between the UDP header and the payload.
    pub header: u16,
    /// Payload bytes of a packet, except shorter ones.
    pub payload: u32,
}

/// A transport opened as receiver.
#[derive(Debug)]
pub struct OpenedReceiver<P> {
    /// The transport.
    pub io: P,
    /// Address at which a sender reaches it.
    pub local: SocketAddr,
    /// Granted receive buffer, in bytes.
    pub receive_buffer: usize,
}

impl<P> OpenedReceiver<P> {
    /// Converts the transport to another type.
    pub fn map<Q>(self, into: impl FnOnce(P) -> Q) -> OpenedReceiver<Q> {
        OpenedReceiver { io: into(self.io), local: self.local, receive_buffer: self.receive_buffer }
    }
}

/// Parameters of opening a transport as sender.
#[derive(Clone, Copy, Debug)]
pub struct SenderParameters {
    /// The local address; `None`: the address of the route, or for a device that the kernel does not use, one next to
    /// `to`.
    pub source: Option<IpAddr>,
    /// Destination address.
    pub to: SocketAddr,
    /// `true` if packets end in an ICRC.
    pub sealed: bool,
    /// Bytes of prebuilt frames, which the peer of a memif client reads in place.
    pub frames: usize,
    /// Registered memory that the transport may use; may be empty.
    pub scratch: Sge,
}

/// A transport opened as sender.
#[derive(Debug)]
pub struct OpenedSender<P> {
    /// The transport.
    pub io: P,
    /// Source address of its packets.
    pub source: SocketAddr,
}

impl<P> OpenedSender<P> {
    /// Converts the transport to another type.
    pub fn map<Q>(self, into: impl FnOnce(P) -> Q) -> OpenedSender<Q> {
        OpenedSender { io: into(self.io), source: self.source }
    }
}

/// The role in which a transport is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Receives packets.
    Receiver,
    /// Sends packets whose headers the program or the backend builds.
    Sender,
    /// Sends complete frames, including Ethernet headers.
    CompleteFrames,
}

/// User flags that only some transports use. [`About`](crate::About) lists which transport uses which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `--mtu`: maximum IP packet in bytes.
    pub mtu: Option<u16>,
    /// `--peer-mac`: Ethernet address of the peer or router.
    pub peer_mac: Option<String>,
    /// `--eal`: additional arguments of DPDK's EAL.
    pub eal: Option<String>,
    /// `--receive-buffer` in bytes, if it was given. Opening a receiver uses
    /// [`ReceiverParameters::receive_buffer`], which has a default.
    pub receive_buffer: Option<u64>,
}

impl Options {
    /// Parses the Ethernet address of the peer, if it is given.
    ///
    /// # Errors
    /// If it is not a valid Ethernet address.
    pub fn peer(&self) -> Result<Option<[u8; 6]>, String> {
        self.peer_mac.as_deref().map(mac).transpose()
    }
}

/// Parses an Ethernet address.
///
/// # Errors
/// If the text is not a valid Ethernet address.
pub fn mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| format!("expected an Ethernet address such as 02:00:00:00:00:01, found {text}"))
}
