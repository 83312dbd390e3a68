//! DPDK ports: NICs without the kernel, and shared memory between processes (memif), without system calls.
//!
//! A burst of frames is received into the driver's buffers, each frame is validated as a kernel would, and its payload
//! copied once to the steer's destination. Frames are sent with headers built here; a driver that copies anyway reads
//! payloads in place. Receiving is by polling: [`PacketIo::wait`] polls and then sleeps between polls, so there is no
//! descriptor to wait on.
//!
//! With header split (`split`) the device itself writes payloads to posted receives.
//!
//! Every input of the ICRC is known. Dropped and refused frames are counted by cause: [`DpdkCounters`].
//!
//! The two sides of a memif share memory and trust each other's rings, so both processes must belong to one user.

mod eal;
mod hosts;
mod port;
mod predicted;
mod receive;
mod send;
mod split;
mod state;
mod sys;

use crate::frame::Mac;
use crate::payload::PostedReceives;
use crate::seal::Sealer;
use crate::{Capabilities, DeviceCounters, IoError, PacketIo, Recv, SCRATCH_BYTES, Steer, TxPacket};
pub use eal::{EalConfig, Pages};
use hosts::HostCache;
use port::Device;
pub use port::writes_receives;
use shotline_memory::{Regions, Sge};
use split::state::Split;
pub use split::state::SplitShape;
use state::{Burst, PredictedState, TxBatch};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Time for which [`PacketIo::wait`] polls without sleeping.
const SPIN_TIME: Duration = Duration::from_micros(8);
/// Sleep between polls after that; a ring holds the frames of several milliseconds.
const SLEEP_TIME: Duration = Duration::from_micros(50);

/// Maximum time that closing a memif waits for the peer to read sent frames: those still in the ring are lost when it
/// is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Bytes of an Ethernet header with a VLAN tag.
const LINK_HEADER_BYTES: u16 = 18;

/// Configuration of a [`DpdkIo`].
#[derive(Clone, Debug)]
pub struct DpdkConfig {
    /// Configuration of EAL, which is initialised once per process.
    pub eal: EalConfig,
    /// The device in DPDK's syntax: `net_memif0,role=client,id=0,socket=/run/shotline.sock,socket-abstract=no`,
    /// `net_af_xdp0,iface=eth1`, or a PCI address such as `0000:03:00.0`.
    pub device: String,
    /// Zero-copy sending for a memif client, unless the device's arguments say `zero-copy=no`: the peer reads prebuilt
    /// frames ([`crate::prebuilt`]) in place. It can then access all of DPDK's memory.
    pub zero_copy: bool,
    /// The local address. DPDK has no addresses: this backend answers ARP and ND for it, and the kernel does not use
    /// it.
    pub bind: SocketAddr,
    /// Destination Ethernet address of all packets: that of the only peer or of a router. Without it the addresses of
    /// hosts are learned from their packets, and packets to unknown hosts are broadcast.
    pub peer: Option<[u8; 6]>,
    /// Maximum IP packet, in bytes. Both sides of a memif must use the same, or frames arrive in several buffers.
    pub mtu: u16,
    /// Number of receive queues, between which a device distributes flows (RSS). All are polled round-robin.
    pub queues: u16,
    /// Descriptors per queue; the driver rounds the number.
    pub descriptors: u16,
    /// `true` if packets end in an ICRC (RoCEv2), `false` for plain UDP.
    pub sealed: bool,
    /// Compute payload CRC remainders ([`crate::RxPacket::payload_crc`]) also for packets without an ICRC.
    pub remainders: bool,
    /// Maximum number of posted receives; 0 for a port that only sends.
    pub capacity: usize,
    /// At least [`SCRATCH_BYTES`] of registered memory for payloads without a destination; not needed if the capacity
    /// is 0.
    pub scratch: Sge,
    /// Shape of packets whose payloads the device may write to the posted receives itself, in the order of posting:
    /// [`Capabilities::steers`] is then `false`. `None` for a caller that chooses the receive of each packet. It has an
    /// effect with one queue of a device that [`writes_receives`], whose driver supports header split, and with receives
    /// in memory that the device can access. The first piece of a receive is as long as the packet that is expected
    /// there, the second continues it up to the longest packet.
    pub split: Option<SplitShape>,
    /// Send packets as ECN-capable ([`crate::udp::UdpConfig::ecn`]); received marks are always reported.
    pub ecn: bool,
}

