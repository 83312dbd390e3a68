//! Frames taken from an interface's driver before the kernel's network stack sees them: AF_XDP of Linux 6.6 and newer, for
//! those who may (`CAP_NET_ADMIN`, `CAP_BPF`, `CAP_NET_RAW`, and `CAP_IPC_LOCK` or enough lockable memory for the chunks).
//!
//! A program of ours (see `program.rs`) runs for each frame and sends those of one address and port to our sockets, one for
//! each queue; all others go on to the kernel. As with [`crate::af_packet`] every input of the ICRC is known, over IPv4
//! too. A frame lies in chunks of a page that are shared with the kernel, and its payload is copied once, to where the
//! steer wants it. Frames longer than 3840 bytes need several chunks: what is behind the first is moved up to it, which
//! costs 4096-byte payloads a copy of their last 320 bytes.
//!
//! | mode | where the program runs | copies per payload byte |
//! |---|---|---|
//! | native, zero-copy | in the driver, which receives into our chunks | 1 |
//! | native | in the driver | 2, one by the kernel |
//! | generic | in the kernel's own path, for every driver | 2, one by the kernel |
//!
//! In generic mode a link that shares memory (veth) may hand over packets that nobody has cut yet. Nothing says where, so
//! that they are refused and counted; [`crate::af_packet`] is told, and takes them apart.
//!
//! Once a program with an address is attached, another receiver on the same interface is refused by the kernel. The
//! program goes when its process ends, however it does.

mod config;
mod program;
mod queue;
mod sys;

