//! Memory windows.

use super::{Qp, VerbsError};
use shotline_memory::{Access, Mr};
use std::time::Duration;

/// Memory window: remote access to a part of a registration. Peers address its bytes from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// rkey that a peer must use.
    pub rkey: u32,
    /// Length in bytes.
    pub len: u64,
}

/// Verbs of memory windows ([`guide::memory`](super::guide::memory)). Providers without them implement [`NoWindows`].
pub trait Windows {
    /// Binds a window to `len` bytes at `offset` of registered memory: an rkey with its own access rights, valid for
    /// one queue pair only and, if `lifetime` is given, for a limited time (an IBTA type 2 window, bound by its owner
    /// and not by a request in the send queue).
    ///
    /// The memory needs no remote rights, but local write access if the window lets a peer change it.
    ///
    /// # Errors
    /// [`VerbsError::Register`] if the memory is not registered or is in another domain than the queue pair, or if
    /// range or rights are invalid; [`VerbsError::NoSuch`] if there is no such queue pair; [`VerbsError::Unsupported`]
    /// from [`NoWindows`].
    fn bind_window(
        &mut self,
        qp: Qp,
        mr: &Mr,
        offset: u64,
        len: u64,
        access: Access,
        lifetime: Option<Duration>,
    ) -> Result<Window, VerbsError>;
    /// Unbinds a window: its key is rejected from now on.
    ///
    /// # Errors
    /// [`VerbsError::NoSuch`] if the window was unbound or invalidated before, or its memory was deregistered.
    fn unbind_window(&mut self, window: &Window) -> Result<(), VerbsError>;
}

/// Marks a provider without memory windows ([`Capabilities::windows`](super::Capabilities::windows)): it rejects their
/// verbs. Not for wrappers of other providers, which forward all of [`Windows`].
pub trait NoWindows {}

const NO_WINDOWS: VerbsError = VerbsError::Unsupported("this provider has no memory windows");

impl<P: NoWindows> Windows for P {
    fn bind_window(
        &mut self,
        _: Qp,
        _: &Mr,
        _: u64,
        _: u64,
        _: Access,
        _: Option<Duration>,
    ) -> Result<Window, VerbsError> {
        Err(NO_WINDOWS)
    }
    fn unbind_window(&mut self, _: &Window) -> Result<(), VerbsError> {
        Err(NO_WINDOWS)
    }
}
