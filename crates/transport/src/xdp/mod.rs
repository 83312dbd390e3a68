//! Frames received from an interface's driver before the kernel's network stack (AF_XDP). Requires Linux 6.6 or newer
//! and the capabilities `CAP_NET_ADMIN`, `CAP_BPF`, `CAP_NET_RAW`, and `CAP_IPC_LOCK` or enough lockable memory for the
//! chunks.
//!
//! An XDP program (see `program.rs`) runs for each frame and redirects those of one address and port to our sockets,
//! one for each queue; all others go on to the kernel. As with [`crate::af_packet`], every input of the ICRC is known,
//! over IPv4 too. A frame is stored in page-sized chunks that are shared with the kernel, and its payload is copied
//! once, to the steer's destination. Frames longer than 3840 bytes need several chunks: the content of the later ones
//! is moved up to the end of the first, which costs 4096-byte payloads a copy of their last 320 bytes.
//!
//! | mode | where the program runs | copies per payload byte |
//! |---|---|---|
//! | native, zero-copy | in the driver, and the device writes into the chunks | 1 |
//! | native | in the driver | 2, one by the kernel |
//! | generic | in the kernel's generic path, for every driver | 2, one by the kernel |
//!
//! In generic mode a link that shares memory (veth) may deliver packets that have not been segmented yet. AF_XDP does
//! not report the segment size, so these are refused and counted; [`crate::af_packet`] gets the size and segments them.
//!
//! While a program is attached to an interface, the kernel refuses another receiver there. The program is detached when
//! its process ends, even if it is killed.

mod config;
mod program;
mod queue;
mod sys;

