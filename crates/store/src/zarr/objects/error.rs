//! Why an object could not be written, read or removed.

use std::io;
use std::path::PathBuf;

/// Why an object could not be written, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The kernel refused it.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The store refused it, or cannot be reached.
    #[error(
        "cannot {what} {object}: {why}; look at AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    Store {
        /// What was tried.
        what: &'static str,
        /// The object.
        object: String,
        /// What the store says.
        why: String,
    },
    /// An address that is none, or a setting that is missing.
    #[error("{0}")]
    Address(String),
}
