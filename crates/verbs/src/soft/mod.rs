//! Queue pairs in software over any [`PacketIo`]: RoCEv2 without a network interface that supports it.
//!
//! A [`SoftEndpoint`] owns one address with port 4791, and its protection domains, memory regions, queues and queue
//! pairs. It finds the queue pair of a packet with one hash probe. The queue pair's engine chooses the payload's
//! destination before the transport copies it there, and validates the packet afterwards. An endpoint makes progress
//! only while it is called ([`Provider::progress`](crate::api::Provider::progress), `poll_cq`, `wait`): a post queues a
//! request, and the next call sends all queued requests and pending acknowledgements. While a completion queue is
//! armed, the application may be asleep until its event, so a post then sends at once.
//!
//! One call reads the clock once, sends one acknowledgement per queue pair, and makes one system call per run of
//! equally long packets to one destination. An idle queue pair costs nothing, however many there are.
//!
//! | content | module |
//! |---|---|
//! | validation of received packets | `receive` |
//! | send scheduling across queue pairs | `core` |
//! | bursts, and the backlog while the path is full | `transmit` |
//! | deadlines | `timers` |
//! | completions, events | `queues`, `wakeups` |

mod arena;
mod cm_endpoint;
mod core;
mod counters;
mod pairs;
mod provider;
mod queues;
mod receive;
#[cfg(test)]
mod tests;
mod timers;
mod transmit;
mod wakeups;
mod watch;

pub use counters::{SoftCounters, SoftDropCounters};
pub use provider::DESCRIPTION;

use self::core::Core;
use crate::api::{Qp, VerbsError};
use crate::engine::QpCounters;
use crate::slab;
use receive::EndpointSteer;
use shotline_memory::{Region, RegionId, Regions, Registrar, Sge};
use shotline_transport::af_packet::{FrameConfig, FrameIo};
use shotline_transport::inproc::{self, InprocConfig, InprocIo};
use shotline_transport::lossy::Lossy;
use shotline_transport::udp::{UdpConfig, UdpIo};
use shotline_transport::{IoError, MAX_HEADER, PacketIo, SCRATCH_BYTES};
use std::net::SocketAddr;
use transmit::{BURST_BYTES, Transmitter};
use wakeups::Wakeups;

/// Maximum number of batches received before queue pairs send again.
const MAX_RX_BATCHES: usize = 16;
/// Upper bound of the bytes in flight of all connections of an endpoint, however large the receive buffer. More than
/// the path holds only evicts cache lines: 1,000 queue pairs were slower by a tenth with 16 MiB.
const MAX_IN_FLIGHT_BYTES: usize = 4 << 20;
/// Length of the longest packet, plus the payload bytes that may have been received as its header.
const REALIGN_BYTES: u32 = SCRATCH_BYTES + MAX_HEADER as u32;

/// One address with its queue pairs, over a transport.
pub struct SoftEndpoint<P: PacketIo> {
    io: P,
    address: SocketAddr,
    core: Core,
    transmitter: Transmitter,
    counters: SoftCounters,
    /// Buffer for a packet whose header was not as long as predicted.
    realign: Sge,
    wakeups: Wakeups,
}

/// Memory of the endpoint: the first region of its table.
struct EndpointMemory {
    regions: Regions,
    /// Payloads without a destination.
    scratch: Sge,
    /// The packet whose header and payload are separated again.
    realign: Sge,
    /// Payloads that the transport has not accepted.
    backlog: Sge,
    /// Copies of outgoing payloads that the transport cannot read, or that may change during transmission.
    bounce: Sge,
}

impl EndpointMemory {
    fn new() -> Result<Self, VerbsError> {
        let mut offset = 0;
        let mut cut = |len: u32| {
            let sge = Sge { region: RegionId(0), offset, len };
            offset += u64::from(len).next_multiple_of(4096);
            sge
        };
        let [scratch, realign, backlog, bounce] =
            [SCRATCH_BYTES, REALIGN_BYTES, BURST_BYTES, BURST_BYTES].map(&mut cut);
        let mut registrar = Registrar::new();
        registrar.add(Region::host(offset as usize)?);
        Ok(Self { regions: registrar.finish(), scratch, realign, backlog, bounce })
    }
}

