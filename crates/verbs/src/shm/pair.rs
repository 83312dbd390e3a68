//! State of a queue pair.

use super::queues::{PinnedElements, Receive};
use crate::api::{CompletionKind, Operation, QpConfig, QpState, Status};
use shotline_memory::{Access, Sge};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Progress of a request on the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not executed, or not completely; this many bytes of its message are in the ring, or have passed over a path.
    Waiting(u64),
    /// The message with this sequence number is in the ring and not acknowledged.
    Sent(u32),
    /// Executed; it completes after the earlier requests.
    Done,
    /// Failed; the queue pair fails when the earlier requests are complete.
    Failed(Status),
}

/// A request on the send queue that did not complete when it was posted.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) operation: Operation,
    pub(super) pinned: PinnedElements,
    pub(super) inline: Vec<u8>,
    pub(super) is_inline: bool,
    pub(super) len: u64,
    pub(super) signalled: bool,
    pub(super) solicited: bool,
    /// Its number among all posted requests: its completion frees the send queue up to it.
    pub(super) number: u32,
    pub(super) stage: Stage,
}

/// Local data of a request.
#[derive(Clone, Copy)]
pub(super) enum Payload<'a> {
    Elements(&'a [Sge]),
    Inline(&'a [u8]),
}

/// A partly received message.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) receive: Receive,
    pub(super) total: u64,
    pub(super) filled: u64,
    /// Index of the element for the next byte, and the offset in it.
    pub(super) cursor: (usize, u32),
}

/// A queue pair with its requests.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) number: u32,
    pub(super) config: QpConfig,
    pub(super) state: QpState,
    /// Access rights of the peer.
    pub(super) access: Access,
    /// Number of the peer's queue pair, and its slot on the peer's board once known.
    pub(super) peer: u32,
    pub(super) peer_slot: Option<usize>,
    /// The peer's change counter at the last unsuccessful search for the slot.
    pub(super) searched_at: Option<u32>,
    /// Handle of its receive queue.
    pub(super) receives: u32,

    /// Incomplete requests in order; the first `executed` are executed.
    pub(super) requests: VecDeque<Request>,
    pub(super) executed: usize,
    /// Completed requests, whose allocations are reused.
    pub(super) spare: Vec<Request>,
    /// Number of requests ever posted, and number of those whose entries are free again, modulo 2^32.
    pub(super) posted: u32,
    pub(super) freed: u32,
    /// Sequence numbers of the next message to send and of the next one to receive.
    pub(super) next_message: u32,
    pub(super) expected: u32,
    pub(super) incoming: Option<Incoming>,
    /// It is in the endpoint's list of queue pairs with incomplete requests.
    pub(super) active: bool,

    /// Time that a request waits for the peer's queue pair to become ready: timeout x (`retry_cnt` + 1).
    pub(super) timeout: Option<Duration>,
    pub(super) rnr_retry: u8,
    /// Reason and deadline of the first waiting request.
    pub(super) deadline: Option<(WaitReason, Instant)>,
}

/// Reason why a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitReason {
    /// The ring is full: the peer is slow, which is no error.
    RingSpace,
    /// The peer has no receive posted.
    Receive,
    /// The peer's queue pair is not ready.
    Peer,
    /// The rest passes over an emulated path in later calls.
    Path,
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
            searched_at: None,
            receives,
            requests: VecDeque::new(),
            executed: 0,
            spare: Vec::new(),
            posted: 0,
            freed: 0,
            next_message: 0,
            expected: 0,
            incoming: None,
            active: false,
            timeout: None,
            rnr_retry: 7,
            deadline: None,
        }
    }
    /// Returns `true` if the send queue can take another request.
    #[inline]
    pub(super) fn has_space(&self) -> bool {
        self.posted.wrapping_sub(self.freed) < self.config.max_send_wr
    }
    pub(super) fn is_connected(&self) -> bool {
        matches!(self.state, QpState::ReadyToReceive | QpState::ReadyToSend)
    }
}

/// Returns the completion type of an operation.
#[inline]
pub(super) fn kind(operation: &Operation) -> CompletionKind {
    match operation {
        Operation::Send | Operation::SendImm(_) | Operation::SendInvalidate(_) => CompletionKind::Send,
        Operation::Write(_) | Operation::WriteImm(..) => CompletionKind::Write,
        Operation::Read(_) => CompletionKind::Read,
        Operation::CompareSwap { .. } => CompletionKind::CompareSwap,
        Operation::FetchAdd { .. } => CompletionKind::FetchAdd,
    }
}
