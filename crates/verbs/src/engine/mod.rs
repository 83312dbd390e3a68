//! UD, UC and RC over RoCEv2 as state machines without I/O.
//!
//! An [`Engine`] has no sockets, no clock and no payload. Its inputs are the time as [`Nanos`], packets as parsed
//! headers with the location of their payload, and memory as [`Protection`]. Its outputs are headers with gather lists;
//! the transport reads the payload and computes the ICRC. The same engine therefore runs under the simulator
//! ([`crate::sim`]), under a fuzzer and over a socket.
//!
//! Call order:
//! 1. [`Engine::post_send`] queues a request.
//! 2. [`Engine::transmit`] fills a [`Burst`]; call it until it adds nothing.
//! 3. For each received batch, [`Engine::pick`] before the bytes are copied, then [`Engine::receive`] for each packet.
//! 4. [`Engine::expire`] at [`Engine::deadline`].
//!
//! After each of 1, 3 and 4, call [`Engine::transmit`] and read the deadline again. The time must not decrease from
//! call to call of one engine.
//!
//! Requirements on an endpoint:
//! - It provides [`Engine::buffer_bytes`] bytes of registered, zeroed memory for the lifetime of the engine: padding and
//!   inline data are gathered from it.
//! - It sends or discards a whole burst before it calls the engine again. UD and UC requests complete in the call of
//!   [`Engine::transmit`] after the one that emitted their last packet, and their memory may be reused from then on.
//!   ([`Engine::has_packets_to_send`] is `true` while a request is pending this way.)
//! - It passes only packets with a valid ICRC, and the right receive queue: the queue pair's own, or its shared one.

mod burst;
mod common;
pub mod congestion;
mod context;
mod counters;
mod flow;
mod gather;
mod inbound;
pub mod rc;
mod receives;
mod refusal;
mod segment;
mod sends;
#[cfg(test)]
mod tests;
pub mod uc;
pub mod ud;

pub use burst::{Burst, OutgoingPacket, Part};
pub use context::{BatchHead, Completions, Context, IncomingPacket, Nanos};
pub use counters::{NakCounters, QpCounters, QpDropCounters};
pub use gather::Payload;
pub use receives::{RecvQueue, Slot};

use crate::api::{Modify, PostError, QpConfig, QpState, QpType, RecvWr, SendWr, VerbsError};
use shotline_memory::{Protection, Sge};
use shotline_transport::Pick;
use std::net::SocketAddr;

/// Protocol state machine of one queue pair.
// The state of UD and UC is small; RC is boxed so that the enum stays small.
#[derive(Debug)]
pub enum Engine {
    /// Unreliable datagrams.
    Ud(ud::Ud),
    /// An unreliable connection.
    Uc(uc::Uc),
    /// A reliable connection.
    Rc(Box<rc::Rc>),
}

macro_rules! each {
    ($engine:expr, $inner:ident => $what:expr) => {
        match $engine {
            Engine::Ud($inner) => $what,
            Engine::Uc($inner) => $what,
            Engine::Rc($inner) => $what,
        }
    };
}

impl Engine {
    /// Returns the number of bytes of registered, zeroed memory that an engine with this configuration needs.
    pub fn buffer_bytes(config: &QpConfig) -> u32 {
        sends::SendQueue::buffer_bytes(config)
    }

