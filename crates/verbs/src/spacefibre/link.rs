//! One link to a far end, with its carrier and the packets that wait for it.

use super::counters::SpaceFibreCounters;
use super::receive::{Assemblies, PacketSink};
use super::transmit::Queues;
use crate::endpoint::Core;
use crate::engine::Nanos;
use shotline_memory::Regions;
use shotline_spacefibre::frames::{FrameLink, Output, Source};
use shotline_transport::IoError;
use shotline_transport::carrier::Carrier;
use std::net::SocketAddr;

/// Maximum number of datagrams sent before datagrams are received again.
const MAX_SENT: usize = 16;
/// Maximum number of datagrams received before what they request is sent. The far end stops when 125 data frames are not
/// acknowledged, so an ACK must not wait for many.
const MAX_RECEIVED: usize = 3;
/// Number of calls without a datagram after which this end may sleep although no completion queue is armed, as a target
/// does. Announcing a sleep costs system calls at both ends.
const POLLS_BEFORE_SLEEP: u32 = 32;
/// Data frames of a datagram. The far end processes a datagram while the next one is made, so they must not be as long as
/// what the link can have in flight.
const DATAGRAM_FRAMES: usize = 8;
/// Datagrams that are passed to the carrier at once: over UDP by one system call.
const DATAGRAMS_PER_FLUSH: usize = 2;

/// A link and its carrier.
pub(super) struct Link<C> {
    pub(super) carrier: C,
    pub(super) frames: FrameLink,
    queues: Queues,
    assemblies: Assemblies,
    pub(super) peer: SocketAddr,
    /// Maximum length of a datagram that is sent, in bytes.
    datagram_bytes: usize,
    /// Number of connected queue pairs.
    pub(super) users: usize,
    /// The carrier reports that its far end has gone. Requests end by their timeouts.
    is_disconnected: bool,
    /// Calls without a datagram since the last one.
    idle_calls: u32,
}

impl<C: Carrier> Link<C> {
    /// Creates a link whose packets are taken from the send queues from `first_queue` on, one for each of `vcs` virtual
    /// channels.
    pub(super) fn new(
        carrier: C,
        frames: FrameLink,
        peer: SocketAddr,
        (first_queue, vcs): (u32, usize),
        regions: Regions,
    ) -> Self {
        Self {
            datagram_bytes: FrameLink::datagram_bytes(frames.lanes(), DATAGRAM_FRAMES),
            carrier,
            frames,
            queues: Queues::new(first_queue, vcs, regions),
            assemblies: Assemblies::new(vcs),
            peer,
            users: 0,
            is_disconnected: false,
            idle_calls: 0,
        }
    }

    pub(super) fn register(&mut self, regions: &Regions) {
        self.queues.register(regions);
    }

    /// Sends datagrams until there is nothing to send or the carrier is full. Returns `true` if it sent any.
    pub(super) fn transmit(&mut self, core: &mut Core, counters: &mut SpaceFibreCounters) -> Result<bool, IoError> {
        let sent = self.send_datagrams(core);
        self.queues.discard_late(core.now());
        self.count(counters);
        if !self.is_disconnected {
            self.carrier.flush()?;
        }
        sent
    }

    fn count(&mut self, counters: &mut SpaceFibreCounters) {
        let (packets, discarded) = self.queues.take_counts();
        counters.packets_out += packets;
        counters.packets_discarded += discarded;
    }

    /// Ends the link: the packets that wait are discarded. Returns the carrier.
    pub(super) fn end(mut self, counters: &mut SpaceFibreCounters) -> C {
        self.count(counters);
        counters.packets_discarded += self.waiting();
        self.carrier
    }

    /// Returns the number of packets taken from the engines that the link has not accepted whole.
    pub(super) fn waiting(&self) -> u64 {
        self.queues.waiting()
    }

    fn send_datagrams(&mut self, core: &mut Core) -> Result<bool, IoError> {
        let mut any = false;
        for index in 0..MAX_SENT {
            let Self { carrier, frames, queues, .. } = self;
            queues.fill(core);
            let limit = self.datagram_bytes.min(carrier.remaining());
            if self.is_disconnected || limit == 0 {
                break;
            }
            if !frames.transmit(core.now(), queues, &mut Datagram { carrier, limit }) {
                break;
            }
            carrier.finish()?;
            any = true;
            if index % DATAGRAMS_PER_FLUSH == DATAGRAMS_PER_FLUSH - 1 {
                carrier.flush()?;
            }
        }
        Ok(any)
    }

    /// Receives datagrams and passes their packets to queue pairs. Returns `true` if there may be more to do at once.
    pub(super) fn receive(&mut self, core: &mut Core, counters: &mut SpaceFibreCounters) -> Result<bool, IoError> {
        let Self { carrier, frames, queues, assemblies, .. } = self;
        let mut sink = PacketSink::new(assemblies, core, counters, self.peer);
        let (mut received, mut failure) = (false, None);
        for _ in 0..MAX_RECEIVED {
            match carrier.receive() {
                _ if self.is_disconnected => break,
                Ok(Some(datagram)) => {
                    received = true;
                    frames.receive(datagram, queues, &mut sink);
                }
                Ok(None) => break,
                Err(IoError::Disconnected) => self.is_disconnected = true,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        // Also after an error: the packets before it are answered.
        sink.finish();
        if let Some(error) = failure {
            return Err(error);
        }
        if received {
            self.idle_calls = 0;
            return Ok(true);
        }
        self.idle_calls = self.idle_calls.saturating_add(1);
        // The next call withdraws the announcement.
        let announces = self.idle_calls >= POLLS_BEFORE_SLEEP || core.any_armed();
        Ok(announces && !self.is_disconnected && !self.carrier.prepare_sleep())
    }

    /// Announces to the carrier that this end will sleep. Returns `true` if it must not.
    pub(super) fn prepare_sleep(&mut self) -> bool {
        !self.is_disconnected && !self.carrier.prepare_sleep()
    }

    /// Returns a bit per virtual channel with packets that wait for the link.
    pub(super) fn ready(&self) -> u32 {
        self.queues.ready()
    }

    #[cfg(test)]
    pub(super) fn reset(&mut self, core: &mut Core, counters: &mut SpaceFibreCounters) {
        let Self { frames, queues, assemblies, .. } = self;
        frames.reset(queues, &mut PacketSink::new(assemblies, core, counters, self.peer));
    }

    /// Returns the time of the next call that is necessary although nothing arrives.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        let link = (!self.is_disconnected).then(|| self.frames.deadline());
        link.into_iter().chain(self.queues.deadline()).min()
    }
}

/// The datagram that a carrier is building.
struct Datagram<'a, C> {
    carrier: &'a mut C,
    /// Bytes that may still be appended.
    limit: usize,
}

impl<C: Carrier> Output for Datagram<'_, C> {
    fn remaining(&mut self) -> usize {
        self.limit
    }
    fn append(&mut self, bytes: &[u8]) {
        self.limit -= bytes.len();
        self.carrier.append(bytes);
    }
}
