//! Queue pair types, states and attributes.

use super::{Cq, Srq};
use shotline_memory::{Access, Pd};
use shotline_wire::aeth::RnrTimer;
use std::fmt;
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

impl fmt::Display for QpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        })
    }
}

/// State of a queue pair (IBTA volume 1, clause 10.3.1; [`guide::queue_pairs`](super::guide::queue_pairs)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Newly created or reset: nothing may be posted.
    Reset,
    /// Receives may be posted; packets are dropped.
    Init,
    /// Packets are received.
    ReadyToReceive,
    /// Packets are received and sent.
    ReadyToSend,
    /// A send work request failed (UD, UC): receiving continues, sends are flushed.
    SendError,
    /// All posted requests, and those posted from now on, are flushed.
    Error,
}

/// The state's name in the standard and in rdma-core, such as `RTS`.
impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::ReadyToReceive => "RTR",
            Self::ReadyToSend => "RTS",
            Self::SendError => "SQE",
            Self::Error => "ERR",
        })
    }
}

/// Path MTU: payload bytes of a full packet. InfiniBand and RoCE have those of up to 4096 bytes ([`Self::IBTA`]); larger
/// ones are segments of SpaceFibre links.
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
    /// 8192 bytes.
    B8192 = 8192,
    /// 16,384 bytes.
    B16384 = 16384,
    /// 32,768 bytes.
    B32768 = 32768,
}

impl Mtu {
    /// Values that InfiniBand has (IBTA volume 1, clause 9.4.3), ascending.
    pub const IBTA: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];
    /// All values, ascending.
    pub const ALL: [Self; 8] =
        [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096, Self::B8192, Self::B16384, Self::B32768];
    /// The largest value.
    pub const MAX: Self = Self::B32768;

    /// Returns the MTU in bytes.
    pub const fn bytes(self) -> u32 {
        self as u32
    }
    /// Returns the MTU of this size in bytes, if there is one.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }
}

/// Configuration of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Transport service.
    pub kind: QpType,
    /// Protection domain.
    pub pd: Pd,
    /// Completion queue of send work requests.
    pub send_cq: Cq,
    /// Completion queue of receives.
    pub recv_cq: Cq,
    /// Shared receive queue to use instead of the queue pair's own.
    pub srq: Option<Srq>,
    /// Depth of the send queue, in work requests.
    pub max_send_wr: u32,
    /// Depth of the receive queue, in work requests; not used with `srq`.
    pub max_recv_wr: u32,
    /// Maximum scatter/gather elements of a request.
    pub max_sge: u32,
    /// Maximum inline bytes of a request.
    pub max_inline: u32,
    /// Service level of its packets, which selects their quality of service (IBTA volume 1, clause 7.6.5). SpaceFibre: the
    /// virtual channel. `soft` and `shm` ignore it.
    pub service_level: u8,
    /// Invalid requests of the peer are answered with a NAK and put the queue pair in its error state, as IBTA
    /// requires. Otherwise they are dropped and counted, without further effect.
    pub strict: bool,
    /// Packets from the peer's address are accepted from any UDP port (RC, UC), and one-sided operations over IPv4 with
    /// any identification: for a peer that sends one flow from several ports, or whose identifications do not increase.
    /// Otherwise the port of the first executed packet becomes the connection's.
    pub accept_any_source_port: bool,
}

impl QpConfig {
    /// Returns a configuration for 128 requests of up to 4 elements or 64 inline bytes.
    pub fn new(kind: QpType, pd: Pd, send_cq: Cq, recv_cq: Cq) -> Self {
        let (max_send_wr, max_recv_wr, max_sge, max_inline) = (128, 128, 4, 64);
        let (strict, accept_any_source_port) = (false, false);
        Self {
            kind,
            pd,
            send_cq,
            recv_cq,
            srq: None,
            max_send_wr,
            max_recv_wr,
            max_sge,
            max_inline,
            service_level: 0,
            strict,
            accept_any_source_port,
        }
    }
}

