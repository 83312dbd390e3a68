//! Ports that DPDK drives: NICs without the kernel, and shared memory between processes (memif), without system calls.
//!
//! A burst of frames is taken from a driver's buffers, each frame is read with every check that a kernel makes, and its
//! payload copied once to where the steer wants it. Frames are sent with headers made here; a driver that copies
//! anyway takes payloads from where they lie. Nobody wakes a receiver: it polls, and [`PacketIo::wait`] polls more
//! and more lazily, so there is no descriptor to wait on.
//!
//! Every input of the ICRC is known. What was dropped on the way and here has a cause: [`Statistics`].
//!
//! The two sides of a memif share memory and trust each other's rings: this is for processes of one user.

mod ahead;
mod eal;
mod neighbour;
mod port;
mod receive;
mod send;
mod state;
mod sys;

use crate::frame::Mac;
use crate::payload::Places;
use crate::seal::Sealer;
use crate::{Capabilities, DeviceCounts, IoError, PacketIo, Recv, SCRATCH_BYTES, Send, Steer};
pub use eal::{EalConfig, Pages};
use neighbour::Hosts;
use port::Device;
use shotline_memory::{Regions, Sge};
use state::{Ahead, Burst, Outgoing};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// How long [`PacketIo::wait`] polls without sleeping: others need the processor, too.
const EAGER: Duration = Duration::from_micros(8);
/// How long it sleeps then; a ring holds what comes in milliseconds.
const NAP: Duration = Duration::from_micros(50);

/// How long a memif that has sent stays at most when it is closed: what the other side has not taken from the ring goes with
/// it.
const LINGER: Duration = Duration::from_millis(500);

/// How to open a [`DpdkIo`].
#[derive(Clone, Debug)]
pub struct DpdkConfig {
    /// DPDK itself, once per process.
    pub eal: EalConfig,
    /// The device as DPDK writes it: `net_memif0,role=client,id=0,socket=/run/shotline.sock,socket-abstract=no`,
    /// `net_af_xdp0,iface=eth1`, or a PCI address such as `0000:03:00.0`.
    pub device: String,
    /// A memif client's frames are read where they lie, unless the device's words say `zero-copy=no`: for senders of
    /// prebuilt frames ([`crate::prebuilt`]). The other process sees all of DPDK's memory then.
    pub lend: bool,
    /// The local address. DPDK has none of its own: this one is answered for on the link (ARP, ND), and nothing else
    /// of this machine knows it.
    pub bind: SocketAddr,
    /// The Ethernet address of whatever is sent to: the one peer's or a router's. Without it hosts are known by what
    /// they sent, and packets to others go to every host on the link.
    pub peer: Option<[u8; 6]>,
    /// Longest IP packet, in bytes. A memif has as long a one at both sides, or frames come in parts.
    pub mtu: u16,
    /// Receive queues, between which a device spreads flows (RSS). All are polled here, in turn.
    pub queues: u16,
    /// Descriptors of each queue; the driver rounds them.
    pub descriptors: u16,
    /// Whether packets end in an ICRC (RoCEv2) or not (plain UDP).
    pub sealed: bool,
    /// Make payload CRC remainders ([`crate::Done::payload_crc`]) of packets without an ICRC, too.
    pub remainders: bool,
    /// Posted receives that it can hold.
    pub capacity: usize,
    /// At least [`SCRATCH_BYTES`] of registered memory for payloads without a place; whoever receives nothing (capacity
    /// 0) needs none.
    pub scratch: Sge,
    /// Send packets that may be marked instead of dropped ([`crate::udp::UdpConfig::ecn`]); marks are told always.
    pub ecn: bool,
}

impl DpdkConfig {
    /// A device and an address, one queue, packets of up to 9000 bytes.
    pub fn new(device: impl Into<String>, bind: SocketAddr, scratch: Sge) -> Self {
        Self {
            eal: EalConfig::default(),
            device: device.into(),
            lend: false,
            bind,
            peer: None,
            mtu: 9000,
            queues: 1,
            descriptors: 1024,
            sealed: true,
            remainders: true,
            capacity: 4096,
            scratch,
            ecn: false,
        }
    }
}