/// Options of an endpoint over UDP sockets.
#[derive(Clone, Copy, Debug)]
pub struct UdpOptions {
    /// Receive buffer to request from the kernel, in bytes of its accounting. Without privileges the kernel grants at
    /// most `net.core.rmem_max`.
    pub receive_buffer: usize,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self { receive_buffer: 64 << 20 }
    }
}

impl SoftEndpoint<UdpIo> {
    /// Opens an endpoint on a local address, which must be a host's unicast address. The port of RoCEv2 is
    /// [`shotline_wire::udp::ROCE_PORT`]; no privileges are needed.
    ///
    /// # Errors
    /// [`VerbsError::Io`] if the address is unspecified or the socket cannot be bound, [`VerbsError::Memory`] if the
    /// endpoint's memory cannot be allocated.
    pub fn udp(address: SocketAddr, options: UdpOptions) -> Result<Self, VerbsError> {
        Self::with_transport(address, |regions, scratch| open_udp(address, options, regions, scratch)).map(
            |mut endpoint| {
                endpoint.apply_socket(endpoint.io.local_addr(), endpoint.io.receive_buffer());
                endpoint
            },
        )
    }
}

impl SoftEndpoint<FrameIo> {
    /// Opens an endpoint over Ethernet frames of an interface (`AF_PACKET`, needs `CAP_NET_RAW`), at one of its
    /// addresses. All inputs of the ICRC are visible here, including those that a socket hides. `peer` is the Ethernet
    /// address of the destination, needed where the kernel's neighbour table has no entry for it.
    ///
    /// # Errors
    /// [`VerbsError::Io`] if the interface or its address is not usable or the privilege is missing,
    /// [`VerbsError::Memory`] if the endpoint's memory cannot be allocated.
    pub fn frames(
        interface: &str,
        address: SocketAddr,
        peer: Option<[u8; 6]>,
        options: UdpOptions,
    ) -> Result<Self, VerbsError> {
        Self::with_transport(address, |regions, scratch| {
            let config = FrameConfig {
                interface: interface.into(),
                bind: address,
                peer,
                sealed: true,
                remainders: false,
                capacity: 0,
                scratch,
                receive_buffer: options.receive_buffer,
                ring: false, // a ring would delay acknowledgements by a millisecond
                ecn: true,
            };
            FrameIo::open(config, regions)
        })
        .map(|mut endpoint| {
            endpoint.apply_socket(endpoint.io.local_addr(), options.receive_buffer);
            endpoint
        })
    }
}

