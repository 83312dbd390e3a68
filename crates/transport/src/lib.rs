//! Packet I/O behind one trait, [`PacketIo`], with one module per backend.
//!
//! A receiver *posts* buffers for payloads. For each packet its [`Steer`] chooses one of them from the packet's header,
//! and is then called with the packet's location and verdict. A sender passes a header and a gather list; the backend
//! seals the packet (computes its ICRC), so the layers above never read a payload to checksum it.
//!
//! Call order of a receiver:
//!
//! 1. Open the backend with the table of regions and scratch memory.
//! 2. [`PacketIo::post`] buffers.
//! 3. [`PacketIo::poll`] until it returns 0. It calls the steer for each batch: [`Steer::header_len`], [`Steer::pick`],
//!    and after the copy [`Steer::landed`].
//! 4. [`PacketIo::wait`], or wait on [`PacketIo::fd`].
//! 5. Post the free buffers again, and continue with 3.
//!
//! ```
//! # use shotline_memory::{Region, Registrar, Sge};
//! # use shotline_transport::inproc::{self, InprocConfig};
//! # use shotline_transport::{
//! #     BatchInfo, PacketIo, PayloadDestination, PayloadLocation, Pick, Recv, RxPacket, SCRATCH_BYTES, Seal, Steer,
//! #     TxPacket,
//! # };
//! /// Places each payload in the posted buffer whose id is in the header, and collects the ids.
//! #[derive(Default)]
//! struct ById(Vec<u32>);
//!
//! impl Steer for ById {
//!     fn header_len(&mut self, _: &BatchInfo<'_>) -> usize {
//!         4
//!     }
//!     fn pick(&mut self, batch: &BatchInfo<'_>, picks: &mut [Pick]) {
//!         let Some(id) = batch.first.first_chunk() else { return };
//!         picks[0].destination = PayloadDestination::Posted(u32::from_be_bytes(*id));
//!     }
//!     fn landed(&mut self, batch: &[RxPacket<'_>]) {
//!         for packet in batch.iter().filter(|packet| packet.fault.is_none()) {
//!             if let PayloadLocation::Posted(id) = packet.landed {
//!                 self.0.push(id);
//!             }
//!         }
//!     }
//! #   fn predict(&mut self, _: &mut [Pick]) -> usize { 0 }
//! #   fn margins(&self, _: PayloadDestination) -> [u32; 2] { [0; 2] }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut registrar = Registrar::new();
//! # let region = registrar.add(Region::heap(1 << 20)?);
//! # let regions = registrar.finish();
//! # let scratch = Sge { region, offset: 1 << 19, len: SCRATCH_BYTES };
//! # let config = |address: &str| {
//! #     InprocConfig { address: address.parse().unwrap(), sealed: false, capacity: 8, scratch }
//! # };
//! # let (a, b) = (config("10.0.0.1:4791"), config("10.0.0.2:4791"));
//! let (mut sender, mut receiver) = inproc::pair(64, (a, &regions), (b, &regions));
//! receiver.post(&[Recv { id: 7, sge: [Sge { region, offset: 0, len: 4096 }, Sge::EMPTY] }]);
//!
//! regions.get(region).write(8192, b"samples");
//! let gather = [Sge { region, offset: 8192, len: 7 }];
//! sender.send(b.address, &[TxPacket { header: &7_u32.to_be_bytes(), gather: &gather, seal: Seal::None }])?;
//!
//! let mut steer = ById::default();
//! while receiver.poll(&mut steer, 64)? > 0 {}
//! assert_eq!(steer.0, [7]);
//! let mut payload = [0; 7];
//! regions.get(region).read(0, &mut payload);
//! assert_eq!(&payload, b"samples");
//! # Ok(()) }
//! ```
//!
//! | backend | module | reads the header before the copy | copies per payload byte |
//! |---|---|---|---|
//! | UDP sockets with GSO/GRO, no privileges | [`udp`] | yes (peek) | 1, by the kernel; 2 for runs of small packets |
//! | raw Ethernet frames, with `CAP_NET_RAW` | [`af_packet`] | yes | 2 |
//! | frames from an interface's driver (AF_XDP), as root | [`xdp`] | yes | 2, one by the kernel; 1 if the driver supports zero-copy |
//! | DPDK ports and memif, with the feature `dpdk` | `dpdk` | yes; no with header split | 1; over memif 2, or 1 without an ICRC; 0 with header split |
//! | in-process queue with credits, for tests and pipes | [`inproc`] | yes | 1 |
//!
//! [`lossy::Lossy`] wraps any of them and drops packets on purpose. [`prebuilt::PrebuiltIo`] is for senders whose
//! frames are prebuilt in memory.
//!
//! [`carrier`] has paths of opaque datagrams between exactly two ends of a link, which need none of this.
//!
//! # A transport of your own
//!
//! Implement [`PacketIo`]. One that holds whole packets in memory leaves the payloads to a
//! [`PacketCopier`](copier::PacketCopier); one that changes another transport delegates to it
//! ([`delegate_packet_io`]). [`conformance`] checks both. The folder `examples/06-custom-transport` of the repository has one
//! over Unix sockets, with which a run records and queue pairs communicate.
//!
//! # Threads, errors and stability
//!
//! One thread uses a transport at a time; only [`PacketIo::wait`] blocks, and none has a thread of its own. [`IoError`] is an
//! error of the transport itself; what a packet lacks is in its [`RxPacket::fault`] and [`RxPacket::icrc`]. The feature
//! `dpdk` adds the backend of this name and needs libdpdk. Versions follow Semantic Versioning; before 1.0 a new minor
//! version may break programs, mostly by a new method of [`PacketIo`], which has no defaults. `api.txt` beside `Cargo.toml`
//! lists the interface.