/// What a port has seen, lost and refused. Frames that came are `landed` and the [`Self::causes`] of this layer; those
/// of the device never came this far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that the driver handed over.
    pub received: u64,
    /// Packets that a steer was asked about.
    pub landed: u64,
    /// Frames that the driver took to be sent.
    pub sent: u64,
    /// Dropped by the device because nobody took frames from its queue in time (`imissed`).
    pub missed: u64,
    /// Dropped by the device as damaged (`ierrors`).
    pub receive_errors: u64,
    /// Dropped by the driver because no buffer was free (`rx_nombuf`).
    pub no_buffers: u64,
    /// Not sent by the device (`oerrors`).
    pub send_errors: u64,
    /// Frames with a wrong checksum.
    pub checksum: u64,
    /// Fragments: RoCE packets are none.
    pub fragments: u64,
    /// Frames whose lengths or fields contradict each other.
    pub malformed: u64,
    /// Whole packets of another protocol than UDP, among them questions for our address that were answered.
    pub not_udp: u64,
    /// Whole datagrams to another address or port.
    pub not_ours: u64,
    /// Questions for our address (ARP, ND) that were answered.
    pub answered: u64,
    /// Packets taken to be sent while the link was down, and lost.
    pub no_link: u64,
    /// Times that the link has come up.
    pub link_ups: u64,
    /// Times that it has gone down.
    pub link_downs: u64,
}

impl Statistics {
    /// Everything that came to this port and did not reach a steer, by cause. The first three are the device's and the
    /// driver's; the others are of [`Self::received`].
    pub fn causes(&self) -> [(&'static str, u64); 8] {
        [
            ("imissed", self.missed),
            ("ierrors", self.receive_errors),
            ("rx_nombuf", self.no_buffers),
            ("checksum", self.checksum),
            ("fragment", self.fragments),
            ("malformed", self.malformed),
            ("not_udp", self.not_udp),
            ("not_ours", self.not_ours),
        ]
    }
}

/// The backend of DPDK's ports.
pub struct DpdkIo {
    config: DpdkConfig,
    device: Device,
    driver: String,
    port: sys::Port,
    mac: Mac,
    hosts: Hosts,
    sealer: Sealer,
    places: Places,
    burst: Burst,
    ahead: Ahead,
    outgoing: Outgoing,
    counted: Statistics,
}

impl DpdkIo {
    /// Starts DPDK unless this process has, attaches the device and starts its port. `regions` is the table that every
    /// [`Sge`] refers to.
    pub fn open(config: DpdkConfig, regions: &Regions) -> Result<Self, IoError> {
        if config.bind.ip().is_unspecified() || config.bind.port() == 0 {
            let what =
                format!("cannot receive on {}: DPDK has no addresses of its own, name one and a port", config.bind);
            return Err(IoError::Config(what));
        }
        if config.capacity > 0 && config.scratch.len < SCRATCH_BYTES {
            let what = format!("scratch memory of {} bytes cannot hold a packet: {SCRATCH_BYTES}", config.scratch.len);
            return Err(IoError::Config(what));
        }
        if config.queues == 0 || config.mtu < 576 || config.mtu > 63_000 {
            let what = format!("{} queues and an MTU of {}: at least one, and 576 to 63000", config.queues, config.mtu);
            return Err(IoError::Config(what));
        }
        if config.capacity > 0 {
            regions.address(config.scratch); // panics now rather than at the first packet
        }
        let _one_at_a_time = eal::lock();
        let mut device = Device::parse(&config.device).map_err(IoError::Config)?;
        if config.lend {
            device.lend();
        }
        let (receive_room, send_room) = device.size(config.mtu + 18).map_err(IoError::Config)?; // Ethernet and a VLAN
        eal::start(&config.eal, (device.kind == port::Kind::Pci).then_some(device.name.as_str()))?;
        eal::said(); // what was said before is not about this
        if let Some(path) = device.listens_on() {
            port::clear_socket(path).map_err(IoError::Config)?;
        }
        let failed = |step: &str, code: i32, hint: String| {
            let error = std::io::Error::from_raw_os_error(code);
            // Many of DPDK's functions return -1 for whatever it was, and say it in the log.
            let why = if code == 1 { "the driver refuses".to_owned() } else { error.to_string() };
            IoError::System {
                what: format!("DPDK port {}: {step}", device.name),
                source: std::io::Error::new(error.kind(), format!("{why}{hint}{}", eal::said())),
                hint: "",
            }
        };
        let (name, arguments) = device.words().map_err(IoError::Config)?;
        let attached = sys::Attached::new(&arguments, &name)
            .map_err(|code| failed("cannot attach its device", code, device.missing_device()))?;
        let info = attached.info().map_err(|code| failed("asking what it can do", code, String::new()))?;
        if config.queues > info.max_queues {
            let what = format!("{} queues asked of {}, which has {}", config.queues, device.name, info.max_queues);
            return Err(IoError::Config(what));
        }
        let port_config = sys::Config {
            port: attached.id(),
            queues: config.queues,
            mtu: if device.kind == port::Kind::Pci { config.mtu } else { 0 },
            receive_room,
            send_room,
            descriptors: config.descriptors,
            // What the queues hold, what is being read, and what threads keep in their caches.
            buffers: device.held(config.descriptors) * u32::from(config.queues) + 512,
            checksums: info.checksums,
            spreads: info.spreads,
            guarded: device.kind == port::Kind::Memif,
            dials: device.dials(),
            gathers: device.gathers(),
            places: device.places() && config.queues == 1 && config.capacity > 0,
            lends: device.lends(),
        };
        let port =
            attached.open(&port_config).map_err(|(step, code)| failed(&step, code, memory_hint(code, &config)))?;
        Ok(Self {
            mac: info.mac,
            driver: info.driver(),
            hosts: Hosts::new(config.peer),
            sealer: Sealer::new(),
            places: Places::new(config.capacity, regions),
            burst: Burst::default(),
            ahead: Ahead::new(port_config.places),
            outgoing: Outgoing::new(),
            counted: Statistics::default(),
            device,
            port,
            config,
        })
    }

