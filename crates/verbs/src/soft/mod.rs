//! Queue pairs in software over any [`PacketIo`]: RoCEv2 without a network interface that speaks it.
//!
//! A [`SoftEndpoint`] owns one address and its port 4791, and everything behind it: protection domains, memory, queues,
//! queue pairs. It finds the queue pair of a packet by one hash probe, lets its engine say where the payload goes
//! before the transport copies it there, and the engine judge the packet afterwards. It works only when it is called
//! ([`Provider::progress`](crate::api::Provider::progress), `poll_cq`, `wait`): a post notes a request, and the next
//! call sends it with all that were posted before, and with the acknowledgements that are owed. While a completion queue is armed, somebody may be asleep until its
//! event comes; then a post sends at once.
//!
//! One call is one look at the clock, one acknowledgement per queue pair, one system call per run of equal packets to
//! one destination. A queue pair that has nothing to do costs nothing, however many there are.
//!
//! | what | where |
//! |---|---|
//! | which packets are taken | `arrivals` |
//! | whose turn it is to send | `core` |
//! | paths that are full | `sending` |
//! | deadlines | `timers` |
//! | completions, events | `queues`, `wakeups` |

mod arena;
mod arrivals;
mod core;
mod pairs;
mod provider;
mod queues;
mod sending;
mod statistics;
mod tally;
#[cfg(test)]
mod tests;
mod timers;
mod wakeups;
mod watch;

pub use provider::DESCRIPTION;
pub use statistics::{Drops, Statistics};

use self::core::Core;
use crate::api::{Qp, VerbsError};
use crate::engine::Books;
use crate::slab;
use arrivals::Arrivals;
use sending::{BURST_BYTES, Sending};
use shotline_memory::{Region, RegionId, Regions, Registrar, Sge};
use shotline_transport::af_packet::{FrameConfig, FrameIo};
use shotline_transport::inproc::{self, InprocConfig, InprocIo};
use shotline_transport::lossy::Lossy;
use shotline_transport::udp::{UdpConfig, UdpIo};
use shotline_transport::{IoError, MAX_HEADER, PacketIo, SCRATCH_BYTES};
use std::net::SocketAddr;
use wakeups::Wakeups;

/// Batches that are received before queue pairs send again.
const BATCHES: usize = 16;
/// Bytes that all connections of an endpoint have under way, at most, however large the buffer: more than any path holds
/// only grows cold in the caches (1,000 queue pairs were slower by a tenth with 16 MiB).
const MOST_UNDER_WAY: usize = 4 << 20;
/// Longest packet, with room for what was taken for its header.
const AGAIN_BYTES: u32 = SCRATCH_BYTES + MAX_HEADER as u32;

/// One address with its queue pairs, over a transport.
pub struct SoftEndpoint<P: PacketIo> {
    io: P,
    address: SocketAddr,
    core: Core,
    sending: Sending,
    wakeups: Wakeups,
}

/// An endpoint's own memory: the first region of its table.
struct OwnMemory {
    regions: Regions,
    /// Payloads without a place.
    scratch: Sge,
    /// A packet that is laid out anew.
    again: Sge,
    /// Payloads that wait for room on the path.
    backlog: Sge,
    /// Payloads on their way out that a transport cannot reach, or that may change meanwhile.
    bounce: Sge,
}

impl OwnMemory {
    fn new() -> Result<Self, VerbsError> {
        let mut offset = 0;
        let mut cut = |len: u32| {
            let sge = Sge { region: RegionId(0), offset, len };
            offset += u64::from(len).next_multiple_of(4096);
            sge
        };
        let [scratch, again, backlog, bounce] = [SCRATCH_BYTES, AGAIN_BYTES, BURST_BYTES, BURST_BYTES].map(&mut cut);
        let mut registrar = Registrar::new();
        registrar.add(Region::host(offset as usize)?);
        Ok(Self { regions: registrar.finish(), scratch, again, backlog, bounce })
    }
}

