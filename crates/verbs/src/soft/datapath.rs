//! [`Datapath`] of RoCEv2 over a [`PacketIo`].

use super::buffers::Buffers;
use super::counters::SoftCounters;
use super::receive::EndpointSteer;
use super::transmit::Transmitter;
use crate::api::{Capabilities, ControlSocket, Description, Flag, Mtu, Reach, VerbsError};
use crate::endpoint::{CAPABILITIES, Core, Datapath};
use crate::engine::Nanos;
use rustix::fd::BorrowedFd;
use shotline_memory::{Regions, Sge};
use shotline_transport::{IoError, PacketIo};
use std::net::SocketAddr;
use std::time::Duration;

/// The provider's entry in the registry.
pub const DESCRIPTION: Description = Description {
    capabilities: Capabilities { name: "soft", ud: true, uc: true, ..CAPABILITIES },
    form: "soft",
    summary: "RoCEv2 over UDP sockets",
    reach: Reach::Network,
    needs_device: false,
    flags: &Flag::ALL,
    mtu: Some(Mtu::B4096),
    control: ControlSocket::Tcp,
};

/// Maximum number of batches received before queue pairs send again.
const MAX_RX_BATCHES: usize = 16;

/// One address on a transport, with the packets that wait for it.
pub struct RoceDatapath<P> {
    pub(super) io: P,
    pub(super) address: SocketAddr,
    pub(super) transmitter: Transmitter,
    pub(super) counters: SoftCounters,
    /// Buffer for a packet whose header was not as long as predicted.
    realign: Sge,
}

impl<P: PacketIo> RoceDatapath<P> {
    pub(super) fn new(io: P, address: SocketAddr, buffers: &Buffers) -> Self {
        let transmitter = Transmitter::new(buffers.backlog, buffers.bounce);
        Self { io, address, transmitter, counters: SoftCounters::default(), realign: buffers.realign }
    }
}

impl<P: PacketIo> Datapath for RoceDatapath<P> {
    const DESCRIPTION: &'static Description = &DESCRIPTION;

    fn register(&mut self, regions: &Regions) {
        self.io.register(regions);
    }

    /// Every address can be reached without preparation.
    fn connect(&mut self, _peer: SocketAddr, _service_level: u8) -> Result<u32, VerbsError> {
        Ok(0)
    }

    fn disconnect(&mut self, _queue: u32) {}

    fn transmit(&mut self, core: &mut Core) -> bool {
        self.transmitter.run(core, &mut self.io, &mut self.counters)
    }

    fn receive(&mut self, core: &mut Core) -> Result<bool, IoError> {
        let mut steer = EndpointSteer::new(core, &mut self.counters, self.realign);
        Ok(self.io.poll(&mut steer, MAX_RX_BATCHES)? > 0)
    }

    /// Returns the time of the next attempt to send while the path is full: a transport does not announce when it
    /// accepts packets again.
    fn deadline(&self, now: Nanos) -> Option<Nanos> {
        /// Retry interval while the path is full, in nanoseconds.
        const RETRY_NS: u64 = 200_000;
        self.transmitter.has_backlog().then_some(now + RETRY_NS)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.io.fd()
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        self.io.wait(timeout)
    }
}