use shotline_wire::shot::DropCause;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

pub mod af_packet;
pub mod carrier;
pub mod conformance;
pub mod copier;
pub mod delegate;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod fd_passing;
mod frame;
mod geometric;
pub mod inproc;
mod interface;
mod land;
pub mod lossy;
mod neighbour;
mod payload;
pub mod prebuilt;
mod seal;
mod sys;
pub mod udp;
pub mod xdp;

pub use payload::payload_crc;
// Named by the macros of `delegate`.
#[doc(hidden)]
pub use shotline_memory::{Region, Regions, Sge};

/// Maximum bytes of a header that is split from the payload: enough for every RoCEv2 header and for user-defined
/// framings.
pub const MAX_HEADER: usize = 128;
/// Bytes of scratch memory that a receiving backend needs: one batch.
pub const SCRATCH_BYTES: u32 = 1 << 16;
/// Maximum packets in one batch (a GRO super-packet).
pub const MAX_BATCH: usize = 64;

/// A posted receive: a buffer for one payload. The backend owns it until a payload has landed in it or it is withdrawn.
#[derive(Clone, Copy, Debug)]
pub struct Recv {
    /// Identifier chosen by the caller, below the capacity that the backend was opened with.
    pub id: u32,
    /// The buffer, in up to two pieces; an unused second piece is [`Sge::EMPTY`]. For a backend that does not steer, the
    /// first piece is as long as the payload that is expected there, if the buffer is longer than that.
    pub sge: [Sge; 2],
}

/// A batch as it is known before its payloads are copied: packets of equal length from one sender, of which the last
/// may be shorter. Only the first header is visible.
#[derive(Clone, Copy, Debug)]
pub struct BatchInfo<'a> {
    /// The first packet's leading bytes (after UDP), up to [`MAX_HEADER`].
    pub first: &'a [u8],
    /// Number of packets in the batch.
    pub packets: usize,
    /// UDP payload bytes of every packet except the last.
    pub segment: u32,
    /// UDP payload bytes of the last packet.
    pub last: u32,
    /// Address of the sender.
    pub source: SocketAddr,
}

/// The destination that a steer chooses for one payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PayloadDestination {
    /// The backend's scratch memory, until the steer returns from [`Steer::landed`].
    #[default]
    Scratch,
    /// The buffer of this posted receive.
    Posted(u32),
    /// These bytes, in up to two pieces, for steers that learn the destination only from the packet (RDMA). If they are
    /// shorter than the payload, it goes to scratch. They are written before the packet is verified, so memory that
    /// another process may write also goes to scratch.
    Memory([Sge; 2]),
}

/// The steer's choice for one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pick {
    /// Destination of the payload.
    pub destination: PayloadDestination,
    /// Bytes of header before this packet's payload; `None`: as many as in the batch's first packet.
    pub header_len: Option<u16>,
}

/// The location of a received payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadLocation {
    /// In the buffer of this posted receive, which is thereby consumed.
    Posted(u32),
    /// In the memory that the steer chose.
    Memory([Sge; 2]),
    /// In the backend's scratch memory, until the steer returns from [`Steer::landed`].
    Scratch(Sge),
}

/// The verdict on a packet's invariant CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icrc {
    /// Matches, with every input known.
    Good,
    /// Matches for exactly one IPv4 identification, which a socket does not expose: solving for it uses up 16 of the 32
    /// bits.
    Solved {
        /// The identification is within the next 1024 after the sender's previous packet, as that of Linux and of
        /// devices that count packets: 10 bits are used up. Also `true` for the first packet from an address.
        is_in_sequence: bool,
    },
    /// Does not match any packet that could have been sent.
    Bad,
    /// Not verified, because an input is unknown.
    Unverified,
    /// The framing has no ICRC.
    Absent,
    /// Verified by the device, which delivers only packets whose ICRC matches.
    Device,
}

