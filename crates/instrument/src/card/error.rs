//! Errors of serving a card, and why a connection ends.

use rustix::io::Errno;
use std::io;
use std::path::PathBuf;

/// Reason why a card cannot be served any more.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// The RTL broke a rule.
    #[error("the simulated card broke a rule: {0}; please report this, with the command and its input")]
    Rule(String),
    /// Something else than a stale socket is at the path.
    #[error("expected a new path for the socket of the card, found {found} at {path}: {what}", path = path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// What is there.
        found: &'static str,
        /// What to do.
        what: &'static str,
    },
    /// The memory of a virtual machine has an impossible size.
    #[error("expected at most 2 GiB of memory of a virtual machine, found {found} bytes in {path}: \
             start QEMU with -object memory-backend-file,mem-path={path},share=on", path = path.display())]
    Memory {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        found: u64,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A source or a sink of frames failed.
    #[error("{0}")]
    Frames(String),
}

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// The driver has closed it.
    Gone,
    /// The driver broke the rules.
    Broken(String),
    /// The card cannot go on.
    Card(CardError),
}

impl End {
    pub fn broken(found: String) -> Self {
        Self::Broken(found)
    }

    pub fn frames(error: String) -> Self {
        Self::Card(CardError::Frames(error))
    }

    pub fn rule(error: String) -> Self {
        Self::Card(CardError::Rule(error))
    }
}

impl From<Errno> for End {
    /// An error of the connection.
    fn from(_: Errno) -> Self {
        Self::Gone
    }
}

impl From<CardError> for End {
    fn from(error: CardError) -> Self {
        Self::Card(error)
    }
}