    /// The local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.config.bind
    }
    /// The port's own Ethernet address.
    pub fn ethernet_addr(&self) -> [u8; 6] {
        self.mac
    }
    /// The driver's name, such as `net_memif`.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Whether there is a link: for a memif, whether the other side is there.
    pub fn link_is_up(&self) -> bool {
        self.port.link_is_up()
    }

    /// Waits until there is a link. Before that, packets that are sent are lost.
    pub fn wait_link(&mut self, timeout: Duration) -> Result<(), IoError> {
        let end = Instant::now() + timeout;
        while !self.link_is_up() {
            if Instant::now() >= end {
                let (name, hint, said) = (&self.device.name, self.device.missing_link(), eal::said());
                return Err(IoError::Config(format!("DPDK port {name} has no link after {timeout:?}{hint}{said}")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // A memif client lends its server the buffers for what comes when it receives for the first time.
        if self.burst.is_empty() {
            self.receive_burst(1);
        }
        Ok(())
    }

    /// What the port has seen until now.
    pub fn statistics(&self) -> Statistics {
        let port = self.port.stats();
        Statistics {
            missed: port.missed,
            receive_errors: port.receive_errors,
            no_buffers: port.no_buffers,
            send_errors: port.send_errors,
            link_ups: port.link_ups,
            link_downs: port.link_downs,
            ..self.counted
        }
    }

    /// The driver's own counters, by its own names (DPDK's extended statistics).
    pub fn extended_statistics(&self) -> Vec<(String, u64)> {
        self.port.extended()
    }
}

impl Drop for DpdkIo {
    fn drop(&mut self) {
        if self.device.kind != port::Kind::Memif || self.counted.sent == 0 {
            return;
        }
        let end = Instant::now() + LINGER;
        // What was lent is back when it was taken, or when DPDK's thread has seen the link's end, which is a little later
        // than the link is said to be down. Of what was copied only the link's end tells.
        let lends = self.device.lends();
        let mut waits = || if lends { self.port.lent() > 0 } else { self.port.link_is_up() };
        while waits() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn memory_hint(code: i32, config: &DpdkConfig) -> String {
    if code != libc::ENOMEM {
        return String::new();
    }
    format!("; DPDK has {} MiB for all ports: ask for more, or for fewer descriptors", config.eal.memory_mib)
}

impl PacketIo for DpdkIo {
    fn device(&self) -> DeviceCounts {
        let Statistics { missed, receive_errors, no_buffers, no_link: unsent, .. } = self.statistics();
        DeviceCounts { missed, receive_errors, no_buffers, unsent, ..DeviceCounts::default() }
    }

    fn counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    fn queue_pair(&self) -> Option<(u32, u32)> {
        None
    }

    fn capabilities(&self) -> Capabilities {
        // A full memif keeps its sender's frames back, which tries again.
        Capabilities { steers: true, credits: self.device.kind == port::Kind::Memif }
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
        let mut packets = 0;
        let mut taken = 0;
        while taken < max {
            if self.burst.is_empty() {
                match self.receive_ahead(steer) {
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
        // One frame says that some are there; the others may go where they belong at once.
        while self.burst.is_empty() && !self.receive_burst(1) {
            let waited = begin.elapsed();
            if waited >= timeout {
                break;
            }
            if waited > EAGER {
                std::thread::sleep(NAP.min(timeout - waited));
            }
        }
        Ok(())
    }

    /// None: a driver that is polled wakes nobody.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Packets that are sent while there is no link are lost, and counted.
    fn send(&mut self, to: SocketAddr, packets: &[Send<'_>]) -> Result<usize, IoError> {
        if !self.link_is_up() {
            self.counted.no_link += packets.len() as u64;
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