impl DpdkConfig {
    /// Returns a configuration for a device and an address, with one queue and packets of up to 9000 bytes.
    pub fn new(device: impl Into<String>, bind: SocketAddr, scratch: Sge) -> Self {
        Self {
            eal: EalConfig::default(),
            device: device.into(),
            zero_copy: false,
            bind,
            peer: None,
            mtu: 9000,
            queues: 1,
            descriptors: 1024,
            sealed: true,
            remainders: true,
            capacity: 4096,
            scratch,
            split: None,
            ecn: false,
        }
    }

    /// Checks what does not depend on the device. Panics if the scratch memory is in none of the regions.
    fn check(&self, regions: &Regions) -> Result<(), IoError> {
        let refused = |what| Err(IoError::Config(what));
        if self.bind.ip().is_unspecified() || self.bind.port() == 0 {
            return refused(format!(
                "cannot receive on {}: DPDK has no addresses of its own, so specify an address and a port",
                self.bind
            ));
        }
        if self.capacity > 0 && self.scratch.len < SCRATCH_BYTES {
            return refused(format!(
                "scratch memory of {} bytes cannot hold a packet: provide {SCRATCH_BYTES}",
                self.scratch.len
            ));
        }
        if self.queues == 0 || self.mtu < 576 || self.mtu > 63_000 {
            return refused(format!(
                "expected at least one queue and an MTU of 576 to 63000, found {} and {}",
                self.queues, self.mtu
            ));
        }
        if self.capacity > 0 {
            regions.address(self.scratch); // panics now rather than at the first packet
        }
        Ok(())
    }

    /// Checks that the device has as many queues.
    fn check_queues(&self, info: &sys::Info) -> Result<(), IoError> {
        if self.queues > info.max_queues {
            let (device, max) = (&self.device, info.max_queues);
            let what = format!("expected at most {max} queues of {device}, found {}", self.queues);
            return Err(IoError::Config(what));
        }
        Ok(())
    }

    /// Returns the state of header split; `None` if the device is not to write payloads to posted receives, or cannot.
    ///
    /// # Errors
    /// If the user asks for it where it is not possible.
    fn split(&self, device: &Device, info: &sys::Info) -> Result<Option<Split>, IoError> {
        if !device.splits() || self.capacity == 0 {
            return Ok(None);
        }
        let needs = [
            (info.split, "a driver with buffer split over two pools"),
            (self.queues == 1, "one receive queue"),
            (self.bind.is_ipv4(), "IPv4"),
            (self.sealed, "packets with an ICRC"),
            (self.split.is_some(), "one link of a sender that is known before the run, with packets of one length"),
            (self.split.is_some_and(SplitShape::is_possible), "frames with 8n or 8n + 6 bytes before the payload"),
        ];
        match needs.iter().find(|(is_met, _)| !is_met) {
            Some((_, need)) if device.split == Some(true) => {
                let name = &device.name;
                Err(IoError::Config(format!("header split of {name} needs {need}: omit split=on to copy payloads")))
            }
            Some(_) => Ok(None),
            None => Ok(self.split.map(|shape| Split::new(shape, self.descriptors))),
        }
    }
}

