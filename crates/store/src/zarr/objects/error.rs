//! Errors of object storage.

use std::io;
use std::path::PathBuf;

/// Error of writing, reading or removing an object.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// A file operation failed.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// Operation that failed.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The object store rejected the request or cannot be reached.
    #[error(
        "cannot {what} {object}: {why}; check AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    Store {
        /// Operation that failed.
        what: &'static str,
        /// The object.
        object: String,
        /// Error message of the store.
        why: String,
    },
    /// An invalid address, or a missing setting.
    #[error("{0}")]
    Address(String),
}
