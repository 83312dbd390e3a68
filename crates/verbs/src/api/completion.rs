//! Completions.

use std::net::SocketAddr;

/// Status of a completed work request (IBTA volume 1, clause 11.6.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Status {
    /// The operation succeeded.
    #[default]
    Success,
    /// A received message was longer than the receive, or a posted one longer than the protocol allows.
    LocalLength,
    /// The local queue pair could not execute the request.
    LocalOperation,
    /// A local key, range or access right is invalid.
    LocalProtection,
    /// The request was flushed because the queue pair was in its error state.
    Flushed,
    /// The peer sent an invalid response.
    BadResponse,
    /// The peer rejected the request as invalid.
    RemoteInvalid,
    /// The peer rejected key, range or rights.
    RemoteAccess,
    /// The peer could not execute the request.
    RemoteOperation,
    /// No acknowledgement after all retransmissions.
    RetryExceeded,
    /// The peer had no receive posted, after all RNR retries.
    RnrRetryExceeded,
}

/// Kind of a completed work request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CompletionKind {
    /// A SEND, with or without immediate data.
    #[default]
    Send,
    /// A WRITE, with or without immediate data.
    Write,
    /// A READ.
    Read,
    /// A compare and swap.
    CompareSwap,
    /// A fetch and add.
    FetchAdd,
    /// A receive filled by a SEND.
    Recv,
    /// A receive consumed by a WRITE with immediate data; its elements were not written.
    RecvWriteImm,
}

/// Completion of a work request. (The default value is for arrays passed to
/// [`Provider::poll_cq`](super::Provider::poll_cq).)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Id of the request.
    pub id: u64,
    /// Status. Fields other than `id`, `status` and `qp` are valid only on success.
    pub status: Status,
    /// Kind of the request.
    pub kind: CompletionKind,
    /// Number of the local queue pair.
    pub qp: u32,
    /// Bytes received (receives, READs).
    pub bytes: u32,
    /// Immediate data.
    pub imm: Option<u32>,
    /// Key that a SEND with invalidate has invalidated.
    pub invalidated: Option<u32>,
    /// The sender's address and queue pair (UD).
    pub source: Option<(SocketAddr, u32)>,
    /// The peer requested a solicited event, or the status is an error.
    pub solicited: bool,
}
