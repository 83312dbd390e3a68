//! Raw Ethernet frames, for those who may (`CAP_NET_RAW`): every input of the ICRC is known, over IPv4 too.
//!
//! Frames come through an `AF_PACKET` socket (packet(7)) whose filter lets this address and port pass, one by one or
//! through a [ring](FrameConfig::ring). The payload of each is copied once more, to where the steer wants it. Frames are
//! sent with headers made here.
//!
//! Where the kernel or a device joins packets, or has not cut them yet (GRO, GSO), one frame stands for many: it is taken
//! apart here by what the kernel says of it (`PACKET_VNET_HDR`, for UDP Linux 6.2 or newer).
//!
//! What the kernel would have dropped silently has a cause here: [`Refused`].

mod came;
mod prebuilt;
mod ring;
mod sys;

use crate::frame::{self, Mac};
use crate::land::Landing;
use crate::link;
use crate::neighbour::Neighbours;
use crate::payload::{self, Places};
use crate::seal::{ICRC_BYTES, Sealer};
use crate::sys::set_buffer;
use crate::{Capabilities, DeviceCounts, IoError, MAX_HEADER, PacketIo, Recv, SCRATCH_BYTES, Send, Steer};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use shotline_memory::{Regions, Sge};
use shotline_wire::ParseError;
use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

/// Bytes of a frame that are made here, at most: every header, and the ICRC.
const HEAD: usize = frame::MAX_HEADERS + MAX_HEADER + ICRC_BYTES;

/// How to open a [`FrameIo`].
#[derive(Clone, Debug)]
pub struct FrameConfig {
    /// The interface, such as `eth0`.
    pub interface: String,
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
    /// At least [`SCRATCH_BYTES`] of registered memory for payloads without a place.
    pub scratch: Sge,
    /// Receive buffer to ask the kernel for, in bytes of its accounting; the size of the ring, if there is one.
    pub receive_buffer: usize,
    /// Have the kernel copy frames into a ring that is shared with it (`TPACKET_V3`): less work for the receiver, but a
    /// frame that is followed by none waits a millisecond.
    pub ring: bool,
    /// Send packets that may be marked instead of dropped ([`crate::udp::UdpConfig::ecn`]); marks are told always.
    pub ecn: bool,
}

/// Packets that came and were refused before anybody was asked, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// The IPv4 header's checksum is wrong.
    pub checksum: u64,
    /// Fragments: RoCE packets are none.
    pub fragments: u64,
    /// Lengths or fields that contradict each other.
    pub malformed: u64,
}

/// Where frames are read.
enum Source {
    Calls(Box<sys::Frames>),
    Ring(ring::Ring),
}

/// The backend of raw frames.
pub struct FrameIo {
    config: FrameConfig,
    fd: OwnedFd,
    /// Nothing is read from it: see [`link::hold_port`].
    _port: OwnedFd,
    local: SocketAddr,
    mac: Mac,
    neighbours: Neighbours,
    sealer: Sealer,
    places: Places,
    came: Source,
    /// Frames that the kernel has dropped; it forgets what it has told.
    missed: Cell<u64>,
    outgoing: sys::Outgoing,
    heads: Box<[[u8; HEAD]; sys::DEPTH]>,
    refused: Refused,
    unknown_host: u64,
}

impl FrameIo {
    /// Takes the address and opens the interface. `regions` is the table that every [`Sge`] refers to.
    pub fn open(config: FrameConfig, regions: &Regions) -> Result<Self, IoError> {
        if config.bind.ip().is_unspecified() {
            let what = format!("cannot receive on {}: the ICRC covers the address, so name one", config.bind);
            return Err(IoError::Config(what));
        }
        if config.scratch.len < SCRATCH_BYTES {
            let what = format!("scratch memory of {} bytes cannot hold a packet: {SCRATCH_BYTES}", config.scratch.len);
            return Err(IoError::Config(what));
        }
        regions.address(config.scratch); // panics now rather than at the first packet
        let failed = |what: String, hint| move |source| IoError::System { what, source, hint };
        let (port, local) = link::hold_port(config.bind).map_err(failed(
            format!("cannot take UDP {}", config.bind),
            "; another process may own this port (ss -ulpn), or the address is not on this machine (ip addr)",
        ))?;
        let ring = config.ring.then_some(config.receive_buffer);
        let sys::Opened { fd, index, mac, ring } = sys::open(&config.interface, local, ring).map_err(failed(
            format!("cannot open the frames of {}", config.interface),
            "; it needs CAP_NET_RAW, and the interface must be up (ip link)",
        ))?;
        set_buffer(&fd, true, config.receive_buffer).map_err(failed("cannot set the receive buffer".into(), ""))?;
        Ok(Self {
            fd,
            _port: port,
            local,
            mac,
            neighbours: Neighbours::new(index, config.peer),
            sealer: Sealer::new(),
            places: Places::new(config.capacity, regions),
            came: ring.map_or_else(|| Source::Calls(Box::new(sys::Frames::new())), Source::Ring),
            missed: Cell::new(0),
            outgoing: sys::Outgoing::new(),
            heads: Box::new([[0; HEAD]; sys::DEPTH]),
            refused: Refused::default(),
            unknown_host: 0,
            config,
        })
    }

    /// The local address, with the port that the kernel chose if none was given.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }
    /// The interface's own Ethernet address.
    pub fn ethernet_addr(&self) -> [u8; 6] {
        self.mac
    }
    /// What was refused before any steer saw it.
    pub fn refused(&self) -> Refused {
        self.refused
    }

