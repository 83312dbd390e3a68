//! Names of completions, and the causes of those that failed.

use shotline_verbs::api::{CompletionKind, Status};

/// Failure of a request, with its probable cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompletionFailure {
    /// A message did not fit.
    #[error("the message was longer than the receive that it was for, or than the protocol allows")]
    LocalLength,
    /// The local queue pair could not execute the request.
    #[error("the local queue pair could not execute the request")]
    LocalOperation,
    /// A local element is not valid.
    #[error("a local key, range or access right is not valid: register the memory, and do not close the region before")]
    LocalProtection,
    /// The queue pair was in its error state.
    #[error("the request was flushed: an earlier request of the queue pair failed, or the target has ended")]
    Flushed,
    /// The target sent an invalid response.
    #[error("the target sent an invalid response")]
    BadResponse,
    /// The target rejected the request.
    #[error(
        "the target rejected the request as invalid: its length or alignment, or an operation that none of its regions \
         allows"
    )]
    RemoteInvalid,
    /// The target rejected key, range or rights.
    #[error("the target refused the access: key, range or rights")]
    RemoteAccess,
    /// The target could not execute the request.
    #[error("the target could not execute the request")]
    RemoteOperation,
    /// There was no acknowledgement.
    #[error(
        "no acknowledgement after all retransmissions: the target has stopped, or it dropped the request because of its \
         key, range or rights, which only a target with --strict-ib answers"
    )]
    RetryExceeded,
    /// There was no receive for the message.
    #[error("the target had no receive posted for the message: connect the queue pair with receives at the target")]
    RnrRetryExceeded,
}

impl CompletionFailure {
    /// Returns the failure that a status means, if it is not success.
    pub const fn of(status: Status) -> Option<Self> {
        Some(match status {
            Status::Success => return None,
            Status::LocalLength => Self::LocalLength,
            Status::LocalOperation => Self::LocalOperation,
            Status::LocalProtection => Self::LocalProtection,
            Status::Flushed => Self::Flushed,
            Status::BadResponse => Self::BadResponse,
            Status::RemoteInvalid => Self::RemoteInvalid,
            Status::RemoteAccess => Self::RemoteAccess,
            Status::RemoteOperation => Self::RemoteOperation,
            Status::RetryExceeded => Self::RetryExceeded,
            Status::RnrRetryExceeded => Self::RnrRetryExceeded,
        })
    }
}

/// Returns the name of a status.
pub const fn status_name(status: Status) -> &'static str {
    match status {
        Status::Success => "success",
        Status::LocalLength => "local_length",
        Status::LocalOperation => "local_operation",
        Status::LocalProtection => "local_protection",
        Status::Flushed => "flushed",
        Status::BadResponse => "bad_response",
        Status::RemoteInvalid => "remote_invalid",
        Status::RemoteAccess => "remote_access",
        Status::RemoteOperation => "remote_operation",
        Status::RetryExceeded => "retry_exceeded",
        Status::RnrRetryExceeded => "rnr_retry_exceeded",
    }
}

/// Returns the name of a kind of request.
pub const fn kind_name(kind: CompletionKind) -> &'static str {
    match kind {
        CompletionKind::Send => "send",
        CompletionKind::Write => "write",
        CompletionKind::Read => "read",
        CompletionKind::CompareSwap => "compare_swap",
        CompletionKind::FetchAdd => "fetch_add",
        CompletionKind::Recv => "recv",
        CompletionKind::RecvWriteImm => "recv_write_imm",
    }
}