impl SoftEndpoint<Lossy<UdpIo>> {
    /// Opens an endpoint like [`SoftEndpoint::udp`] that drops each packet it sends with probability `loss`, for tests.
    ///
    /// # Errors
    /// Those of [`SoftEndpoint::udp`].
    pub fn lossy_udp(address: SocketAddr, options: UdpOptions, loss: f64, seed: u64) -> Result<Self, VerbsError> {
        let open = |regions: &_, scratch| Ok(Lossy::new(open_udp(address, options, regions, scratch)?, loss, seed));
        Self::with_transport(address, open).map(|mut endpoint| {
            let io = endpoint.io.io();
            endpoint.apply_socket(io.local_addr(), io.receive_buffer());
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
        // Congestion marks are answered, so packets announce ECN support (RFC 3168).
        ecn: true,
    };
    UdpIo::open(&config, regions)
}

impl SoftEndpoint<InprocIo> {
    /// Creates two endpoints in one process, connected by queues of `credits` packets. No packet is lost between them.
    ///
    /// # Errors
    /// [`VerbsError::Memory`] if memory cannot be allocated, [`VerbsError::Io`] if file descriptors cannot be created.
    pub fn pair(credits: usize, addresses: [SocketAddr; 2]) -> Result<[Self; 2], VerbsError> {
        let memory = [EndpointMemory::new()?, EndpointMemory::new()?];
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
    /// Creates an endpoint over any transport, which `open` builds from a table of regions and scratch memory in it.
    /// The transport must check ICRCs (be "sealed"); no buffers are posted to it.
    ///
    /// # Errors
    /// [`VerbsError::Io`] with the error of `open`, or if file descriptors cannot be created; [`VerbsError::Memory`] if
    /// memory cannot be allocated.
    pub fn with_transport(
        address: SocketAddr,
        open: impl FnOnce(&Regions, Sge) -> Result<P, IoError>,
    ) -> Result<Self, VerbsError> {
        let memory = EndpointMemory::new()?;
        Self::with_memory(open(&memory.regions, memory.scratch)?, address, memory)
    }

    /// Applies what the kernel granted: the bound address with its port, and the size of the receive buffer.
    fn apply_socket(&mut self, address: SocketAddr, receive_buffer: usize) {
        self.address = address;
        // The peer's buffer is most likely as large as this one. The kernel's accounting includes per-packet overhead;
        // half is payload, and half of that stays free for bursts of other senders.
        self.core.set_peer_buffer((receive_buffer / 4).min(MAX_IN_FLIGHT_BYTES) as u32);
    }

    fn with_memory(io: P, address: SocketAddr, memory: EndpointMemory) -> Result<Self, VerbsError> {
        let wakeups = Wakeups::new(io.fd())?;
        let EndpointMemory { regions, scratch: _, realign, backlog, bounce } = memory;
        let transmitter = Transmitter::new(backlog, bounce);
        let (core, counters) = (Core::new(regions), SoftCounters::default());
        Ok(Self { io, address, core, transmitter, counters, realign, wakeups })
    }

    /// Returns the local address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// Returns the underlying transport.
    pub fn io(&self) -> &P {
        &self.io
    }
    /// Returns the counters of the endpoint.
    pub fn counters(&self) -> SoftCounters {
        let sinks = &self.core.sinks;
        SoftCounters { completions_lost: sinks.queues.lost, notices_lost: sinks.watch.lost, ..self.counters }
    }
    /// Returns the counters of a queue pair.
    pub fn qp_counters(&self, qp: Qp) -> Option<&QpCounters> {
        self.core.pairs.by_number(qp.0).map(|pair| &pair.counters)
    }
    /// Returns the last error of the transport's send ([`SoftCounters::unsendable`]).
    pub fn last_send_error(&self) -> Option<&IoError> {
        self.transmitter.last_error.as_ref()
    }

    /// Sends what is ready, receives what has arrived, and runs expired timers. Packets that result from this are sent
    /// by the next call: so an acknowledgement goes out together with the response that the caller may post next, which
    /// saves a system call and a third of a small message's latency.
    fn run_once(&mut self) -> Result<bool, VerbsError> {
        self.core.now = wakeups::now();
        self.register_regions();
        let sent = self.transmitter.run(&mut self.core, &mut self.io, &mut self.counters);
        let landed =
            self.io.poll(&mut EndpointSteer::new(&mut self.core, &mut self.counters, self.realign), MAX_RX_BATCHES)?;
        let expired = self.core.expire();
        self.core.fail_overrun_qps();
        self.wakeups.signal(self.core.sinks.queues.has_events());
        let busy = sent || landed > 0 || expired || self.core.can_send();
        if !busy {
            self.prepare_sleep();
        }
        Ok(busy)
    }

    /// Sends posted requests at once, for callers that may sleep now.
    fn doorbell(&mut self) {
        self.core.now = wakeups::now();
        self.register_regions();
        self.transmitter.run(&mut self.core, &mut self.io, &mut self.counters);
        self.core.fail_overrun_qps();
        self.wakeups.signal(self.core.sinks.queues.has_events());
        self.prepare_sleep();
    }

    /// Sets the timer for the next deadline.
    fn prepare_sleep(&mut self) {
        self.wakeups.set_timer(self.core.now, self.next_deadline());
    }

    fn next_deadline(&self) -> Option<u64> {
        /// Retry interval while the path is full, in nanoseconds.
        const RETRY_NS: u64 = 200_000;
        let retry = self.transmitter.has_backlog().then_some(self.core.now + RETRY_NS);
        [retry, self.core.timers.next()].into_iter().flatten().min()
    }

    /// Passes the changed table of regions to the transport, if memory was registered or deregistered.
    fn register_regions(&mut self) {
        if let Some(regions) = self.core.protection.take_changed() {
            self.io.register(&regions);
            self.core.has_shared_regions = regions.iter().any(|(_, region)| region.is_shared());
            self.core.regions = regions;
        }
    }
}

impl<P: PacketIo> Drop for SoftEndpoint<P> {
    /// Sends pending acknowledgements: an application that exits right after its last message must not leave the sender
    /// without a response.
    fn drop(&mut self) {
        self.register_regions();
        self.transmitter.run(&mut self.core, &mut self.io, &mut self.counters);
    }
}
