//! RoCEv2 over any [`PacketIo`]: queue pairs in software, without a network interface that supports it.
//!
//! A [`SoftEndpoint`] is an [`Endpoint`] at one address with port 4791. Its datapath finds the queue pair of a packet
//! with one hash probe. The queue pair's engine chooses the payload's destination before the transport copies it there,
//! and validates the packet afterwards. One call sends one acknowledgement per queue pair, and makes one system call per
//! run of equally long packets to one destination.
//!
//! | content | module |
//! |---|---|
//! | validation of received packets | `receive` |
//! | bursts, and the backlog while the path is full | `transmit` |
//! | queue pairs, queues, timers, the verbs | [`endpoint`](crate::endpoint) |

mod buffers;
mod cm_endpoint;
mod counters;
mod datapath;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;

pub use counters::{SoftCounters, SoftDropCounters};
pub use datapath::{DESCRIPTION, RoceDatapath};

use crate::api::{Qp, QpConfig, QpType, VerbsError};
use crate::endpoint::Endpoint;
use buffers::Buffers;
use shotline_memory::{Regions, Sge};
use shotline_transport::af_packet::{FrameConfig, FrameIo};
use shotline_transport::inproc::{self, InprocConfig, InprocIo};
use shotline_transport::lossy::Lossy;
use shotline_transport::udp::{UdpConfig, UdpIo};
use shotline_transport::{IoError, PacketIo};
use std::net::SocketAddr;

/// Upper bound of the bytes in flight of all connections of an endpoint, however large the receive buffer. More than
/// the path holds only evicts cache lines: 1,000 queue pairs were slower by a tenth with 16 MiB.
const MAX_IN_FLIGHT_BYTES: usize = 4 << 20;

/// One address with its queue pairs, over a transport.
pub type SoftEndpoint<P> = Endpoint<RoceDatapath<P>>;

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
                endpoint.apply_socket(endpoint.datapath.io.local_addr(), endpoint.datapath.io.receive_buffer());
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
            endpoint.apply_socket(endpoint.datapath.io.local_addr(), options.receive_buffer);
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
            let io = endpoint.datapath.io.io();
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
        let buffers = [Buffers::new()?, Buffers::new()?];
        let config = |end: usize| InprocConfig {
            address: addresses[end],
            sealed: true,
            capacity: 0,
            scratch: buffers[end].scratch,
        };
        let (a, b) = inproc::pair(credits, (config(0), &buffers[0].regions), (config(1), &buffers[1].regions));
        let [first, second] = buffers;
        Ok([Self::with_buffers(a, addresses[0], first)?, Self::with_buffers(b, addresses[1], second)?])
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
        let buffers = Buffers::new()?;
        Self::with_buffers(open(&buffers.regions, buffers.scratch)?, address, buffers)
    }

    /// Applies what the kernel granted: the bound address with its port, and the size of the receive buffer.
    fn apply_socket(&mut self, address: SocketAddr, receive_buffer: usize) {
        self.datapath.address = address;
        // The peer's buffer is most likely as large as this one. The kernel's accounting includes per-packet overhead;
        // half is payload, and half of that stays free for bursts of other senders.
        self.core.set_peer_buffer((receive_buffer / 4).min(MAX_IN_FLIGHT_BYTES) as u32);
    }

    fn with_buffers(io: P, address: SocketAddr, buffers: Buffers) -> Result<Self, VerbsError> {
        Self::new(RoceDatapath::new(io, address, &buffers), buffers.regions)
    }

    /// Returns the local address.
    pub fn address(&self) -> SocketAddr {
        self.datapath.address
    }
    /// Returns the underlying transport.
    pub fn io(&self) -> &P {
        &self.datapath.io
    }
    /// Returns the counters of the endpoint.
    pub fn counters(&self) -> SoftCounters {
        let [completions_lost, notices_lost] = [self.core.completions_lost(), self.core.notices_lost()];
        SoftCounters { completions_lost, notices_lost, ..self.datapath.counters }
    }
    /// Returns the last error of the transport's send ([`SoftCounters::unsendable`]).
    pub fn last_send_error(&self) -> Option<&IoError> {
        self.datapath.transmitter.last_error.as_ref()
    }

    /// Creates queue pair 1, the general services interface of connection managers (IBTA volume 1, clause 13.5.1.1).
    /// `config` must be UD; its Q_Key must be [`crate::rdma_cm::Q_KEY`].
    ///
    /// # Errors
    /// [`VerbsError::InUse`] if the endpoint has such a queue pair, [`VerbsError::Invalid`] if `config` is not UD, and
    /// those of [`Provider::create_qp`](crate::api::Provider::create_qp).
    pub fn create_general_services_qp(&mut self, config: &QpConfig) -> Result<Qp, VerbsError> {
        if config.kind != QpType::Ud {
            return Err(VerbsError::Invalid("queue pair 1 must be of type UD".into()));
        }
        self.create_numbered(config, Some(1))
    }
}