use crate::frame::{self, Mac};
use crate::interface;
use crate::land::Landing;
use crate::neighbour::NeighbourCache;
use crate::payload::{self, PostedReceives};
use crate::seal::{ICRC_BYTES, Sealer};
use crate::{Capabilities, DeviceCounters, IoError, MAX_HEADER, PacketIo, Recv, SCRATCH_BYTES, Steer, TxPacket};
pub use config::{AttachMode, CopyMode, XdpConfig};
use queue::{Queue, RxFrame, TxFrame};
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use shotline_memory::Regions;
use shotline_wire::{ParseError, ethernet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Maximum bytes of a frame's headers, which are built here.
const HEAD_BYTES: usize = frame::MAX_HEADERS + MAX_HEADER;
/// Maximum chunks processed at once: few enough that they stay in the cache and are soon returned to the kernel.
const BURST: u32 = 64;
/// Time to retry opening a busy queue: the kernel releases a closed one within milliseconds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Counters of received, refused and dropped frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpCounters {
    /// Frames received by our sockets.
    pub received: u64,
    /// Packets delivered to a steer.
    pub landed: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Dropped by the kernel because all chunks were in use: frames were not received in time (`rx_ring_full`,
    /// `rx_fill_ring_empty_descs`). A run's counters report it as `imissed`, as DPDK calls it.
    pub no_chunk: u64,
    /// Dropped by the kernel for another reason (`rx_dropped`).
    pub dropped: u64,
    /// The IPv4 header's checksum is wrong.
    pub checksum: u64,
    /// First fragments: RoCE packets are never fragmented. Later fragments have no port number and go to the kernel.
    pub fragments: u64,
    /// Lengths or fields that contradict each other.
    pub malformed: u64,
    /// Longer than the interface's MTU: packets that an offload has merged, with an unknown segment size. Only in
    /// generic mode.
    pub merged: u64,
    /// To another Ethernet address.
    pub not_ours: u64,
    /// Packets accepted for sending and lost, because the host's Ethernet address was unknown.
    pub unknown_host: u64,
}

impl XdpCounters {
    /// Returns the received frames that did not reach a steer, by cause. The first two are counted by the kernel; the
    /// others are part of [`Self::received`].
    pub fn causes(&self) -> [(&'static str, u64); 7] {
        [
            ("no_chunk", self.no_chunk),
            ("dropped", self.dropped),
            ("checksum", self.checksum),
            ("fragment", self.fragments),
            ("malformed", self.malformed),
            ("merged", self.merged),
            ("not_ours", self.not_ours),
        ]
    }
}

/// The AF_XDP backend.
pub struct XdpIo {
    config: XdpConfig,
    /// Detaches the program from the interface when dropped, which must be before the sockets.
    _link: OwnedFd,
    _map: OwnedFd,
    queues: Vec<Queue>,
    /// Index of the queue to poll first.
    next: usize,
    /// Readable when any of the queues is.
    epoll: OwnedFd,
    /// Never read: see [`interface::reserve_port`].
    _port: OwnedFd,
    native: bool,
    local: SocketAddr,
    mac: Mac,
    mtu: usize,
    neighbours: NeighbourCache,
    sealer: Sealer,
    posted: PostedReceives,
    counters: XdpCounters,
}

impl XdpIo {
    /// Reserves the port, opens the interface's queues and attaches the program. `regions` is the table that every
    /// [`Sge`](shotline_memory::Sge) refers to.
    ///
    /// # Errors
    /// [`IoError::Config`] if the address is unspecified, the scratch memory is too small or the number of chunks is
    /// not valid; [`IoError::System`] if the port, a queue or the program could not be opened or attached.
    ///
    /// # Panics
    /// If the scratch memory is not in `regions`.
    pub fn open(config: XdpConfig, regions: &Regions) -> Result<Self, IoError> {
        if config.bind.ip().is_unspecified() {
            let what = format!("cannot receive on {}: frames are chosen by their address, so name one", config.bind);
            return Err(IoError::Config(what));
        }
        if config.scratch.len < SCRATCH_BYTES {
            let what =
                format!("scratch memory of {} bytes cannot hold a packet: provide {SCRATCH_BYTES}", config.scratch.len);
            return Err(IoError::Config(what));
        }
        if !config.chunks.is_power_of_two() || !(64..=1 << 18).contains(&config.chunks) {
            let what = format!("{} chunks: expected a power of two from 64 to 262144", config.chunks);
            return Err(IoError::Config(what));
        }
        regions.address(config.scratch); // panics now rather than at the first packet
        let name = config.interface.clone();
        let failed = |what: String, hint| move |source| IoError::System { what, source, hint };
        let (port, local) = interface::reserve_port(config.bind).map_err(failed(
            format!("cannot bind UDP {}", config.bind),
            "; another process may own this port (ss -ulpn), or the address is not on this machine (ip addr)",
        ))?;
        let (index, mac) = interface::index_and_mac(&port, &name)
            .map_err(failed(format!("there is no Ethernet interface {name}"), "; ip link lists the interfaces"))?;
        let mtu = interface::mtu(&port, &name).map_err(failed(format!("cannot read the MTU of {name}"), ""))?;
        let queue_ids = match config.queues.as_slice() {
            [] => (0..interface::rx_queues(&port, &name)).collect(),
            some => some.to_vec(),
        };
        let map_entries = queue_ids.iter().max().map_or(1, |last| last.saturating_add(1));
        let privileges = "; it needs root, or CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_IPC_LOCK";
        let map = sys::new_map(map_entries).map_err(failed("cannot create the map of sockets".into(), privileges))?;
        let mut queues = Vec::with_capacity(queue_ids.len());
        for queue in queue_ids {
            let no_memory = |error: &std::io::Error| error.raw_os_error() == Some(libc::ENOBUFS);
            let hint = match config.copy {
                CopyMode::Zero => "; the driver may not support zero-copy: leave out copy=zero",
                _ => "; another program may own the queue, or the interface is down or has no such queue (ethtool -l)",
            };
            let opened = retry_while_busy(|| Queue::open(&config, index, queue))
                .and_then(|socket| sys::map_insert(&map, queue, socket.fd()).map(|()| socket));
            let memory = "; its chunks are locked memory: raise ulimit -l, add CAP_IPC_LOCK, or use fewer chunks";
            let hint = if opened.as_ref().err().is_some_and(no_memory) { memory } else { hint };
            queues.push(opened.map_err(failed(format!("cannot open queue {queue} of {name}"), hint))?);
        }
        let epoll = watch(&queues).map_err(failed("cannot wait on the sockets".into(), ""))?;
        let program = sys::load_program(&program::filter(local, rustix::fd::AsRawFd::as_raw_fd(&map)))
            .map_err(failed("the kernel rejects the XDP program".into(), privileges))?;
        let attach = |mode| sys::attach(&program, index, mode);
        let attached = match config.mode {
            AttachMode::Native => attach(sys::NATIVE).map(|link| (link, true)),
            AttachMode::Generic => attach(sys::GENERIC).map(|link| (link, false)),
            AttachMode::Auto => {
                attach(sys::NATIVE).map(|link| (link, true)).or_else(|_| attach(sys::GENERIC).map(|link| (link, false)))
            }
        };
        let (attachment, native) = attached.map_err(failed(
            format!("cannot attach the XDP program to {name}"),
            "; another program may be attached (ip link shows xdp), or the driver may not support this mode at its MTU",
        ))?;
        Ok(Self {
            _link: attachment,
            _map: map,
            queues,
            next: 0,
            epoll,
            _port: port,
            native,
            local,
            mac,
            mtu,
            neighbours: NeighbourCache::new(index, config.peer),
            sealer: Sealer::new(),
            posted: PostedReceives::new(config.capacity, regions),
            counters: XdpCounters::default(),
            config,
        })
    }

    /// Returns the local address, with the port that the kernel chose if none was given.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns `true` if the program runs in the driver.
    pub fn is_native(&self) -> bool {
        self.native
    }

    /// Returns `true` if all queues are zero-copy: the device writes into the chunks.
    pub fn is_zero_copy(&self) -> bool {
        self.queues.iter().all(Queue::is_zero_copy)
    }

    /// Returns the bytes of receive chunks of all queues.
    pub fn receive_buffer(&self) -> usize {
        self.queues.len() * self.config.chunks as usize * queue::CHUNK_BYTES as usize
    }

    /// Returns the counters of this backend and of the kernel.
    pub fn xdp_counters(&self) -> XdpCounters {
        let mut all = self.counters;
        for queue in &self.queues {
            let Ok(counters) = queue.kernel_counters() else { continue };
            // In copy mode the kernel also counts a frame without a chunk as dropped. In zero-copy mode it counts how
            // often the device found no chunk, which is not a number of frames.
            let empty = counters.rx_fill_ring_empty_descs.min(counters.rx_dropped);
            let empty = if queue.is_zero_copy() { 0 } else { empty };
            all.no_chunk += counters.rx_ring_full + empty;
            all.dropped += counters.rx_dropped - empty;
        }
        all
    }

    /// Receives up to `max` frames from one queue. Returns the number of frames, and of packets that landed.
    fn receive_from<S: Steer>(&mut self, queue: usize, steer: &mut S, max: usize) -> [usize; 2] {
        let queue = &mut self.queues[queue];
        let filled = queue.filled().min(BURST);
        let (mut used, mut frames, mut packets) = (0, 0, 0);
        while used < filled && frames < max {
            let Some(found) = queue.frame(used, filled) else { break };
            frames += 1;
            let (frame, chunks) = match found {
                RxFrame::Complete(frame, chunks) => (frame, chunks),
                RxFrame::TooLong(chunks) => (&[][..], chunks),
            };
            used += chunks;
            if frame.get(..6).is_some_and(|to| to != self.mac) {
                self.counters.not_ours += 1;
                continue;
            }
            if frame.len() > self.mtu + ethernet::Header::LEN {
                self.counters.merged += 1;
                continue;
            }
            let mut landing = Landing {
                posted: &mut self.posted,
                sealer: &mut self.sealer,
                scratch: self.config.scratch,
                sealed: self.config.sealed,
                remainders: self.config.remainders,
            };
            match landing.land_frame(frame, None, self.local, &mut self.neighbours, steer) {
                Ok(0) => self.counters.not_ours += 1,
                Ok(landed) => packets += landed,
                Err(ParseError::Checksum { .. }) => self.counters.checksum += 1,
                Err(ParseError::Fragment { .. }) => self.counters.fragments += 1,
                Err(_) => self.counters.malformed += 1,
            }
        }
        if used > 0 {
            queue.recycle(used);
        }
        self.counters.received += frames as u64;
        self.counters.landed += packets as u64;
        [frames, packets]
    }

    fn flush(&mut self) -> Result<(), IoError> {
        let flushed = self.queues.first_mut().map_or(Ok(()), Queue::flush);
        flushed.map_err(|source| IoError::System {
            what: format!("sending frames on {}", self.config.interface),
            source,
            hint: "; the interface may be down: ip link set dev ... up",
        })
    }
}

/// Retries while the queue is busy: the kernel releases it some time after its socket was closed.
fn retry_while_busy<T>(open: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
    let started = Instant::now();
    loop {
        match open() {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy && started.elapsed() < BUSY_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

/// Creates an epoll descriptor that is readable when any of the queues is.
fn watch(queues: &[Queue]) -> std::io::Result<OwnedFd> {
    let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for queue in queues {
        epoll::add(&fd, queue, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(fd)
}

impl PacketIo for XdpIo {
    fn device_counters(&self) -> DeviceCounters {
        let XdpCounters { no_chunk: missed, dropped, merged, unknown_host: unsent, .. } = self.xdp_counters();
        DeviceCounters { missed, receive_errors: dropped + merged, unsent, ..DeviceCounters::default() }
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
        let (mut taken, mut packets, mut idle) = (0, 0, 0);
        while taken < max && idle < self.queues.len() {
            // Round-robin, so that a busy queue does not starve the others.
            let [frames, landed] = self.receive_from(self.next, steer, max - taken);
            self.next = (self.next + 1) % self.queues.len();
            (taken, packets) = (taken + frames, packets + landed);
            idle = if frames > 0 { 0 } else { idle + 1 };
        }
        Ok(packets)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        self.flush()?;
        crate::sys::wait(&self.epoll, timeout).map_err(|source| IoError::System {
            what: format!("waiting for frames on {}", self.config.interface),
            source,
            hint: "",
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    /// Packets to a host with an unknown Ethernet address are lost while the kernel resolves it.
    fn send(&mut self, to: SocketAddr, packets: &[TxPacket<'_>]) -> Result<usize, IoError> {
        let Some(mac) = self.neighbours.find(to.ip()) else {
            self.counters.unknown_host += packets.len() as u64;
            return Ok(packets.len());
        };
        let Some(queue) = self.queues.first_mut() else { return Ok(0) };
        let mut sent = 0;
        let mut head = [0; HEAD_BYTES];
        for packet in packets {
            let payload_len = payload::len(packet.gather);
            let trailer = if self.config.sealed { ICRC_BYTES } else { 0 };
            let len = packet.header.len() + payload_len + trailer;
            let headers = frame::headers([self.mac, mac], self.local, to, len, self.config.ecn)
                .filter(|headers| {
                    packet.header.len() <= MAX_HEADER && headers.len() - ethernet::Header::LEN + len <= self.mtu
                })
                .ok_or_else(|| {
                    let (from, mtu) = (self.local, self.mtu);
                    IoError::Config(format!(
                        "a packet from {from} to {to} cannot carry {len} bytes after UDP at an MTU of {mtu}"
                    ))
                })?;
            let end = headers.len() + packet.header.len();
            head[..headers.len()].copy_from_slice(&headers);
            head[headers.len()..end].copy_from_slice(packet.header);
            let icrc = if self.config.sealed {
                self.sealer.seal_send(&self.posted.regions, [self.local, to], packet, payload_len).to_le_bytes()
            } else {
                [0; ICRC_BYTES]
            };
            let frame = TxFrame {
                front: &head[..end],
                gather: packet.gather,
                regions: &self.posted.regions,
                back: &icrc[..trailer],
            };
            if !queue.send(&frame) {
                break;
            }
            sent += 1;
        }
        self.counters.sent += sent as u64;
        self.flush()?;
        Ok(sent)
    }
}
