//! What a verb can refuse.

use super::{QpState, QpType};
use shotline_memory::{Refused, RegisterError};
use shotline_transport::IoError;

/// Why a work request was not posted. Nothing of it has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// There is no such queue pair or shared receive queue.
    #[error("there is no such queue")]
    NoQueue,
    /// Not in this state.
    #[error("a queue pair in state {0:?} takes no such request")]
    State(QpState),
    /// The queue holds as many requests as it can: poll its completion queue.
    #[error("the queue is full: poll its completion queue")]
    Full,
    /// More elements than the queue was made for.
    #[error("{found} elements, the queue was made for {most}")]
    TooManyElements {
        /// What it was made for.
        most: u32,
        /// What was posted.
        found: usize,
    },
    /// More inline bytes than the queue was made for, or inline where bytes come in.
    #[error("{found} inline bytes, at most {most} here")]
    Inline {
        /// What it was made for.
        most: u32,
        /// What was posted.
        found: usize,
    },
    /// Longer than one operation may be (2^31 bytes; a datagram: the MTU; an atomic operation: exactly 8).
    #[error("{found} bytes, where an operation takes {most}")]
    Length {
        /// The limit.
        most: u64,
        /// What was posted.
        found: u64,
    },
    /// The kind of queue pair cannot do this operation.
    #[error("a queue pair of type {0:?} has no such operation")]
    Unsupported(QpType),
    /// A datagram without a destination, or a destination on a connected queue pair.
    #[error("datagrams need a destination, connections have theirs")]
    Destination,
    /// An element's key, range or right.
    #[error("element {index}: {refused}")]
    Element {
        /// Which element.
        index: usize,
        /// Why.
        refused: Refused,
    },
}

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
pub enum VerbsError {
    /// A handle that names nothing (any more).
    #[error("there is no such {0}")]
    NoSuch(&'static str),
    /// It is still used.
    #[error("the {what} is in use by {by}: destroy that first")]
    InUse {
        /// What was to be destroyed.
        what: &'static str,
        /// Who uses it.
        by: &'static str,
    },
    /// A change of state that the rules do not have, or attributes that cannot be.
    #[error("{0}")]
    Invalid(String),
    /// This provider cannot do that.
    #[error("{0}")]
    Unsupported(&'static str),
    /// Memory could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Memory could not be had.
    #[error(transparent)]
    Memory(#[from] shotline_memory::MemoryError),
    /// The transport failed.
    #[error(transparent)]
    Io(#[from] IoError),
}