    /// Packets that were taken to be sent and are lost, because nobody knows the host's Ethernet address (yet).
    pub fn unknown_host(&self) -> u64 {
        self.unknown_host
    }

    fn trailer(&self) -> usize {
        if self.config.sealed { ICRC_BYTES } else { 0 }
    }
}

impl PacketIo for FrameIo {
    /// Frames for which the kernel had no room (`missed`), and packets to hosts that nobody knew (`unsent`).
    fn device(&self) -> DeviceCounts {
        // What cannot be asked is not known to be more.
        self.missed.set(self.missed.get() + sys::dropped(&self.fd).unwrap_or(0));
        DeviceCounts { missed: self.missed.get(), unsent: self.unknown_host, ..DeviceCounts::default() }
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
        self.places.regions = regions.clone();
    }

    fn post(&mut self, receives: &[Recv]) -> usize {
        self.places.post(receives)
    }

    fn withdraw(&mut self, ids: &[u32]) {
        self.places.withdraw(ids);
    }

    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
        let (mut taken, mut packets) = (0, 0);
        while taken < max {
            let asked = (max - taken).min(sys::DEPTH);
            let came = match &mut self.came {
                Source::Calls(frames) => frames.receive(&self.fd, asked).map_err(|source| IoError::System {
                    what: format!("receiving frames of {}", self.config.interface),
                    source,
                    hint: "",
                })?,
                Source::Ring(_) => asked,
            };
            for index in 0..came {
                let frame = match &mut self.came {
                    Source::Calls(frames) => Some(frames.get(index)),
                    Source::Ring(ring) => ring.next(),
                };
                let Some(frame) = frame else { return Ok(packets) };
                if !frame.ours {
                    continue;
                }
                let mut landing = Landing {
                    places: &mut self.places,
                    sealer: &mut self.sealer,
                    scratch: self.config.scratch,
                    sealed: self.config.sealed,
                    remainders: self.config.remainders,
                };
                match landing.land_frame(frame.bytes, frame.segment, self.local, &mut self.neighbours, steer) {
                    Ok(landed) => packets += landed, // none, if it is another's
                    Err(ParseError::Checksum { .. }) => self.refused.checksum += 1,
                    Err(ParseError::Fragment { .. }) => self.refused.fragments += 1,
                    Err(_) => self.refused.malformed += 1,
                }
            }
            taken += came;
            if came < asked {
                break;
            }
        }
        Ok(packets)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        crate::sys::wait(&self.fd, timeout).map_err(|source| IoError::System {
            what: format!("waiting for frames of {}", self.config.interface),
            source,
            hint: "",
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    /// Packets to a host whose Ethernet address nobody knows yet are lost, while the kernel asks for it.
    fn send(&mut self, to: SocketAddr, packets: &[Send<'_>]) -> Result<usize, IoError> {
        let Some(mac) = self.neighbours.find(to.ip()) else {
            self.unknown_host += packets.len() as u64;
            return Ok(packets.len());
        };
        let mut taken = 0;
        while taken < packets.len() {
            let batch = &packets[taken..packets.len().min(taken + sys::DEPTH)];
            let sent = self.batch(mac, to, batch)?;
            taken += sent;
            if sent < batch.len() {
                break;
            }
        }
        Ok(taken)
    }
}

impl FrameIo {
    /// Sends up to [`sys::DEPTH`] packets. Returns how many went.
    fn batch(&mut self, mac: Mac, to: SocketAddr, packets: &[Send<'_>]) -> Result<usize, IoError> {
        let trailer = self.trailer();
        self.outgoing.clear();
        for (packet, head) in packets.iter().zip(self.heads.iter_mut()) {
            let payload_len = payload::len(packet.gather);
            let len = packet.header.len() + payload_len + trailer;
            let headers = frame::headers([self.mac, mac], self.local, to, len, self.config.ecn)
                .filter(|_| packet.header.len() <= MAX_HEADER)
                .ok_or_else(|| IoError::Config(format!("no packet from {} to {to} is {len} bytes long", self.local)))?;
            let end = headers.len() + packet.header.len();
            head[..headers.len()].copy_from_slice(&headers);
            head[headers.len()..end].copy_from_slice(packet.header);
            if self.config.sealed {
                let icrc = self.sealer.seal_send(&self.places.regions, [self.local, to], packet, payload_len);
                head[end..end + ICRC_BYTES].copy_from_slice(&icrc.to_le_bytes());
            }
            let (front, back) = head.split_at_mut(end);
            let front = std::iter::once((front.as_mut_ptr(), end));
            let payload = packet.gather.iter().filter(|sge| sge.len > 0);
            let payload = payload.map(|sge| (self.places.regions.address(*sge), sge.len as usize));
            self.outgoing.push(front.chain(payload).chain([(back.as_mut_ptr(), trailer)]));
        }
        // SAFETY: the pieces are `self.heads` and elements of registered regions, which stay readable.
        unsafe { self.transmit(to) }
    }

    /// Sends the frames in `self.outgoing`. Returns how many went.
    ///
    /// # Safety
    /// Every piece of them must be readable for its whole length until this returns.
    unsafe fn transmit(&mut self, to: SocketAddr) -> Result<usize, IoError> {
        // SAFETY: the caller vouches for the pieces.
        unsafe { self.outgoing.send(&self.fd) }.map_err(|source| {
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
