//! Errors of the verbs.

use super::{QpState, QpType};
use shotline_memory::{AccessError, RegisterError};
use shotline_transport::IoError;

/// Reason why a work request was not posted. The request has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// There is no such queue pair or shared receive queue.
    #[error("there is no such queue")]
    NoQueue,
    /// The queue pair does not accept the request in this state: a send before `ReadyToSend`, a receive in `Reset`.
    #[error("a queue pair in state {0} does not accept this request")]
    State(QpState),
    /// The queue is full: poll its completion queue.
    #[error("the queue is full: poll its completion queue")]
    Full,
    /// More elements than the queue's maximum.
    #[error("{found} elements: the queue allows at most {max}")]
    TooManyElements {
        /// Maximum of the queue.
        max: u32,
        /// Number posted.
        found: usize,
    },
    /// More inline bytes than the queue's maximum, or inline data for an operation that writes local memory.
    #[error("{found} inline bytes: this request allows at most {max}")]
    Inline {
        /// Maximum of the queue.
        max: u32,
        /// Number posted.
        found: usize,
    },
    /// Longer than the maximum (2^31 bytes; a datagram: the MTU), or an atomic operation that is not of 8 bytes.
    #[error("expected an operation of at most {max} bytes (atomic: exactly 8), found {found}")]
    Length {
        /// Maximum length in bytes.
        max: u64,
        /// Bytes posted.
        found: u64,
    },
    /// This type of queue pair does not support the operation.
    #[error("a queue pair of type {0} does not support this operation")]
    Unsupported(QpType),
    /// A datagram without a destination, or a destination on a connected queue pair.
    #[error("a datagram needs a destination, and a request of a connected queue pair must not have one")]
    Destination,
    /// Invalid key, range or access right of an element.
    #[error("element {index}: {refused}")]
    Element {
        /// Index of the element.
        index: usize,
        /// Cause.
        refused: AccessError,
    },
}

/// Reason why a verb failed.
#[derive(Debug, thiserror::Error)]
pub enum VerbsError {
    /// The object does not exist, or no longer.
    #[error("there is no such {0}")]
    NoSuch(&'static str),
    /// The object is still in use.
    #[error("the {what} is in use by {by}: destroy that first")]
    InUse {
        /// Object to destroy.
        what: &'static str,
        /// Object that uses it.
        by: &'static str,
    },
    /// An invalid state transition or invalid attributes.
    #[error("{0}")]
    Invalid(String),
    /// The provider does not support the operation.
    #[error("{0}")]
    Unsupported(&'static str),
    /// Memory could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Memory could not be allocated.
    #[error(transparent)]
    Memory(#[from] shotline_memory::MemoryError),
    /// The transport failed.
    #[error(transparent)]
    Io(#[from] IoError),
}