/// Counters of a port. Received frames are the sum of `landed` and the [`Self::causes`] of this layer; frames dropped
/// by the device are not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DpdkCounters {
    /// Frames received from the driver.
    pub received: u64,
    /// Packets delivered to a steer.
    pub landed: u64,
    /// Frames that the driver accepted for sending.
    pub sent: u64,
    /// Dropped by the device because its receive queue was full (`imissed`).
    pub missed: u64,
    /// Dropped by the device as corrupt (`ierrors`).
    pub receive_errors: u64,
    /// Dropped by the driver because no buffer was free (`rx_nombuf`).
    pub no_buffers: u64,
    /// Dropped with header split because no receive was posted.
    pub no_receive: u64,
    /// Payload bytes that the device wrote to their receive, with header split.
    pub placed_bytes: u64,
    /// Bytes copied because a payload landed elsewhere, with header split.
    pub moved_bytes: u64,
    /// Not sent by the device (`oerrors`).
    pub send_errors: u64,
    /// Frames with a wrong checksum.
    pub checksum: u64,
    /// Fragments: RoCE packets are never fragmented.
    pub fragments: u64,
    /// Frames whose lengths or fields contradict each other.
    pub malformed: u64,
    /// Valid packets of a protocol other than UDP, including answered requests for our address.
    pub not_udp: u64,
    /// Valid datagrams to another address or port.
    pub not_ours: u64,
    /// Answered requests for our address (ARP, ND).
    pub answered: u64,
    /// Packets accepted for sending while the link was down, and lost.
    pub no_link: u64,
    /// Times that the link has come up.
    pub link_ups: u64,
    /// Times that it has gone down.
    pub link_downs: u64,
}

impl DpdkCounters {
    /// Returns the frames that arrived at this port and did not reach a steer, by cause. The first three are counted by
    /// the device and its driver; the others are part of [`Self::received`].
    pub fn causes(&self) -> [(&'static str, u64); 9] {
        [
            ("imissed", self.missed),
            ("ierrors", self.receive_errors),
            ("rx_nombuf", self.no_buffers),
            ("checksum", self.checksum),
            ("fragment", self.fragments),
            ("malformed", self.malformed),
            ("not_udp", self.not_udp),
            ("not_ours", self.not_ours),
            ("no_receive", self.no_receive),
        ]
    }

    /// Counts a frame that the driver reports as faulty.
    fn count_fault(&mut self, faults: u32) {
        *(if faults & sys::TOO_LONG != 0 { &mut self.malformed } else { &mut self.checksum }) += 1;
    }
}

/// The DPDK backend.
pub struct DpdkIo {
    config: DpdkConfig,
    device: Device,
    driver: String,
    port: sys::Port,
    mac: Mac,
    hosts: HostCache,
    sealer: Sealer,
    posted: PostedReceives,
    burst: Burst,
    predicted: PredictedState,
    /// The port has header split. Dropped after `port`, whose device writes to its memory.
    split: Option<Split>,
    tx_batch: TxBatch,
    counters: DpdkCounters,
}

impl DpdkIo {
    /// Initialises EAL if this process has not, attaches the device and starts its port. `regions` is the table that
    /// every [`Sge`] refers to.
    pub fn open(mut config: DpdkConfig, regions: &Regions) -> Result<Self, IoError> {
        config.check(regions)?;
        let _one_at_a_time = eal::lock();
        let mut device = Device::parse(&config.device).map_err(IoError::Config)?;
        if config.zero_copy {
            device.enable_zero_copy();
        }
        if device.kind == port::Kind::Shotline {
            config.eal = config.eal.with_card_driver();
        }
        let (rx_bytes, tx_bytes) = device.set_buffer_size(config.mtu + LINK_HEADER_BYTES).map_err(IoError::Config)?;
        eal::start(&config.eal, (device.kind == port::Kind::Pci).then_some(device.name.as_str()))?;
        eal::log_suffix(); // discards older log messages, which are not about this port
        if let Some(path) = device.socket_path() {
            port::remove_stale_socket(path).map_err(IoError::Config)?;
        }
        let failed = |step: &str, code: i32, hint: String| {
            let error = std::io::Error::from_raw_os_error(code);
            // Many DPDK functions return -1 for any error and write the reason to the log.
            let why = if code == 1 { "the driver reports a failure".to_owned() } else { error.to_string() };
            IoError::System {
                what: format!("DPDK port {}: {step}", device.name),
                source: std::io::Error::new(error.kind(), format!("{why}{hint}{}", eal::log_suffix())),
                hint: "",
            }
        };
        let (name, arguments) = device.c_strings().map_err(IoError::Config)?;
        let attached = sys::Attached::new(&arguments, &name)
            .map_err(|code| failed("cannot attach its device", code, device.attach_hint()))?;
        let info = attached.info().map_err(|code| failed("querying its capabilities", code, String::new()))?;
        config.check_queues(&info)?;
        let mut split = config.split(&device, &info)?;
        let mut port_config = sys::Config {
            port: attached.id(),
            queues: config.queues,
            mtu: if matches!(device.kind, port::Kind::Pci | port::Kind::Shotline) { config.mtu } else { 0 },
            rx_buffer_bytes: rx_bytes,
            tx_buffer_bytes: tx_bytes,
            descriptors: config.descriptors,
            // Buffers in the queues, those being read, and those in the threads' mempool caches.
            buffers: device.queue_buffers(config.descriptors) * u32::from(config.queues) + 512,
            split_buffers: 0,
            split_header: 0,
            split_payload: 0,
            is_pci: device.kind == port::Kind::Pci,
            checksums: info.checksums,
            rss: info.rss,
            gated: device.kind == port::Kind::Memif,
            reconnects: device.is_memif_client(),
            gathers: device.gathers(),
            direct: device.receives_direct() && config.queues == 1 && config.capacity > 0,
            zero_copy: device.is_zero_copy(),
        };
        if let Some(split) = &split {
            split.configure(&mut port_config);
        }
        let mut port =
            attached.open(&port_config).map_err(|(step, code)| failed(&step, code, memory_hint(code, &config)))?;
        if let Some(split) = &mut split {
            split.map(&mut port, port_config.is_pci, regions);
        }
        Ok(Self {
            split,
            mac: info.mac,
            driver: info.driver(),
            hosts: HostCache::new(config.peer),
            sealer: Sealer::new(),
            posted: PostedReceives::new(config.capacity, regions),
            burst: Burst::default(),
            predicted: PredictedState::new(port_config.direct),
            tx_batch: TxBatch::new(),
            counters: DpdkCounters::default(),
            device,
            port,
            config,
        })
    }

