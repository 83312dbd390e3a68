//! Raw Ethernet frames (requires `CAP_NET_RAW`): every input of the ICRC is known, over IPv4 too.
//!
//! Frames are received through an `AF_PACKET` socket (packet(7)) whose filter passes this address and port, one by one
//! or through a [ring](FrameConfig::ring). The payload of each is copied once more, to the steer's destination. Frames
//! are sent with headers built here.
//!
//! If the kernel or a device has merged packets, or not segmented them yet (GRO, GSO), one frame contains several: it
//! is segmented here according to its offload header (`PACKET_VNET_HDR`, for UDP Linux 6.2 or newer).
//!
//! Packets that the kernel would have dropped silently are counted by cause: [`RefusedCounters`].

mod offload;
mod prebuilt;
mod ring;
mod sys;

use crate::frame::{self, Mac};
use crate::interface;
use crate::land::Landing;
use crate::neighbour::NeighbourCache;
use crate::payload::{self, PostedReceives};
use crate::seal::{ICRC_BYTES, Sealer};
use crate::sys::set_buffer;
use crate::{Capabilities, DeviceCounters, IoError, MAX_HEADER, PacketIo, Recv, SCRATCH_BYTES, Steer, TxPacket};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use shotline_memory::{Regions, Sge};
use shotline_wire::ParseError;
use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

/// Maximum bytes of a frame's headers and ICRC, which are built here.
const HEAD_BYTES: usize = frame::MAX_HEADERS + MAX_HEADER + ICRC_BYTES;

/// Configuration of a [`FrameIo`].
#[derive(Clone, Debug)]
pub struct FrameConfig {
    /// The interface, such as `eth0`.
    pub interface: String,
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
    /// At least [`SCRATCH_BYTES`] of registered memory for payloads without a destination.
    pub scratch: Sge,
    /// Receive buffer to request from the kernel, in bytes of its accounting; with a ring, the size of the ring.
    pub receive_buffer: usize,
    /// Receive through a ring shared with the kernel (`TPACKET_V3`): less work per frame, but a frame that is not
    /// followed by another is delayed by a millisecond.
    pub ring: bool,
    /// Send packets as ECN-capable ([`crate::udp::UdpConfig::ecn`]); received marks are always reported.
    pub ecn: bool,
}

/// Received packets that were refused before a steer was called, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedCounters {
    /// The IPv4 header's checksum is wrong.
    pub checksum: u64,
    /// Fragments: RoCE packets are never fragmented.
    pub fragments: u64,
    /// Lengths or fields that contradict each other.
    pub malformed: u64,
}

/// The source of received frames.
enum FrameSource {
    Calls(Box<sys::RxBatch>),
    Ring(ring::Ring),
}

/// The raw-frame backend.
pub struct FrameIo {
    config: FrameConfig,
    fd: OwnedFd,
    /// Never read: see [`interface::reserve_port`].
    _port: OwnedFd,
    local: SocketAddr,
    mac: Mac,
    neighbours: NeighbourCache,
    sealer: Sealer,
    posted: PostedReceives,
    source: FrameSource,
    /// Frames that the kernel has dropped; reading the kernel's counter resets it.
    missed: Cell<u64>,
    tx_batch: sys::TxBatch,
    heads: Box<[[u8; HEAD_BYTES]; sys::DEPTH]>,
    refused: RefusedCounters,
    unknown_host: u64,
}