/// How to open an endpoint over UDP sockets.
#[derive(Clone, Copy, Debug)]
pub struct UdpOptions {
    /// Receive buffer to ask the kernel for, in bytes of its accounting. Without privileges it grants
    /// `net.core.rmem_max` at most.
    pub receive_buffer: usize,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self { receive_buffer: 64 << 20 }
    }
}

impl SoftEndpoint<UdpIo> {
    /// Opens an endpoint on a local address, which must name one host. RoCEv2's port is
    /// [`shotline_wire::udp::ROCE_PORT`]; no privileges are needed.
    pub fn udp(address: SocketAddr, options: UdpOptions) -> Result<Self, VerbsError> {
        Self::over(address, |regions, scratch| open_udp(address, options, regions, scratch)).map(|mut endpoint| {
            endpoint.settle(endpoint.io.local_addr(), endpoint.io.receive_buffer());
            endpoint
        })
    }
}

impl SoftEndpoint<FrameIo> {
    /// Opens an endpoint over Ethernet frames of an interface (`AF_PACKET`; needs `CAP_NET_RAW`), at one of its addresses.
    /// Every input of an ICRC is known here, those that a socket hides included. `peer` is the Ethernet address of
    /// whatever is sent to, where the kernel's neighbour table cannot say it.
    pub fn frames(
        interface: &str,
        address: SocketAddr,
        peer: Option<[u8; 6]>,
        options: UdpOptions,
    ) -> Result<Self, VerbsError> {
        Self::over(address, |regions, scratch| {
            let config = FrameConfig {
                interface: interface.into(),
                bind: address,
                peer,
                sealed: true,
                remainders: false,
                capacity: 0,
                scratch,
                receive_buffer: options.receive_buffer,
                ring: false, // an acknowledgement that waits a millisecond is late
                ecn: true,
            };
            FrameIo::open(config, regions)
        })
        .map(|mut endpoint| {
            endpoint.settle(endpoint.io.local_addr(), options.receive_buffer);
            endpoint
        })
    }
}

impl SoftEndpoint<Lossy<UdpIo>> {
    /// As [`SoftEndpoint::udp`], and loses each packet that it sends with the probability `loss`, for trials.
    pub fn lossy_udp(address: SocketAddr, options: UdpOptions, loss: f64, seed: u64) -> Result<Self, VerbsError> {
        let open = |regions: &_, scratch| Ok(Lossy::new(open_udp(address, options, regions, scratch)?, loss, seed));
        Self::over(address, open).map(|mut endpoint| {
            let io = endpoint.io.io();
            endpoint.settle(io.local_addr(), io.receive_buffer());
            endpoint
        })
    }
}

fn open_udp(address: SocketAddr, options: UdpOptions, regions: &Regions, scratch: Sge) -> Result<UdpIo, IoError> {
    let config = UdpConfig {
        bind: address,
        sealed: true,
        capacity: 0,
        scratch,
        receive_buffer: options.receive_buffer,
        remainders: false,
        stamps: false,
        // A mark of congestion is answered, so packets say that they may be marked (RFC 3168).
        ecn: true,
    };
    UdpIo::open(&config, regions)
}

impl SoftEndpoint<InprocIo> {
    /// Two endpoints of one process, connected by queues of `credits` packets. Nothing is lost between them.
    pub fn pair(credits: usize, addresses: [SocketAddr; 2]) -> Result<[Self; 2], VerbsError> {
        let memory = [OwnMemory::new()?, OwnMemory::new()?];
        let config = |end: usize| InprocConfig {
            address: addresses[end],
            sealed: true,
            capacity: 0,
            scratch: memory[end].scratch,
        };
        let (a, b) = inproc::pair(credits, (config(0), &memory[0].regions), (config(1), &memory[1].regions));
        let [first, second] = memory;
        Ok([Self::with_memory(a, addresses[0], first)?, Self::with_memory(b, addresses[1], second)?])
    }
}