/// A received packet.
#[derive(Clone, Copy, Debug)]
pub struct RxPacket<'a> {
    /// Location of its payload.
    pub landed: PayloadLocation,
    /// Its header: as many bytes as the steer specified before the packet was visible, or fewer if the packet is
    /// shorter.
    pub header: &'a [u8],
    /// Payload bytes, without the header and without the ICRC.
    pub len: u32,
    /// Address of the sender.
    pub source: SocketAddr,
    /// Time at which the kernel received its batch, in nanoseconds of the realtime clock (UTC); 0 if timestamps are
    /// off.
    pub stamp_ns: u64,
    /// The verdict on its ICRC.
    pub icrc: Icrc,
    /// The payload's CRC remainder ([`shotline_wire::crc::remainder`]), from the same pass over its bytes that verified
    /// the ICRC. Folding these gives a CRC over several packets. 0 if remainders are off.
    pub payload_crc: u32,
    /// The network marked its batch as having experienced congestion (ECN, RFC 3168).
    pub congested: bool,
    /// Set if a lower layer refused the packet: it is counted, and its contents must not be used.
    pub fault: Option<DropCause>,
}

/// The layer above a backend: chooses destinations and receives completed packets. An implementation that wraps another
/// one delegates by [`delegate_steer`].
pub trait Steer {
    /// Returns the bytes of header before the payload, given the first packet's leading bytes. All packets of a batch
    /// are split there, except those for which [`Pick::header_len`] is set. At most [`MAX_HEADER`].
    fn header_len(&mut self, seen: &BatchInfo<'_>) -> usize;
    /// Chooses a destination for each packet of a batch (`picks` has one entry per packet, all unset). An id that is
    /// not posted, or was picked before, counts as unset. Backends that cannot read a header in time (ibverbs) do not
    /// call this, and fill the oldest posted receive.
    fn pick(&mut self, seen: &BatchInfo<'_>, picks: &mut [Pick]);
    /// Predicts the next packets if they arrive in order, for backends that can receive several before their headers
    /// are read. Fills `picks` from the front, each with a destination exactly as long as the payload and with its
    /// header's length, and returns how many. A packet that differs from the prediction still lands, elsewhere. 0 for a
    /// steer that predicts nothing.
    fn predict(&mut self, picks: &mut [Pick]) -> usize;
    /// Returns how many bytes before and after a destination named by [`Self::predict`] belong to the same message,
    /// which only this steer's thread reads until all of it has landed. A backend may receive a whole packet over them
    /// if it restores them before it calls the steer. `[0; 2]` for a steer without such bytes.
    fn margins(&self, to: PayloadDestination) -> [u32; 2];
    /// Called when a batch has landed, with its packets in order. Every payload that is in a chosen destination is
    /// included: the steer may move others into any buffer that is no longer posted. With a backend that does not call
    /// [`Self::pick`], further packets may have landed meanwhile: a buffer belongs to the device until its packet is
    /// passed here.
    fn landed(&mut self, batch: &[RxPacket<'_>]);
}

/// How a packet to send gets its ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// Computed by the backend, which reads the payload once. It may copy the payload afterwards: if bytes change in
    /// between, the receiver drops the packet.
    Compute,
    /// Derived from this CRC remainder of the payload and from the header.
    Remainder(u32),
    /// This value, right or wrong: for senders that inject errors.
    Forced(u32),
    /// The framing has no ICRC.
    None,
}

/// A packet to send: header and payload, gathered by the backend.
#[derive(Clone, Copy, Debug)]
pub struct TxPacket<'a> {
    /// Bytes between the UDP header and the payload, at most [`MAX_HEADER`].
    pub header: &'a [u8],
    /// The payload, in pieces.
    pub gather: &'a [Sge],
    /// How its ICRC is made.
    pub seal: Seal,
}

/// Capabilities of a backend, for the layer that posts to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// It calls [`Steer::pick`] before the copy; otherwise it fills posted receives in order.
    pub steers: bool,
    /// A full receiver stops the sender instead of losing packets, so the policy `block` is possible.
    pub credits: bool,
}

/// An error of opening or using a backend.
#[derive(Debug, thiserror::Error)]
pub enum IoError {
    /// A system call failed.
    #[error("{what}: {source}{hint}")]
    System {
        /// The operation.
        what: String,
        /// The kernel's error.
        source: std::io::Error,
        /// Remedy, empty or beginning with a separator.
        hint: &'static str,
    },
    /// The configuration is not valid.
    #[error("{0}")]
    Config(String),
    /// The peer violates the format of the path.
    #[error("the peer of {path} wrote {what}: run the same version of Shotline at both ends")]
    InvalidPeer {
        /// The path.
        path: &'static str,
        /// What the peer wrote.
        what: &'static str,
    },
    /// The peer has closed the link.
    #[error("the peer has closed this link")]
    Disconnected,
}

/// Packets lost by a device and its driver, on receive and on send: no steer has seen them, and no caller has counted
/// them as lost. Also copies that the transport makes. All counters are monotonic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Frames dropped because the device's receive queue was full (DPDK's `imissed`).
    pub missed: u64,
    /// Frames dropped as corrupt (`ierrors`).
    pub receive_errors: u64,
    /// Frames dropped because the driver had no buffer for them (`rx_nombuf`).
    pub no_buffers: u64,
    /// Packets accepted for sending and lost, because there was no link or the host's Ethernet address was unknown.
    pub unsent: u64,
    /// Times that a packet put an RDMA device's queue pair into its error state, most likely because it was longer than
    /// its buffer. That packet is lost, and so are those that arrive until the queue pair is ready again, which are not
    /// counted here.
    pub queue_pair_errors: u64,
    /// Not a loss: payload bytes that were copied since the device wrote them. `None` of a transport that copies each
    /// payload once, or passes on what an RDMA device has written.
    pub copied_bytes: Option<u64>,
    /// Not a loss: how often the link went down, or the device was removed. Packets that are sent meanwhile are in no
    /// counter.
    pub link_downs: u64,
}

