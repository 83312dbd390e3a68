//! Packets in and out: [`PacketIo`], one folder per backend.
//!
//! A receiver *posts* places for payloads, a [`Steer`] of its own chooses one for each packet from its
//! header, and learns with what verdict the packet *landed*. A sender hands over a header and a gather
//! list; the backend seals it (ICRC) at this edge, so nobody above holds a payload to checksum it.
//!
//! | backend | module | sees the header before it copies | copies per payload byte |
//! |---|---|---|---|
//! | UDP sockets with GSO/GRO, no privileges | [`udp`] | yes (peek) | 1, by the kernel; 2 of small packets in a row |
//! | raw Ethernet frames, with `CAP_NET_RAW` | [`af_packet`] | yes | 2 |
//! | frames from an interface's driver (AF_XDP), as root | [`xdp`] | yes | 2, of which one is the kernel's; 1 where the driver can |
//! | in-process queue with credits, for tests and pipes | [`inproc`] | yes | 1 |
//!
//! [`lossy::Lossy`] stands before any of them and loses packets on purpose. [`prebuilt::PrebuiltIo`] is for senders
//! whose frames lie ready in memory.

use shotline_wire::shot::DropCause;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

pub mod af_packet;
pub mod conformance;
pub mod delegate;
#[cfg(feature = "dpdk")]
pub mod dpdk;
mod frame;
pub mod inproc;
mod land;
mod link;
pub mod lossy;
mod neighbour;
mod payload;
pub mod prebuilt;
mod seal;
mod sys;
pub mod udp;
pub mod xdp;

pub use payload::payload_crc;
// What the macros of `delegate` name.
#[doc(hidden)]
pub use shotline_memory::{Region, Regions, Sge};

/// Longest header kept apart from the payload: room for every RoCEv2 header and for framings of users.
pub const MAX_HEADER: usize = 128;
/// Scratch memory that a receiving backend needs: one whole batch.
pub const SCRATCH_BYTES: u32 = 1 << 16;
/// Most packets that one batch (a GRO super-packet) can hold.
pub const MAX_BATCH: usize = 64;

/// A posted receive: a place for one payload. The backend owns it until it has landed or was withdrawn.
#[derive(Clone, Copy, Debug)]
pub struct Recv {
    /// The poster's name for it, below the capacity that the backend was opened with.
    pub id: u32,
    /// The place, in up to two pieces; an unused second piece is [`Sge::EMPTY`].
    pub sge: [Sge; 2],
}

/// What a backend knows of a batch before its payloads are copied: equal packets of one sender, the last
/// perhaps shorter. Only the first header can be seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The first packet's leading bytes (after UDP), up to [`MAX_HEADER`].
    pub first: &'a [u8],
    /// Packets in the batch.
    pub packets: usize,
    /// UDP payload bytes of every packet but the last.
    pub segment: u32,
    /// UDP payload bytes of the last packet.
    pub last: u32,
    /// Who sent it.
    pub source: SocketAddr,
}

/// The memory that a steer chooses for one payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum To {
    /// The backend's scratch memory, until the steer returns from [`Steer::landed`].
    #[default]
    Scratch,
    /// The place of this posted receive.
    Posted(u32),
    /// These bytes, in up to two pieces, for steers that know the place only from the packet (RDMA): they must hold
    /// the payload, or it goes to scratch. They are filled before the packet is checked, so memory that others may
    /// write meanwhile goes to scratch, too.
    Memory([Sge; 2]),
}

/// The steer's choice for one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pick {
    /// Where the payload goes.
    pub to: To,
    /// Bytes of header before this packet's payload; none: as many as the batch's first packet has.
    pub header_len: Option<u16>,
}

/// Where a payload is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landed {
    /// In the place of this posted receive, which is thereby used up.
    Slot(u32),
    /// In the memory that the steer named.
    Memory([Sge; 2]),
    /// In the backend's scratch memory, until the steer returns from [`Steer::landed`].
    Scratch(Sge),
}

