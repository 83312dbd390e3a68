//! Errors of handles.

use super::failure::CompletionFailure;
use shotline_memory::MemoryError;
use shotline_verbs::api::{PostError, VerbsError};
use shotline_verbs::cm::message::Refusal;
use shotline_verbs::cm::{ClientError, TokenError};
use shotline_verbs::connect::ConnectError;

/// Reason why a call of a handle failed.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The handle, or the endpoint that it belongs to, was closed.
    #[error("the {0} is closed")]
    Closed(&'static str),
    /// The calling process is a child of the one that opened the endpoint.
    #[error("the endpoint belongs to process {owner}, found process {found}: a child process connects for itself")]
    Forked {
        /// Process that opened the endpoint.
        owner: u32,
        /// Calling process.
        found: u32,
    },
    /// The control connection has ended, and all completions have been returned.
    #[error("the target closed the connection, or has ended")]
    Disconnected,
    /// There is no connection to the target.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The control connection failed, or the target refused a request.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A verb failed.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// Not all requests were posted.
    #[error("request {posted}: {source}")]
    Post {
        /// Number of requests that were posted: those before the one that failed.
        posted: usize,
        /// Why the next one was not.
        source: PostError,
    },
    /// A completion queue was full, and completions were lost.
    #[error("a completion queue of {depth} entries was full and lost completions: create it with a larger depth")]
    Overrun {
        /// Depth of the queue.
        depth: u32,
    },
    /// A request failed.
    #[error(transparent)]
    Completion(#[from] CompletionFailure),
    /// Memory could not be allocated.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The token is invalid.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A region cannot be exported.
    #[error(transparent)]
    Export(#[from] Refusal),
    /// The caller has interrupted a transfer.
    #[error("the transfer was interrupted")]
    Interrupted,
    /// An argument is invalid; the text states what was expected.
    #[error("{0}")]
    Invalid(String),
    /// The kernel refused something.
    #[error("{what}: {source}")]
    System {
        /// What was not possible.
        what: &'static str,
        /// The kernel's reason.
        source: std::io::Error,
    },
}

impl EndpointError {
    /// Returns a function that adds to the kernel's reason what was not possible.
    pub(super) fn system<E: Into<std::io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what, source: source.into() }
    }
}