impl FrameIo {
    /// Reserves the port and opens the interface. `regions` is the table that every [`Sge`] refers to.
    pub fn open(config: FrameConfig, regions: &Regions) -> Result<Self, IoError> {
        if config.bind.ip().is_unspecified() {
            let what = format!("cannot receive on {}: the ICRC covers the address, so name one", config.bind);
            return Err(IoError::Config(what));
        }
        if config.scratch.len < SCRATCH_BYTES {
            let what =
                format!("scratch memory of {} bytes cannot hold a packet: provide {SCRATCH_BYTES}", config.scratch.len);
            return Err(IoError::Config(what));
        }
        regions.address(config.scratch); // panics now rather than at the first packet
        let failed = |what: String, hint| move |source| IoError::System { what, source, hint };
        let (port, local) = interface::reserve_port(config.bind).map_err(failed(
            format!("cannot bind UDP {}", config.bind),
            "; another process may own this port (ss -ulpn), or the address is not on this machine (ip addr)",
        ))?;
        let ring = config.ring.then_some(config.receive_buffer);
        let sys::Opened { fd, index, mac, ring } = sys::open(&config.interface, local, ring).map_err(failed(
            format!("cannot open a raw socket on {}", config.interface),
            "; it needs CAP_NET_RAW, and the interface must be up (ip link)",
        ))?;
        set_buffer(&fd, true, config.receive_buffer).map_err(failed("cannot set the receive buffer".into(), ""))?;
        Ok(Self {
            fd,
            _port: port,
            local,
            mac,
            neighbours: NeighbourCache::new(index, config.peer),
            sealer: Sealer::new(),
            posted: PostedReceives::new(config.capacity, regions),
            source: ring.map_or_else(|| FrameSource::Calls(Box::new(sys::RxBatch::new())), FrameSource::Ring),
            missed: Cell::new(0),
            tx_batch: sys::TxBatch::new(),
            heads: Box::new([[0; HEAD_BYTES]; sys::DEPTH]),
            refused: RefusedCounters::default(),
            unknown_host: 0,
            config,
        })
    }

    /// Returns the local address, with the port that the kernel chose if none was given.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }
    /// Returns the interface's own Ethernet address.
    pub fn ethernet_addr(&self) -> [u8; 6] {
        self.mac
    }
    /// Returns the counters of packets that were refused before a steer was called.
    pub fn refused(&self) -> RefusedCounters {
        self.refused
    }

    /// Returns the number of packets accepted for sending and lost, because the host's Ethernet address was unknown.
    pub fn unknown_host(&self) -> u64 {
        self.unknown_host
    }

    fn trailer(&self) -> usize {
        if self.config.sealed { ICRC_BYTES } else { 0 }
    }
}

impl PacketIo for FrameIo {
    /// Frames for which the kernel had no space (`missed`), and packets to hosts with an unknown address (`unsent`).
    fn device_counters(&self) -> DeviceCounters {
        // If the counter cannot be read, the last value stands.
        self.missed.set(self.missed.get() + sys::dropped(&self.fd).unwrap_or(0));
        DeviceCounters { missed: self.missed.get(), unsent: self.unknown_host, ..DeviceCounters::default() }
    }

    fn counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    fn queue_pair(&self) -> Option<(u32, u32)> {
        None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { steers: true, credits: false }
    }

    fn register(&mut self, regions: &Regions) {
        self.posted.regions = regions.clone();
    }

    fn post(&mut self, receives: &[Recv]) -> usize {
        self.posted.post(receives)
    }