/// The verdict on a packet's invariant CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icrc {
    /// It matches, every input known.
    Good,
    /// It matches for exactly one IPv4 identification, which a socket cannot see: 16 of its 32 bits were
    /// spent on finding it.
    Solved {
        /// The identification is one of the next that the sender would use after its last packet here, as those of Linux
        /// and of devices that count are: 10 bits were spent. Or it is the first packet from its address.
        follows: bool,
    },
    /// Does not match for any packet that could have been sent.
    Bad,
    /// An input that it needs is unknown.
    Unverified,
    /// The framing carries none.
    Absent,
    /// The device has checked it, and shows packets only if it matches.
    Device,
}

/// One packet that has landed.
#[derive(Clone, Copy, Debug)]
pub struct Done<'a> {
    /// Where its payload is.
    pub landed: Landed,
    /// Its header: as many bytes as the steer said before the packet could be seen, or fewer if it is shorter.
    pub header: &'a [u8],
    /// Payload bytes, without the header and without the ICRC.
    pub len: u32,
    /// Who sent it.
    pub source: SocketAddr,
    /// When the kernel received its batch, in nanoseconds of the realtime clock (UTC); 0 if nobody asked.
    pub stamp_ns: u64,
    /// The verdict on its ICRC.
    pub icrc: Icrc,
    /// The payload's CRC remainder ([`shotline_wire::crc::remainder`]), from the same pass over its bytes
    /// that checked the ICRC: whoever needs a CRC over several packets folds these. 0 if nobody asked.
    pub payload_crc: u32,
    /// The network marked its batch as having met congestion (ECN, RFC 3168).
    pub congested: bool,
    /// Set when some layer below has refused the packet: it counts, and nothing of it may be used.
    pub fault: Option<DropCause>,
}

/// The layer above a backend: chooses places and takes what has landed. An implementation that wraps another delegates
/// by [`delegate_steer`].
pub trait Steer {
    /// Bytes of header before the payload, from the first packet's leading bytes. All packets of a batch
    /// are split there, but those for which [`Pick::header_len`] says otherwise. At most [`MAX_HEADER`].
    fn header_len(&mut self, seen: &Seen<'_>) -> usize;
    /// Choose a posted receive for each packet of a batch (`picks` has one entry a packet, all unset).
    /// An id that is not posted, or was picked before, counts as unset. Backends that cannot see a header
    /// in time (ibverbs) do not ask, and fill the oldest posted receive.
    fn pick(&mut self, seen: &Seen<'_>, picks: &mut [Pick]);
    /// What the next packets will be if they come in order: for backends that can take several without looking at
    /// them first. Fills `picks` from the front, each with an id of a place that is exactly as long as the payload
    /// and with its header's length, and returns how many. Whatever comes otherwise lands all the same, elsewhere.
    /// 0 for a steer that forecasts nothing.
    fn expect(&mut self, picks: &mut [Pick]) -> usize;
    /// How many bytes before and behind a place that [`Self::expect`] named belong to the same message, which nobody but
    /// this steer's thread reads before all of it has landed. A backend may use them to receive a whole packet, if it
    /// puts them back before it calls the steer. `[0; 2]` for a steer that lends no such bytes.
    fn around(&self, to: To) -> [u32; 2];
    /// A batch has landed, in the order of its packets. Every payload that lies in a place is among them: the steer
    /// may move others into any place that is not posted any more. Of a backend that does not ask, further packets may
    /// have landed meanwhile: a place is the device's until it is among these.
    fn landed(&mut self, batch: &[Done<'_>]);
}

/// How a packet to send gets its ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// The backend reads the payload once and computes it. It may copy it afterwards: of bytes that change in between the
    /// receiver drops the packet.
    Compute,
    /// The payload's CRC remainder is known: the ICRC follows from it and the header alone.
    Remainder(u32),
    /// This value, whatever is true: for senders that inject errors.
    Forced(u32),
    /// The framing carries none.
    None,
}

/// A packet to send: header and payload, gathered by the backend.
#[derive(Clone, Copy, Debug)]
pub struct Send<'a> {
    /// Bytes after UDP and before the payload, at most [`MAX_HEADER`].
    pub header: &'a [u8],
    /// The payload, in pieces.
    pub gather: &'a [Sge],
    /// Its ICRC.
    pub seal: Seal,
}

/// What a backend can do, for the layer that posts to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// It asks the steer before it copies; otherwise it fills posted receives in order.
    pub steers: bool,
    /// A full receiver stops the sender instead of losing packets, so the policy `block` is possible.
    pub credits: bool,
}

/// Why a backend could not be opened or stopped working.
#[derive(Debug, thiserror::Error)]
pub enum IoError {
    /// A system call failed.
    #[error("{what}: {source}{hint}")]
    System {
        /// What was tried.
        what: String,
        /// The kernel's reason.
        source: std::io::Error,
        /// What to do about it, empty or beginning with a separator.
        hint: &'static str,
    },
    /// Settings that cannot work.
    #[error("{0}")]
    Config(String),
    /// The other side is gone.
    #[error("the other side of this link is gone")]
    Disconnected,
}

/// What a device and its driver have lost of what came, and of what was to go. No steer has seen it, and no caller has
/// counted it as lost. All of it only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Frames dropped because nobody took them from the device's queue in time (DPDK's `imissed`).
    pub missed: u64,
    /// Frames dropped as damaged (`ierrors`).
    pub receive_errors: u64,
    /// Frames dropped because the driver had no buffer for them (`rx_nombuf`).
    pub no_buffers: u64,
    /// Packets that were taken to be sent while there was no link, and went nowhere.
    pub unsent: u64,
    /// Times that a packet put an RDMA device's queue pair into its error state, most likely because it was longer than
    /// its place. That packet is lost, and what came until the queue pair was ready again is, too, and not counted here.
    pub queue_pair_errors: u64,
}