impl<P: PacketIo> SoftEndpoint<P> {
    /// An endpoint over any transport, which `open` makes with a table of regions and scratch memory in it. It must
    /// check ICRCs (be "sealed"); nothing is posted to it.
    pub fn over(
        address: SocketAddr,
        open: impl FnOnce(&Regions, Sge) -> Result<P, IoError>,
    ) -> Result<Self, VerbsError> {
        let memory = OwnMemory::new()?;
        Self::with_memory(open(&memory.regions, memory.scratch)?, address, memory)
    }

    /// Takes over what the kernel granted: the address with its port, and the receive buffer.
    fn settle(&mut self, address: SocketAddr, receive_buffer: usize) {
        self.address = address;
        // The peer's buffer is most likely as large as this one. Its accounting counts a packet's bookkeeping, too;
        // half is payload, and half of that stays free for bursts of others.
        self.core.set_buffer((receive_buffer / 4).min(MOST_UNDER_WAY) as u32);
    }

    fn with_memory(io: P, address: SocketAddr, memory: OwnMemory) -> Result<Self, VerbsError> {
        let wakeups = Wakeups::new(io.fd())?;
        let core = Core::new(memory.regions, memory.again);
        Ok(Self { io, address, core, sending: Sending::new(memory.backlog, memory.bounce), wakeups })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// The transport below.
    pub fn io(&self) -> &P {
        &self.io
    }
    /// Its counters.
    pub fn statistics(&self) -> Statistics {
        let sinks = &self.core.sinks;
        Statistics { completions_lost: sinks.queues.lost, notices_lost: sinks.watch.lost, ..self.core.statistics }
    }
    /// A queue pair's counters.
    pub fn books(&self, qp: Qp) -> Option<&Books> {
        self.core.pairs.numbered(qp.0).map(|pair| &pair.books)
    }
    /// Why the transport refused packets last ([`Statistics::unsendable`]).
    pub fn last_send_error(&self) -> Option<&IoError> {
        self.sending.failure.as_ref()
    }

    /// Sends what is ready, receives what is there, does what is due. What follows from that is sent by the next call: so
    /// an acknowledgement goes out together with the answer that the caller may be about to post, which is worth a
    /// system call and a third of a small message's way.
    fn turn(&mut self) -> Result<bool, VerbsError> {
        self.core.now = wakeups::now();
        self.hand_over_regions();
        let sent = self.sending.run(&mut self.core, &mut self.io);
        let landed = self.io.poll(&mut Arrivals::new(&mut self.core), BATCHES)?;
        let expired = self.core.expire();
        self.core.settle();
        self.wakeups.ring(self.core.sinks.queues.has_events());
        let busy = sent || landed > 0 || expired || self.core.wants_to_send();
        if !busy {
            self.prepare_sleep();
        }
        Ok(busy)
    }

    /// Sends what was posted, for callers who may sleep now.
    fn doorbell(&mut self) {
        self.core.now = wakeups::now();
        self.hand_over_regions();
        self.sending.run(&mut self.core, &mut self.io);
        self.core.settle();
        self.wakeups.ring(self.core.sinks.queues.has_events());
        self.prepare_sleep();
    }

    /// Sets the timer for the next deadline.
    fn prepare_sleep(&mut self) {
        self.wakeups.set_timer(self.core.now, self.next_deadline());
    }

    fn next_deadline(&self) -> Option<u64> {
        /// How soon a full path is tried again.
        const AGAIN_NS: u64 = 200_000;
        let retry = self.sending.waits().then_some(self.core.now + AGAIN_NS);
        [retry, self.core.timers.next()].into_iter().flatten().min()
    }

    /// Tells the transport of memory that came or went.
    fn hand_over_regions(&mut self) {
        if let Some(regions) = self.core.protection.changed() {
            self.io.register(&regions);
            self.core.foreign = regions.iter().any(|(_, region)| region.is_shared());
            self.core.regions = regions;
        }
    }
}

impl<P: PacketIo> Drop for SoftEndpoint<P> {
    /// Sends what is owed: whoever leaves with the last message in hand must not leave its sender without an answer.
    fn drop(&mut self) {
        self.hand_over_regions();
        self.sending.run(&mut self.core, &mut self.io);
    }
}
