//! Completions.

use std::net::SocketAddr;

/// How a work request ended (IBTA volume 1, clause 11.6.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Status {
    /// As asked.
    #[default]
    Success,
    /// A message was longer than the receive, or longer than the wire allows.
    LocalLength,
    /// The queue pair could not do it as asked.
    LocalOperation,
    /// A local key, range or right does not fit.
    LocalProtection,
    /// The queue pair was in its error state.
    Flushed,
    /// The peer answered what cannot be an answer.
    BadResponse,
    /// The peer refused it as invalid.
    RemoteInvalid,
    /// The peer refused key, range or rights.
    RemoteAccess,
    /// The peer could not do it.
    RemoteOperation,
    /// No answer, however often it was sent.
    RetryExceeded,
    /// The peer had no receive posted, however often it was sent.
    RnrRetryExceeded,
}

/// What kind of request completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Completed {
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
    /// A receive, filled by a SEND.
    Recv,
    /// A receive, used up by a WRITE with immediate data; its elements were not touched.
    RecvWriteImm,
}

/// A work request is done. (The default one is for arrays to take others into.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The request's own.
    pub id: u64,
    /// How it ended. All but `id`, `status` and `qp` mean something only on success.
    pub status: Status,
    /// What it was.
    pub completed: Completed,
    /// The local queue pair's number.
    pub qp: u32,
    /// Bytes that arrived (receives, READs).
    pub bytes: u32,
    /// Immediate data.
    pub imm: Option<u32>,
    /// The key that a SEND with invalidate ended.
    pub invalidated: Option<u32>,
    /// The sender's address and queue pair (UD).
    pub source: Option<(SocketAddr, u32)>,
    /// The peer asked for an event, or it is an error.
    pub solicited: bool,
}