    /// Returns the local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.config.bind
    }
    /// Returns the port's own Ethernet address.
    pub fn ethernet_addr(&self) -> [u8; 6] {
        self.mac
    }
    /// Returns the driver's name, such as `net_memif`.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Returns `true` if the link is up: for a memif, if the peer is connected.
    pub fn link_is_up(&self) -> bool {
        self.port.link_is_up()
    }

    /// Waits until the link is up. Before that, sent packets are lost.
    pub fn wait_link(&mut self, timeout: Duration) -> Result<(), IoError> {
        let end = Instant::now() + timeout;
        while !self.link_is_up() {
            if Instant::now() >= end {
                let (name, hint, log) = (&self.device.name, self.device.link_hint(), eal::log_suffix());
                return Err(IoError::Config(format!("DPDK port {name} has no link after {timeout:?}{hint}{log}")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // A memif client passes its receive buffers to the server on its first receive call.
        if self.burst.is_empty() {
            self.receive_burst(1);
        }
        Ok(())
    }

    /// Returns the port's counters.
    pub fn dpdk_counters(&self) -> DpdkCounters {
        let port = self.port.counters();
        DpdkCounters {
            missed: port.missed,
            receive_errors: port.receive_errors,
            // With header split the driver counts how often the device's ring could not be filled.
            no_buffers: if self.split.is_some() { 0 } else { port.no_buffers },
            send_errors: port.send_errors,
            link_ups: port.link_ups,
            link_downs: port.link_downs,
            ..self.counters
        }
    }

    /// Returns the driver's own counters by name (DPDK's extended statistics).
    pub fn driver_counters(&self) -> Vec<(String, u64)> {
        self.port.extended()
    }
}

impl Drop for DpdkIo {
    fn drop(&mut self) {
        if self.device.kind != port::Kind::Memif || self.counters.sent == 0 {
            return;
        }
        let end = Instant::now() + CLOSE_TIMEOUT;
        // Zero-copy buffers are returned when the peer has read them, or when DPDK's interrupt thread has handled the
        // end of the link, which is a little after the link is reported down. For copied frames only the end of the
        // link is visible.
        let is_zero_copy = self.device.is_zero_copy();
        let mut is_pending = || if is_zero_copy { self.port.in_flight() > 0 } else { self.port.link_is_up() };
        while is_pending() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn memory_hint(code: i32, config: &DpdkConfig) -> String {
    if code != libc::ENOMEM {
        return String::new();
    }
    format!("; DPDK has {} MiB for all ports: use more, or fewer descriptors", config.eal.memory_mib)
}

impl PacketIo for DpdkIo {
    fn device_counters(&self) -> DeviceCounters {
        let counters = self.dpdk_counters();
        DeviceCounters {
            missed: counters.missed,
            receive_errors: counters.receive_errors,
            no_buffers: counters.no_buffers + counters.no_receive,
            unsent: counters.no_link,
            copied_bytes: self.split.is_some().then_some(counters.moved_bytes),
            // The link of a memif goes down whenever its peer ends.
            link_downs: if self.device.kind == port::Kind::Memif { 0 } else { counters.link_downs },
            ..DeviceCounters::default()
        }
    }

    fn counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    fn queue_pair(&self) -> Option<(u32, u32)> {
        None
    }

    fn capabilities(&self) -> Capabilities {
        // A full memif does not accept its sender's frames, and the sender retries.
        Capabilities { steers: self.split.is_none(), credits: self.device.kind == port::Kind::Memif }
    }

    fn register(&mut self, regions: &Regions) {
        self.posted.regions = regions.clone();
        if let Some(split) = &mut self.split {
            split.map(&mut self.port, self.device.kind == port::Kind::Pci, regions);
        }
    }

    fn post(&mut self, receives: &[Recv]) -> usize {
        let posted = self.posted.post(receives);
        self.post_split(receives);
        posted
    }

    fn withdraw(&mut self, ids: &[u32]) {
        // With header split a receive belongs to the device until a packet has landed there.
        if self.split.is_none() {
            self.posted.withdraw(ids);
        }
    }

    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
        if let Some(error) = self.split_error() {
            return Err(error);
        }
        let mut packets = 0;
        let mut taken = 0;
        while taken < max {
            if self.burst.is_empty() {
                match self.receive_predicted(steer) {
                    Some(landed) => {
                        packets += usize::from(landed);
                        taken += 1;
                        continue;
                    }
                    None if self.receive_burst(sys::BURST as u16) => {}
                    None => break,
                }
            }
            while taken < max
                && let Some(index) = self.burst.next()
            {
                packets += usize::from(self.land(index, steer));
                taken += 1;
            }
        }
        Ok(packets)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        let begin = Instant::now();
        // One frame is enough to end the wait; the others can then be received directly into their destinations.
        while self.burst.is_empty() && !self.receive_burst(1) {
            let waited = begin.elapsed();
            if waited >= timeout {
                break;
            }
            if waited > SPIN_TIME {
                std::thread::sleep(SLEEP_TIME.min(timeout - waited));
            }
        }
        Ok(())
    }

    /// Returns `None`: a polled driver has no events.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Packets that are sent while there is no link are lost, and counted.
    fn send(&mut self, to: SocketAddr, packets: &[TxPacket<'_>]) -> Result<usize, IoError> {
        if !self.link_is_up() {
            self.counters.no_link += packets.len() as u64;
            return Ok(packets.len());
        }
        let mut taken = 0;
        while taken < packets.len() {
            let batch = &packets[taken..packets.len().min(taken + sys::BURST)];
            let sent = self.send_burst(to, batch)?;
            taken += sent;
            if sent < batch.len() {
                break;
            }
        }
        Ok(taken)
    }
}
