//! The protocols, without I/O: UD, UC and RC over RoCEv2 as state machines.
//!
//! An [`Engine`] has no sockets, no clock and no payload. Time comes in as [`Nanos`], packets as parsed headers with
//! the place where their payload landed, memory as [`Protection`]. What goes out is a header and a gather list; the
//! transport reads the payload and seals it. So an engine runs under the simulator ([`crate::pair`]) and under a fuzzer
//! exactly as it runs over a socket.
//!
//! Call order: [`Engine::post_send`] queues; [`Engine::transmit`] fills a [`Burst`], until it adds nothing;
//! for each batch that comes in, [`Engine::pick`] chooses places before the bytes are copied and [`Engine::receive`]
//! takes each packet afterwards; [`Engine::deadline`] says when [`Engine::expire`] is due.
//!
//! What an endpoint owes an engine:
//! - Registered, zeroed memory of [`Engine::memory`] bytes, lent for as long as the engine lives: padding and inline
//!   data are gathered from there.
//! - A burst is on its way, or given up, before the engine hears of anything else: UD and UC requests complete in the
//!   call of [`Engine::transmit`] after the one that sent their last packet, and their memory is free then.
//!   ([`Engine::wants_to_send`] is true while one waits for that.)
//! - Packets with a good ICRC only, and the right receive queue: the queue pair's own, or its shared one.

mod books;
mod burst;
mod common;
pub mod congestion;
mod context;
mod flow;
mod inbound;
mod places;
pub mod rc;
mod receives;
mod refusal;
mod segment;
mod sends;
#[cfg(test)]
mod tests;
pub mod uc;
pub mod ud;

pub use books::{Books, Naks, Refusals};
pub use burst::{Burst, Outgoing};
pub use context::{Ahead, Arrived, Completions, Context, Nanos};
pub use receives::{RecvQueue, Slot};

use crate::api::{Modify, PostError, QpConfig, QpState, QpType, RecvWr, SendWr, VerbsError};
use shotline_memory::{Protection, Sge};
use shotline_transport::Pick;
use std::net::SocketAddr;

/// One queue pair's protocol.
// A datagram's or an unreliable connection's state is small; the reliable one is boxed, so that all are.
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
    /// Bytes of registered, zeroed memory that an engine made with this must be lent.
    pub fn memory(config: &QpConfig) -> u32 {
        sends::SendQueue::memory(config)
    }

    /// A queue pair in state [`QpState::Reset`]. `lent` is zeroed memory of [`Self::memory`] bytes, in a region of the
    /// endpoint's [`Protection`], that nobody else writes.
    pub fn new(number: u32, config: &QpConfig, lent: Sge) -> Self {
        match config.kind {
            QpType::Ud => Self::Ud(ud::Ud::new(number, config, lent)),
            QpType::Uc => Self::Uc(uc::Uc::new(number, config, lent)),
            QpType::Rc => Self::Rc(Box::new(rc::Rc::new(number, config, lent))),
        }
    }
    /// Its 24-bit number.
    pub fn number(&self) -> u32 {
        each!(self, inner => inner.common.number)
    }
    /// Its state.
    pub fn state(&self) -> QpState {
        each!(self, inner => inner.common.state)
    }
    /// What it was made with.
    pub fn config(&self) -> &QpConfig {
        each!(self, inner => &inner.common.config)
    }
    /// The peer's address and queue pair (RC, UC), from [`QpState::ReadyToReceive`] on.
    pub fn peer(&self) -> Option<(SocketAddr, u32)> {
        each!(self, inner => inner.common.peer)
    }
    /// Whether a packet from there may be the peer's (UD: any may).
    pub fn is_from_peer(&self, source: SocketAddr) -> bool {
        each!(self, inner => inner.common.is_from_peer(source))
    }
    /// Changes the state. [`Modify::Error`] completes everything as flushed, [`Modify::Reset`] forgets it.
    pub fn modify(&mut self, ctx: &mut Context<'_>, change: &Modify) -> Result<(), VerbsError> {
        each!(self, inner => inner.modify(ctx, change))
    }
    /// Limits the bytes that a reliable connection has under way unacknowledged, requests and READ responses alike: to
    /// what the receiving side's socket holds, so that it is not overrun. The default is 512 KiB; the number of packets
    /// is at most 1024 in any case, and fewer after losses. To be called when nothing is posted.
    pub fn limit_window(&mut self, bytes: u32) {
        if let Self::Rc(rc) = self {
            rc.limit(bytes);
        }
    }
    /// Packets that are on their way and not acknowledged, those that answer its READs included (RC; 0 for others). Who
    /// has many queue pairs limits their sum.
    pub fn under_way(&self) -> u32 {
        match self {
            Self::Rc(rc) => rc.under_way(),
            Self::Ud(_) | Self::Uc(_) => 0,
        }
    }
    /// Whether it owes its peer an answer, which is not to wait for anything.
    pub fn owes(&self, now: Nanos) -> bool {
        match self {
            Self::Rc(rc) => rc.owes(now),
            Self::Ud(_) | Self::Uc(_) => false,
        }
    }
    /// Queues a send work request: checks state, room, lengths and local keys, and keeps its memory until it completes.
    pub fn post_send(&mut self, ctx: &mut Context<'_>, wr: &SendWr<'_>) -> Result<(), PostError> {
        each!(self, inner => inner.post_send(ctx, wr))
    }
    /// Queues a receive on the queue pair's own queue; in state [`QpState::Error`] it is flushed at once.
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
    /// Chooses places for the payloads of a batch (`picks` has one entry a packet, all unset), before anything of it is
    /// verified: only places where the packets that are due would land.
    pub fn pick(&self, protection: &Protection, receives: &RecvQueue, ahead: &Ahead<'_>, picks: &mut [Pick]) {
        each!(self, inner => inner.pick(protection, receives, ahead, picks));
    }
    /// Takes a packet.
    pub fn receive(&mut self, ctx: &mut Context<'_>, packet: &Arrived<'_>) {
        ctx.books.packets_in += 1;
        each!(self, inner => inner.receive(ctx, packet));
    }
    /// Adds what is to be sent, at most so many packets.
    pub fn transmit(&mut self, ctx: &mut Context<'_>, burst: &mut Burst, most: usize) {
        let before = (burst.packets.len(), burst.gather.len());
        each!(self, inner => inner.transmit(ctx, burst, most));
        ctx.books.packets_out += (burst.packets.len() - before.0) as u64;
        ctx.books.bytes_out += burst.gather[before.1..].iter().map(|sge| u64::from(sge.len)).sum::<u64>();
    }
    /// Whether [`Self::transmit`] would do something now.
    pub fn wants_to_send(&self, now: Nanos) -> bool {
        each!(self, inner => inner.wants_to_send(now))
    }
    /// The next time at which [`Self::expire`] is due, or [`Self::transmit`] because a wait is over.
    pub fn deadline(&self) -> Option<Nanos> {
        each!(self, inner => inner.deadline())
    }
    /// Does what is due at this time: sends again what was not answered, or gives it up.
    pub fn expire(&mut self, ctx: &mut Context<'_>) {
        each!(self, inner => inner.expire(ctx));
    }
}