/// Attributes of the transition to [`QpState::ReadyToReceive`].
#[derive(Clone, Copy, Debug)]
pub struct ReadyToReceive {
    /// Address and queue pair of the peer; packets from elsewhere are dropped (RC, UC). Ignored for UD.
    pub peer: Option<(SocketAddr, u32)>,
    /// Path MTU.
    pub mtu: Mtu,
    /// First PSN that it expects, 24 bits: the peer's [`ReadyToSend::psn`].
    pub psn: u32,
    /// Maximum outstanding READs and atomic operations of the peer.
    pub max_dest_rd_atomic: u8,
    /// Delay requested from a peer that found no receive posted.
    pub min_rnr_timer: RnrTimer,
    /// Interval of acknowledgement requests for the local SENDs and WRITEs, in bytes (RC): the last packet of a message
    /// requests an acknowledgement if at least this many bytes were sent since the last such request, or if nothing
    /// else is posted. 0: every message. Requests complete when they are acknowledged. Only `soft` uses it.
    pub ack_every: u32,
}

/// Attributes of the transition to [`QpState::ReadyToSend`].
#[derive(Clone, Copy, Debug)]
pub struct ReadyToSend {
    /// First PSN that it sends, 24 bits.
    pub psn: u32,
    /// Acknowledgement timeout before retransmission (RC). 0: none, so the loss of the last packet is not repaired.
    pub timeout: Duration,
    /// Maximum retransmissions without progress in between, 0 to 7 (RC; devices use 7 for more).
    pub retry_cnt: u8,
    /// Maximum retransmissions to a peer that had no receive posted, 0 to 7; 7: unlimited (RC).
    pub rnr_retry: u8,
    /// Maximum outstanding READs and atomic operations (RC); at most the peer's `max_dest_rd_atomic`.
    pub max_rd_atomic: u8,
}

/// State transition of a queue pair.
#[derive(Clone, Copy, Debug)]
pub enum Modify {
    /// From `Reset`, or again in `Init`: sets the rights of peers through this queue pair, and its Q_Key (UD).
    Init {
        /// Remote access rights; those of the memory are required, too.
        access: Access,
        /// Queue key (UD).
        q_key: u32,
    },
    /// From `Init`.
    ReadyToReceive(ReadyToReceive),
    /// From `ReadyToReceive`, or from `SendError`.
    ReadyToSend(ReadyToSend),
    /// From any state: flushes all requests.
    Error,
    /// From any state: discards all requests.
    Reset,
}

impl Modify {
    /// Returns the transitions that connect a new queue pair (RC, UC) to a peer's, given by its address and number, with
    /// usual attributes: path MTU 4096 bytes, 4 outstanding READs and atomic operations, each message acknowledged, 7
    /// retransmissions after 67 ms each. `psn` is the first PSN of both directions, so it must be the same at the peer;
    /// it should be random on a network with untrusted hosts.
    pub fn connection(access: Access, peer: (SocketAddr, u32), psn: u32) -> [Self; 3] {
        const RNR_TIMER: RnrTimer = RnrTimer::from_code(12).unwrap(); // 0.64 ms
        let receive = ReadyToReceive {
            peer: Some(peer),
            mtu: Mtu::B4096,
            psn,
            max_dest_rd_atomic: 4,
            min_rnr_timer: RNR_TIMER,
            ack_every: 0,
        };
        let timeout = Duration::from_millis(67);
        let send = ReadyToSend { psn, timeout, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 4 };
        [Self::Init { access, q_key: 0 }, Self::ReadyToReceive(receive), Self::ReadyToSend(send)]
    }

    /// Returns the state to change to.
    pub fn state(&self) -> QpState {
        match self {
            Self::Init { .. } => QpState::Init,
            Self::ReadyToReceive(_) => QpState::ReadyToReceive,
            Self::ReadyToSend(_) => QpState::ReadyToSend,
            Self::Error => QpState::Error,
            Self::Reset => QpState::Reset,
        }
    }
}
