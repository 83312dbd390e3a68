//! A queue pair.

use super::queues::{Held, Receive};
use crate::api::{Completed, Operation, QpConfig, QpState, Status};
use shotline_memory::Access;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How far a request on the send queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not (wholly) carried out: so many bytes of its message are in the ring.
    Waiting(u64),
    /// The peer has to say that this message has arrived.
    Sent(u32),
    /// Carried out; it completes after those before it.
    Done,
    /// It cannot be; the queue pair fails when those before it are complete.
    Failed(Status),
}

/// A request on the send queue that could not complete when it was posted.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) operation: Operation,
    pub(super) held: Held,
    pub(super) inline: Vec<u8>,
    pub(super) is_inline: bool,
    pub(super) len: u64,
    pub(super) signalled: bool,
    pub(super) solicited: bool,
    /// Its number among all that were posted: what its completion frees.
    pub(super) number: u32,
    pub(super) stage: Stage,
}

/// A message that is arriving.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) receive: Receive,
    pub(super) total: u64,
    pub(super) filled: u64,
    /// The element that the next byte goes to, and how much of it is filled.
    pub(super) at: (usize, u32),
}

#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) number: u32,
    pub(super) config: QpConfig,
    pub(super) state: QpState,
    pub(super) access: Access,
    /// The peer's queue pair, and its slot on the peer's board once that was found.
    pub(super) peer: u32,
    pub(super) peer_slot: Option<usize>,
    /// The peer's count of changes when its slot was looked for in vain.
    pub(super) looked: Option<u32>,
    /// Its receive queue.
    pub(super) receives: u32,

    /// Requests in order; the first `carried` are carried out.
    pub(super) requests: VecDeque<Request>,
    pub(super) carried: usize,
    pub(super) spare: Vec<Request>,
    /// Requests that were ever posted, and those whose places are free again.
    pub(super) posted: u32,
    pub(super) freed: u32,
    /// The number of the next message to send, and of the next to arrive.
    pub(super) next: u32,
    pub(super) expected: u32,
    pub(super) incoming: Option<Incoming>,
    /// It is in the list of those that progress looks after.
    pub(super) active: bool,

    pub(super) patience: Option<Duration>,
    pub(super) rnr_retries: u8,
    /// When what its first waiting request waits for is given up.
    pub(super) deadline: Option<(Waits, Instant)>,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// Room in the ring: the peer is slow, which is no error.
    Room,
    /// A receive of the peer.
    Receive,
    /// The peer's queue pair.
    Peer,
}

impl QueuePair {
    pub(super) fn new(number: u32, config: QpConfig, receives: u32) -> Self {
        Self {
            number,
            config,
            state: QpState::Reset,
            access: Access::NONE,
            peer: 0,
            peer_slot: None,
            looked: None,
            receives,
            requests: VecDeque::new(),
            carried: 0,
            spare: Vec::new(),
            posted: 0,
            freed: 0,
            next: 0,
            expected: 0,
            incoming: None,
            active: false,
            patience: None,
            rnr_retries: 7,
            deadline: None,
        }
    }
    /// Whether another request fits the send queue.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.posted.wrapping_sub(self.freed) < self.config.max_send_wr
    }
    pub(super) fn is_connected(&self) -> bool {
        matches!(self.state, QpState::ReadyToReceive | QpState::ReadyToSend)
    }
}

/// What a send request is called when it completes.
#[inline]
pub(super) fn kind(operation: &Operation) -> Completed {
    match operation {
        Operation::Send | Operation::SendImm(_) | Operation::SendInvalidate(_) => Completed::Send,
        Operation::Write(_) | Operation::WriteImm(..) => Completed::Write,
        Operation::Read(_) => Completed::Read,
        Operation::CompareSwap { .. } => Completed::CompareSwap,
        Operation::FetchAdd { .. } => Completed::FetchAdd,
    }
}
