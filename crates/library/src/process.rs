//! The process that has opened a handle.

use crate::error::Error;

/// The process in which a handle was opened. A child process has the handle's memory, but not its threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner(u32);

impl Owner {
    /// Returns this process.
    pub(crate) fn this() -> Self {
        Self(std::process::id())
    }

    /// Returns `true` in the process that has opened the handle.
    pub(crate) fn is_this(self) -> bool {
        self.0 == std::process::id()
    }

    /// Refuses calls in a child process. `what` names the handle.
    pub(crate) fn check(self, what: &str) -> Result<(), Error> {
        if self.is_this() { Ok(()) } else { Err(Error::forked(what)) }
    }
}
