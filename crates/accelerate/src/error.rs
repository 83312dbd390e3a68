//! Errors of connections to accelerator nodes.

use shotline_memory::MemoryError;
use shotline_verbs::api::{PostError, Status, VerbsError};
use shotline_verbs::cm::{Client, ClientError, TargetFailure};

/// A node cannot be used any more, or not at all.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The control connection failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The local provider failed.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// A request was refused.
    #[error(transparent)]
    Post(#[from] PostError),
    /// There is not enough local memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The target is no accelerator node.
    #[error("the target is no accelerator node: {0}")]
    NoAccelerator(String),
    /// The node has ended.
    #[error("the node has closed the connection")]
    Closed,
    /// An operation failed.
    #[error("{0}")]
    Operation(String),
}

/// Returns why an operation has failed.
pub(crate) fn reason(status: Status, client: &Client) -> NodeError {
    match client.failure(status) {
        TargetFailure::Closed => NodeError::Closed,
        TargetFailure::Unresponsive => NodeError::Operation("the node does not respond".into()),
        TargetFailure::Access => NodeError::Operation("the node refused the access: key, range or rights".into()),
        failure @ TargetFailure::Other(_) => NodeError::Operation(failure.to_string()),
    }
}
