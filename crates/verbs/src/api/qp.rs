//! Queue pairs: kinds, states, attributes.

use super::{Cq, Srq};
use shotline_memory::{Access, Pd};
use shotline_wire::aeth::RnrTimer;
use std::net::SocketAddr;
use std::time::Duration;

/// Transport service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// State of a queue pair (IBTA volume 1, clause 10.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Just made: nothing may be posted.
    Reset,
    /// Receives may be posted; packets are dropped.
    Init,
    /// Packets are received.
    ReadyToReceive,
    /// And sent.
    ReadyToSend,
    /// A send work request failed (UD, UC): receiving goes on, sends are flushed.
    SendError,
    /// Everything that was posted, and is from now on, is flushed.
    Error,
}

/// Payload bytes of a full packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 256,
    /// 512 bytes.
    B512 = 512,
    /// 1024 bytes.
    B1024 = 1024,
    /// 2048 bytes.
    B2048 = 2048,
    /// 4096 bytes.
    B4096 = 4096,
}

impl Mtu {
    /// All, ascending.
    pub const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// Its bytes.
    pub const fn bytes(self) -> u32 {
        self as u32
    }
    /// The MTU of so many bytes, if there is one.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }
}

/// What a queue pair is made with.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Transport service.
    pub kind: QpType,
    /// Its protection domain.
    pub pd: Pd,
    /// Where send work requests complete.
    pub send_cq: Cq,
    /// Where receives complete.
    pub recv_cq: Cq,
    /// Receives come from this shared queue instead of its own.
    pub srq: Option<Srq>,
    /// Send work requests that it holds.
    pub max_send_wr: u32,
    /// Receives that it holds.
    pub max_recv_wr: u32,
    /// Elements of a request.
    pub max_sge: u32,
    /// Bytes of an inline request.
    pub max_inline: u32,
    /// What arrives wrong from outside is answered with a NAK and puts the queue pair in its error state, as the
    /// InfiniBand rules have it. Otherwise it is dropped and counted, and changes nothing.
    pub strict: bool,
    /// Packets from the peer's address are taken from whatever UDP port they come (RC, UC), and one-sided operations over
    /// IPv4 with whatever identification: for a peer that sends one flow by several ports, or whose identifications
    /// do not count up. Otherwise the port of the first packet that was carried out is the connection's.
    pub lax: bool,
}

impl QpConfig {
    /// 128 requests of up to 4 elements or 64 inline bytes.
    pub fn new(kind: QpType, pd: Pd, send_cq: Cq, recv_cq: Cq) -> Self {
        let (max_send_wr, max_recv_wr, max_sge, max_inline) = (128, 128, 4, 64);
        let (strict, lax) = (false, false);
        Self { kind, pd, send_cq, recv_cq, srq: None, max_send_wr, max_recv_wr, max_sge, max_inline, strict, lax }
    }
}

/// What a queue pair must know to receive.
#[derive(Clone, Copy, Debug)]
pub struct ReadyToReceive {
    /// The peer; packets from elsewhere are dropped (RC, UC). UD: any.
    pub peer: Option<(SocketAddr, u32)>,
    /// Path MTU.
    pub mtu: Mtu,
    /// The first sequence number that is expected.
    pub psn: u32,
    /// READs and atomic operations of the peer that may be unanswered at once.
    pub max_dest_rd_atomic: u8,
    /// How long a peer waits that found no receive posted.
    pub min_rnr_timer: RnrTimer,
    /// How seldom this side asks for acknowledgements of its own SENDs and WRITEs (RC): with the last packet of a
    /// message, when at least so many bytes were sent since it last asked, or when nothing else is posted. 0: with
    /// every message. Requests complete when they are acknowledged. UC has no acknowledgements at all.
    pub ack_every: u32,
}

/// What a queue pair must know to send.
#[derive(Clone, Copy, Debug)]
pub struct ReadyToSend {
    /// The first sequence number that it sends.
    pub psn: u32,
    /// How long an answer may take before it sends again.
    pub timeout: Duration,
    /// How often it sends again, at most.
    pub retries: u8,
    /// How often it sends again to a peer that had no receive posted; 7: without end.
    pub rnr_retries: u8,
    /// READs and atomic operations that may be unanswered at once; what the peer's `max_dest_rd_atomic` says.
    pub max_rd_atomic: u8,
}

/// A change of state.
#[derive(Clone, Copy, Debug)]
pub enum Modify {
    /// From `Reset`: what peers may do with memory through this queue pair, and its Q_Key (UD).
    Init {
        /// Remote rights; those of the memory itself are needed, too.
        access: Access,
        /// Queue key (UD).
        q_key: u32,
    },
    /// From `Init`.
    ReadyToReceive(ReadyToReceive),
    /// From `ReadyToReceive`, or from `SendError`.
    ReadyToSend(ReadyToSend),
    /// From any state: flushes everything.
    Error,
    /// From any state: forgets everything.
    Reset,
}