use crate::frame::{self, Mac};
use crate::land::Landing;
use crate::link;
use crate::neighbour::Neighbours;
use crate::payload::{self, Places};
use crate::seal::{ICRC_BYTES, Sealer};
use crate::{Capabilities, DeviceCounts, IoError, MAX_HEADER, PacketIo, Recv, SCRATCH_BYTES, Send, Steer};
pub use config::{Copy, Mode, XdpConfig};
use queue::{Came, Outgoing, Queue};
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use shotline_memory::Regions;
use shotline_wire::{ParseError, ethernet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Bytes of a frame that are made here, at most: every header.
const HEAD: usize = frame::MAX_HEADERS + MAX_HEADER;
/// Chunks whose frames are taken at once: their caches are warm, and the kernel gets them back soon.
const BURST: u32 = 64;
/// For a queue that is busy: the kernel lets go of one in milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// What has come, was refused here, and was dropped by the kernel before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that came to our sockets.
    pub received: u64,
    /// Packets that a steer was asked about.
    pub landed: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Dropped by the kernel because all chunks were full: nobody took frames in time (`rx_ring_full`,
    /// `rx_fill_ring_empty_descs`). In a run's books it is `imissed`, as DPDK calls it.
    pub no_chunk: u64,
    /// Dropped by the kernel for another reason (`rx_dropped`).
    pub dropped: u64,
    /// The IPv4 header's checksum is wrong.
    pub checksum: u64,
    /// First fragments: RoCE packets are none. Others name no port and stay the kernel's.
    pub fragments: u64,
    /// Lengths or fields that contradict each other.
    pub malformed: u64,
    /// Longer than the interface's MTU: packets that an offload has left together, of which nothing says where to cut.
    /// Only where the program runs in the kernel's own path.
    pub joined: u64,
    /// To another Ethernet address.
    pub not_ours: u64,
    /// Packets taken to be sent and lost, because nobody knew the host's Ethernet address (yet).
    pub unknown_host: u64,
}

impl Statistics {
    /// Everything that came and did not reach a steer, by cause. The first two are the kernel's; the others are of
    /// [`Self::received`].
    pub fn causes(&self) -> [(&'static str, u64); 7] {
        [
            ("no_chunk", self.no_chunk),
            ("dropped", self.dropped),
            ("checksum", self.checksum),
            ("fragment", self.fragments),
            ("malformed", self.malformed),
            ("joined", self.joined),
            ("not_ours", self.not_ours),
        ]
    }
}

/// The backend of AF_XDP.
pub struct XdpIo {
    config: XdpConfig,
    /// Takes the program from the interface when it goes; before the sockets.
    _link: OwnedFd,
    _map: OwnedFd,
    queues: Vec<Queue>,
    /// The queue that is looked at first.
    next: usize,
    /// Readable when any of the queues is.
    epoll: OwnedFd,
    /// Nothing is read from it: see [`link::hold_port`].
    _port: OwnedFd,
    native: bool,
    local: SocketAddr,
    mac: Mac,
    mtu: usize,
    neighbours: Neighbours,
    sealer: Sealer,
    places: Places,
    counted: Statistics,
}

impl XdpIo {
    /// Takes the address, opens the interface's queues and attaches the program. `regions` is the table that every
    /// [`Sge`](shotline_memory::Sge) refers to.
    pub fn open(config: XdpConfig, regions: &Regions) -> Result<Self, IoError> {
        if config.bind.ip().is_unspecified() {
            let what = format!("cannot receive on {}: frames are chosen by their address, so name one", config.bind);
            return Err(IoError::Config(what));
        }
        if config.scratch.len < SCRATCH_BYTES {
            let what = format!("scratch memory of {} bytes cannot hold a packet: {SCRATCH_BYTES}", config.scratch.len);
            return Err(IoError::Config(what));
        }
        if !config.chunks.is_power_of_two() || !(64..=1 << 18).contains(&config.chunks) {
            let what = format!("{} chunks: expected a power of two from 64 to 262144", config.chunks);
            return Err(IoError::Config(what));
        }
        regions.address(config.scratch); // panics now rather than at the first packet
        let name = config.interface.clone();
        let failed = |what: String, hint| move |source| IoError::System { what, source, hint };
        let (port, local) = link::hold_port(config.bind).map_err(failed(
            format!("cannot take UDP {}", config.bind),
            "; another process may own this port (ss -ulpn), or the address is not on this machine (ip addr)",
        ))?;
        let (index, mac) = link::ethernet(&port, &name)
            .map_err(failed(format!("there is no Ethernet interface {name}"), "; ip link lists what there is"))?;
        let mtu = link::mtu(&port, &name).map_err(failed(format!("cannot read the MTU of {name}"), ""))?;
        let names = match config.queues.as_slice() {
            [] => (0..link::queues(&port, &name)).collect(),
            some => some.to_vec(),
        };
        let most = names.iter().max().map_or(1, |most| most.saturating_add(1));
        let privileges = "; it needs root, or CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_IPC_LOCK";
        let map = sys::new_map(most).map_err(failed("cannot make a map of sockets".into(), privileges))?;
        let mut queues = Vec::with_capacity(names.len());
        for queue in names {
            let no_memory = |error: &std::io::Error| error.raw_os_error() == Some(libc::ENOBUFS);
            let hint = match config.copy {
                Copy::Zero => "; the driver may not do without a copy, leave the choice to it",
                _ => "; another program may own the queue, or the interface is down or has no such queue (ethtool -l)",
            };
            let opened = patiently(|| Queue::open(&config, index, queue))
                .and_then(|socket| sys::insert(&map, queue, socket.fd()).map(|()| socket));
            let memory = "; its chunks are locked memory: raise ulimit -l, have CAP_IPC_LOCK, or ask for fewer chunks";
            let hint = if opened.as_ref().err().is_some_and(no_memory) { memory } else { hint };
            queues.push(opened.map_err(failed(format!("cannot open queue {queue} of {name}"), hint))?);
        }
        let epoll = watch(&queues).map_err(failed("cannot watch the sockets".into(), ""))?;
        let program = sys::load(&program::filter(local, rustix::fd::AsRawFd::as_raw_fd(&map)))
            .map_err(failed("the kernel refuses the filter".into(), privileges))?;
        let attach = |mode| sys::attach(&program, index, mode);
        let attached = match config.mode {
            Mode::Native => attach(sys::NATIVE).map(|link| (link, true)),
            Mode::Generic => attach(sys::GENERIC).map(|link| (link, false)),
            Mode::Auto => {
                attach(sys::NATIVE).map(|link| (link, true)).or_else(|_| attach(sys::GENERIC).map(|link| (link, false)))
            }
        };
        let (attachment, native) = attached.map_err(failed(
            format!("cannot attach the filter to {name}"),
            "; it may have one already (ip link shows xdp), or not this mode for its MTU",
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
            neighbours: Neighbours::new(index, config.peer),
            sealer: Sealer::new(),
            places: Places::new(config.capacity, regions),
            counted: Statistics::default(),
            config,
        })
    }

    /// The local address, with the port that the kernel chose if none was given.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Whether the program runs in the driver.
    pub fn is_native(&self) -> bool {
        self.native
    }

    /// Whether frames come into our chunks without a copy, in every queue.
    pub fn is_zero_copy(&self) -> bool {
        self.queues.iter().all(Queue::is_zero_copy)
    }

    /// Bytes of chunks for frames to come, of all queues.
    pub fn receive_buffer(&self) -> usize {
        self.queues.len() * self.config.chunks as usize * queue::CHUNK as usize
    }

    /// What was counted here and by the kernel.
    pub fn statistics(&self) -> Statistics {
        let mut all = self.counted;
        for queue in &self.queues {
            let Ok(counted) = queue.statistics() else { continue };
            // Where the kernel copies, it counts a frame without a chunk as dropped, too. Where the device receives, it
            // counts how often it found no chunk, which is no number of frames.
            let empty = counted.rx_fill_ring_empty_descs.min(counted.rx_dropped);
            let empty = if queue.is_zero_copy() { 0 } else { empty };
            all.no_chunk += counted.rx_ring_full + empty;
            all.dropped += counted.rx_dropped - empty;
        }
        all
    }

    /// Takes the frames that one queue has, up to so many. Returns how many there were, and how many packets landed.
    fn take<S: Steer>(&mut self, queue: usize, steer: &mut S, max: usize) -> [usize; 2] {
        let queue = &mut self.queues[queue];
        let filled = queue.filled().min(BURST);
        let (mut used, mut frames, mut packets) = (0, 0, 0);
        while used < filled && frames < max {
            let Some(came) = queue.frame(used, filled) else { break };
            frames += 1;
            let (frame, chunks) = match came {
                Came::Frame(frame, chunks) => (frame, chunks),
                Came::TooLong(chunks) => (&[][..], chunks),
            };
            used += chunks;
            if frame.get(..6).is_some_and(|to| to != self.mac) {
                self.counted.not_ours += 1;
                continue;
            }
            if frame.len() > self.mtu + ethernet::Header::LEN {
                self.counted.joined += 1;
                continue;
            }
            let mut landing = Landing {
                places: &mut self.places,
                sealer: &mut self.sealer,
                scratch: self.config.scratch,
                sealed: self.config.sealed,
                remainders: self.config.remainders,
            };
            match landing.land_frame(frame, None, self.local, &mut self.neighbours, steer) {
                Ok(0) => self.counted.not_ours += 1,
                Ok(landed) => packets += landed,
                Err(ParseError::Checksum { .. }) => self.counted.checksum += 1,
                Err(ParseError::Fragment { .. }) => self.counted.fragments += 1,
                Err(_) => self.counted.malformed += 1,
            }
        }
        if used > 0 {
            queue.give_back(used);
        }
        self.counted.received += frames as u64;
        self.counted.landed += packets as u64;
        [frames, packets]
    }

    fn flush(&mut self) -> Result<(), IoError> {
        let flushed = self.queues.first_mut().map_or(Ok(()), Queue::flush);
        flushed.map_err(|source| IoError::System {
            what: format!("sending frames by {}", self.config.interface),
            source,
            hint: "; the interface may be down: ip link set dev ... up",
        })
    }
}

/// The kernel lets go of a queue a while after its socket was closed.
fn patiently<T>(open: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

/// What is readable when any of the queues is.
fn watch(queues: &[Queue]) -> std::io::Result<OwnedFd> {
    let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for queue in queues {
        epoll::add(&fd, queue, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(fd)
}

impl PacketIo for XdpIo {
    fn device(&self) -> DeviceCounts {
        let Statistics { no_chunk: missed, dropped, joined, unknown_host: unsent, .. } = self.statistics();
        DeviceCounts { missed, receive_errors: dropped + joined, unsent, ..DeviceCounts::default() }
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
        let (mut taken, mut packets, mut idle) = (0, 0, 0);
        while taken < max && idle < self.queues.len() {
            // In turn, so that a busy queue keeps no other from being emptied.
            let [frames, landed] = self.take(self.next, steer, max - taken);
            self.next = (self.next + 1) % self.queues.len();
            (taken, packets) = (taken + frames, packets + landed);
            idle = if frames > 0 { 0 } else { idle + 1 };
        }
        Ok(packets)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        self.flush()?;
        crate::sys::wait(&self.epoll, timeout).map_err(|source| IoError::System {
            what: format!("waiting for frames of {}", self.config.interface),
            source,
            hint: "",
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    /// Packets to a host whose Ethernet address nobody knows yet are lost, while the kernel asks for it.
    fn send(&mut self, to: SocketAddr, packets: &[Send<'_>]) -> Result<usize, IoError> {
        let Some(mac) = self.neighbours.find(to.ip()) else {
            self.counted.unknown_host += packets.len() as u64;
            return Ok(packets.len());
        };
        let Some(queue) = self.queues.first_mut() else { return Ok(0) };
        let mut sent = 0;
        let mut head = [0; HEAD];
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
                        "no packet from {from} to {to} carries {len} bytes after UDP at an MTU of {mtu}"
                    ))
                })?;
            let end = headers.len() + packet.header.len();
            head[..headers.len()].copy_from_slice(&headers);
            head[headers.len()..end].copy_from_slice(packet.header);
            let icrc = if self.config.sealed {
                self.sealer.seal_send(&self.places.regions, [self.local, to], packet, payload_len).to_le_bytes()
            } else {
                [0; ICRC_BYTES]
            };
            let frame = Outgoing {
                front: &head[..end],
                gather: packet.gather,
                regions: &self.places.regions,
                back: &icrc[..trailer],
            };
            if !queue.send(&frame) {
                break;
            }
            sent += 1;
        }
        self.counted.sent += sent as u64;
        self.flush()?;
        Ok(sent)
    }
}