    fn withdraw(&mut self, ids: &[u32]) {
        self.posted.withdraw(ids);
    }

    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
        let (mut taken, mut packets) = (0, 0);
        while taken < max {
            let requested = (max - taken).min(sys::DEPTH);
            let count = match &mut self.source {
                FrameSource::Calls(frames) => frames.receive(&self.fd, requested).map_err(|source| {
                    IoError::System { what: format!("receiving frames on {}", self.config.interface), source, hint: "" }
                })?,
                FrameSource::Ring(_) => requested,
            };
            for index in 0..count {
                let frame = match &mut self.source {
                    FrameSource::Calls(frames) => Some(frames.get(index)),
                    FrameSource::Ring(ring) => ring.next(),
                };
                let Some(frame) = frame else { return Ok(packets) };
                if !frame.is_ours {
                    continue;
                }
                let mut landing = Landing {
                    posted: &mut self.posted,
                    sealer: &mut self.sealer,
                    scratch: self.config.scratch,
                    sealed: self.config.sealed,
                    remainders: self.config.remainders,
                };
                match landing.land_frame(frame.bytes, frame.segment, self.local, &mut self.neighbours, steer) {
                    Ok(landed) => packets += landed, // 0 if it is for another address
                    Err(ParseError::Checksum { .. }) => self.refused.checksum += 1,
                    Err(ParseError::Fragment { .. }) => self.refused.fragments += 1,
                    Err(_) => self.refused.malformed += 1,
                }
            }
            taken += count;
            if count < requested {
                break;
            }
        }
        Ok(packets)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        crate::sys::wait(&self.fd, timeout).map_err(|source| IoError::System {
            what: format!("waiting for frames on {}", self.config.interface),
            source,
            hint: "",
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    /// Packets to a host with an unknown Ethernet address are lost while the kernel resolves it.
    fn send(&mut self, to: SocketAddr, packets: &[TxPacket<'_>]) -> Result<usize, IoError> {
        let Some(mac) = self.neighbours.find(to.ip()) else {
            self.unknown_host += packets.len() as u64;
            return Ok(packets.len());
        };
        let mut taken = 0;
        while taken < packets.len() {
            let batch = &packets[taken..packets.len().min(taken + sys::DEPTH)];
            let sent = self.send_batch(mac, to, batch)?;
            taken += sent;
            if sent < batch.len() {
                break;
            }
        }
        Ok(taken)
    }
}

impl FrameIo {
    /// Sends up to [`sys::DEPTH`] packets. Returns how many were sent.
    fn send_batch(&mut self, mac: Mac, to: SocketAddr, packets: &[TxPacket<'_>]) -> Result<usize, IoError> {
        let trailer = self.trailer();
        self.tx_batch.clear();
        for (packet, head) in packets.iter().zip(self.heads.iter_mut()) {
            let payload_len = payload::len(packet.gather);
            let len = packet.header.len() + payload_len + trailer;
            let headers = frame::headers([self.mac, mac], self.local, to, len, self.config.ecn)
                .filter(|_| packet.header.len() <= MAX_HEADER)
                .ok_or_else(|| {
                    IoError::Config(format!("a packet from {} to {to} cannot carry {len} bytes", self.local))
                })?;
            let end = headers.len() + packet.header.len();
            head[..headers.len()].copy_from_slice(&headers);
            head[headers.len()..end].copy_from_slice(packet.header);
            if self.config.sealed {
                let icrc = self.sealer.seal_send(&self.posted.regions, [self.local, to], packet, payload_len);
                head[end..end + ICRC_BYTES].copy_from_slice(&icrc.to_le_bytes());
            }
            let (front, back) = head.split_at_mut(end);
            let front = std::iter::once((front.as_mut_ptr(), end));
            let payload = packet.gather.iter().filter(|sge| sge.len > 0);
            let payload = payload.map(|sge| (self.posted.regions.address(*sge), sge.len as usize));
            self.tx_batch.push(front.chain(payload).chain([(back.as_mut_ptr(), trailer)]));
        }
        // SAFETY: the pieces are `self.heads` and elements of registered regions, which stay readable.
        unsafe { self.transmit(to) }
    }

    /// Sends the frames in `self.tx_batch`. Returns how many were sent.
    ///
    /// # Safety
    /// Every piece must be readable for its whole length until this returns.
    unsafe fn transmit(&mut self, to: SocketAddr) -> Result<usize, IoError> {
        // SAFETY: the caller guarantees the pieces.
        unsafe { self.tx_batch.send(&self.fd) }.map_err(|source| {
            let hint = match source.raw_os_error() {
                Some(libc::EMSGSIZE) => {
                    "; the interface's MTU is too small for these packets: ip link set dev ... mtu 4200"
                }
                Some(libc::ENETDOWN) => "; the interface is down: ip link set dev ... up",
                _ => "",
            };
            IoError::System { what: format!("sending frames to {to}"), source, hint }
        })
    }
}