    /// Creates a queue pair in state [`QpState::Reset`]. `buffer` is zeroed memory of [`Self::buffer_bytes`] bytes in a
    /// region of the endpoint's [`Protection`]; nothing else may write to it.
    pub fn new(number: u32, config: &QpConfig, buffer: Sge) -> Self {
        match config.kind {
            QpType::Ud => Self::Ud(ud::Ud::new(number, config, buffer)),
            QpType::Uc => Self::Uc(uc::Uc::new(number, config, buffer)),
            QpType::Rc => Self::Rc(Box::new(rc::Rc::new(number, config, buffer))),
        }
    }
    /// Returns the 24-bit queue pair number.
    pub fn number(&self) -> u32 {
        each!(self, inner => inner.common.number)
    }
    /// Returns the queue pair state.
    pub fn state(&self) -> QpState {
        each!(self, inner => inner.common.state)
    }
    /// Returns the configuration.
    pub fn config(&self) -> &QpConfig {
        each!(self, inner => &inner.common.config)
    }
    /// Returns the peer's address and queue pair number (RC, UC), from [`QpState::ReadyToReceive`] on.
    pub fn peer(&self) -> Option<(SocketAddr, u32)> {
        each!(self, inner => inner.common.peer)
    }
    /// Returns `true` if a packet from this address may come from the peer (UD: always).
    pub fn is_from_peer(&self, source: SocketAddr) -> bool {
        each!(self, inner => inner.common.is_from_peer(source))
    }
    /// Changes the state. [`Modify::Error`] completes all requests as flushed, [`Modify::Reset`] discards them.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if the present state does not allow the transition, or a connection has no peer address.
    pub fn modify(&mut self, ctx: &mut Context<'_>, change: &Modify) -> Result<(), VerbsError> {
        each!(self, inner => inner.modify(ctx, change))
    }
    /// Sets the maximum number of bytes that a reliable connection has in flight, requests and READ responses
    /// together; an endpoint sets the capacity of its peer's socket buffer. The default is 512 KiB; the number of
    /// packets is at most 1024 in any case, and lower after losses. Call it only while no request is posted.
    pub fn limit_window(&mut self, bytes: u32) {
        if let Self::Rc(rc) = self {
            rc.set_window(bytes);
        }
    }
    /// Returns the number of packets in flight, READ responses to this requester included (RC; 0 for others). An
    /// endpoint with many queue pairs limits their sum.
    pub fn in_flight(&self) -> u32 {
        match self {
            Self::Rc(rc) => rc.in_flight(),
            Self::Ud(_) | Self::Uc(_) => 0,
        }
    }
    /// Returns `true` if a response, acknowledgement or CNP is pending, which must be sent without delay (RC; `false`
    /// for others).
    pub fn has_response_pending(&self, now: Nanos) -> bool {
        match self {
            Self::Rc(rc) => rc.has_response_pending(now),
            Self::Ud(_) | Self::Uc(_) => false,
        }
    }
    /// Queues a send work request: checks state, capacity, lengths and local keys, and pins its memory until it
    /// completes.
    ///
    /// # Errors
    /// The check that failed; the request is not queued.
    pub fn post_send(&mut self, ctx: &mut Context<'_>, wr: &SendWr<'_>) -> Result<(), PostError> {
        each!(self, inner => inner.post_send(ctx, wr))
    }
    /// Posts a receive to the queue pair's own queue; in state [`QpState::Error`] it is flushed immediately.
    ///
    /// # Errors
    /// [`PostError::State`] in state [`QpState::Reset`], [`PostError::NoQueue`] if the queue pair has a shared queue,
    /// and those of [`RecvQueue::post`].
    pub fn post_recv(&mut self, ctx: &mut Context<'_>, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let common = each!(self, inner => &inner.common);
        match common.state {
            QpState::Reset => Err(PostError::State(QpState::Reset)),
            _ if common.config.srq.is_some() => Err(PostError::NoQueue),
            state => {
                ctx.receives.post(ctx.protection, wr)?;
                if state == QpState::Error {
                    common.flush_receives(ctx);
                }
                Ok(())
            }
        }
    }
    /// Chooses destinations for the payloads of a batch (`picks` has one entry per packet, all unset) before any of it
    /// is verified: only memory that the next expected packets are written to.
    pub fn pick(&self, protection: &Protection, receives: &RecvQueue, head: &BatchHead<'_>, picks: &mut [Pick]) {
        each!(self, inner => inner.pick(protection, receives, head, picks));
    }
    /// Processes a received packet.
    pub fn receive(&mut self, ctx: &mut Context<'_>, packet: &IncomingPacket<'_>) {
        ctx.counters.packets_in += 1;
        each!(self, inner => inner.receive(ctx, packet));
    }
    /// Rejects a request of which only the PSN is valid, if it is the next expected one (RC): it is answered as an invalid
    /// request on a strict queue pair. The caller has dropped and counted the packet.
    pub fn reject(&mut self, ctx: &mut Context<'_>, psn: u32, source: SocketAddr) {
        if let Self::Rc(rc) = self {
            rc.reject(ctx, psn, source);
        }
    }
    /// Adds pending packets to the burst, at most `max` of them.
    pub fn transmit(&mut self, ctx: &mut Context<'_>, burst: &mut Burst, max: usize) {
        let before = (burst.packets.len(), burst.gather.len());
        each!(self, inner => inner.transmit(ctx, burst, max));
        ctx.counters.packets_out += (burst.packets.len() - before.0) as u64;
        ctx.counters.bytes_out += burst.gather[before.1..].iter().map(|sge| u64::from(sge.len)).sum::<u64>();
    }
    /// Returns `true` if [`Self::transmit`] has something to do now.
    pub fn has_packets_to_send(&self, now: Nanos) -> bool {
        each!(self, inner => inner.has_packets_to_send(now))
    }
    /// Returns the next time at which [`Self::expire`] must be called, or [`Self::transmit`] because a pacing or RNR
    /// delay ends.
    pub fn deadline(&self) -> Option<Nanos> {
        each!(self, inner => inner.deadline())
    }
    /// Handles expired timers: retransmits unacknowledged requests, or fails the connection when the retries are used
    /// up.
    pub fn expire(&mut self, ctx: &mut Context<'_>) {
        each!(self, inner => inner.expire(ctx));
    }
}