impl DeviceCounts {
    /// What came and was lost, by cause.
    pub fn causes(&self) -> [(&'static str, u64); 4] {
        [
            ("imissed", self.missed),
            ("ierrors", self.receive_errors),
            ("rx_nombuf", self.no_buffers),
            ("queue_pair_errors", self.queue_pair_errors),
        ]
    }

    /// The same together.
    pub fn lost(&self) -> u64 {
        self.causes().iter().map(|(_, count)| count).sum()
    }
}

/// Packets in and out of one address. An implementation that wraps another delegates by [`delegate_packet_io`].
pub trait PacketIo {
    /// What the device below has lost until now; all zero where there is none, or it does not tell.
    fn device(&self) -> DeviceCounts;
    /// What the device's own counters have counted since this was opened, by their names; those that stood still are
    /// left out. For the books in the end: it may read many files.
    fn counters(&self) -> Vec<(String, u64)>;
    /// The queue pair that this is, where a device makes them: its number, and the Q_Key that it takes packets with.
    /// None where packets of any queue pair come to it.
    fn queue_pair(&self) -> Option<(u32, u32)>;
    /// What this backend can do.
    fn capabilities(&self) -> Capabilities;
    /// Gives the backend the present table of registered memory: every element handed to it from now on is of this
    /// one. Places that are posted, and the scratch memory, must be in it as they were.
    fn register(&mut self, regions: &Regions);
    /// Hands places to the backend. Returns how many it took: fewer than given when it is full.
    ///
    /// # Panics
    /// For an element outside its region or an id at or above the capacity: both are the caller's own.
    fn post(&mut self, receives: &[Recv]) -> usize;
    /// Takes places back that have not landed; ids that are not posted are ignored.
    fn withdraw(&mut self, ids: &[u32]);
    /// Receives up to `max` batches without waiting. Returns how many packets landed.
    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError>;
    /// Sleeps until a packet may be there, or for `timeout`.
    fn wait(&mut self, timeout: std::time::Duration) -> Result<(), IoError>;
    /// What becomes readable when packets may be there, to wait on beside others; none if [`Self::wait`] is the only
    /// way. Whoever waits on it polls until nothing lands first: what a layer holds already wakes nobody.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// Sends packets to one destination, sealed. Returns how many were taken, fewer than given when the
    /// path is full.
    fn send(&mut self, to: SocketAddr, packets: &[Send<'_>]) -> Result<usize, IoError>;
}