impl DeviceCounters {
    /// Returns the received frames that were lost, by cause.
    pub fn causes(&self) -> [(&'static str, u64); 4] {
        [
            ("imissed", self.missed),
            ("ierrors", self.receive_errors),
            ("rx_nombuf", self.no_buffers),
            ("queue_pair_errors", self.queue_pair_errors),
        ]
    }

    /// Returns the total of [`Self::causes`].
    pub fn lost(&self) -> u64 {
        self.causes().iter().map(|(_, count)| count).sum()
    }
}

/// Sends and receives packets on one address. An implementation that wraps another one delegates by
/// [`delegate_packet_io`].
pub trait PacketIo {
    /// Returns what the underlying device has lost so far; all zeros if there is no device or it does not count.
    fn device_counters(&self) -> DeviceCounters;
    /// Returns the increments of the device's own counters since it was opened, by name, without those that are 0. For
    /// the report at the end of a run: it may read many files.
    fn counters(&self) -> Vec<(String, u64)>;
    /// Returns the number and Q_Key of the device's queue pair. `None` if packets for any queue pair are received.
    fn queue_pair(&self) -> Option<(u32, u32)>;
    /// Returns the capabilities of this backend.
    fn capabilities(&self) -> Capabilities;
    /// Sets the current table of registered memory: every element passed from now on refers to it. Buffers that are
    /// posted, and the scratch memory, must be in it unchanged.
    fn register(&mut self, regions: &Regions);
    /// Posts receive buffers. Returns how many were accepted: fewer than given if the backend is full.
    ///
    /// # Panics
    /// If an element is outside its region or an id is at or above the capacity.
    fn post(&mut self, receives: &[Recv]) -> usize;
    /// Withdraws posted receives in which nothing has landed; ids that are not posted are ignored.
    fn withdraw(&mut self, ids: &[u32]);
    /// Receives up to `max` batches without blocking. Returns how many packets landed.
    ///
    /// # Errors
    /// [`IoError::System`] if the system call failed, [`IoError::Disconnected`] if the peer has closed the link.
    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError>;
    /// Blocks until a packet may be available, or for `timeout`.
    ///
    /// # Errors
    /// As [`Self::poll`].
    fn wait(&mut self, timeout: std::time::Duration) -> Result<(), IoError>;
    /// Returns a descriptor that becomes readable when packets may be available, to wait on together with others;
    /// `None` if [`Self::wait`] is the only way. Call [`Self::poll`] until it returns 0 before waiting on it: packets
    /// that a layer has buffered do not make it readable.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// Seals and sends packets to one destination. Returns how many were accepted: fewer than given if the path is
    /// full.
    ///
    /// # Errors
    /// As [`Self::poll`], and [`IoError::Config`] if a packet is not valid for this backend (its length or its header).
    /// Packets before the one that failed may have been sent.
    fn send(&mut self, to: SocketAddr, packets: &[TxPacket<'_>]) -> Result<usize, IoError>;
}
