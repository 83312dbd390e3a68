//! Memory windows.

use super::{Qp, VerbsError};
use shotline_memory::{Access, Mr};
use std::time::Duration;

/// A memory window: peers address its bytes from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// What a peer must show.
    pub rkey: u32,
    /// Its bytes.
    pub len: u64,
}

/// The verbs of memory windows. Providers without them are [`NoWindows`].
pub trait Windows {
    /// Binds a window to `len` bytes from `offset` of registered memory: a remote key of its own, with rights of its own,
    /// that peers can use only through one queue pair, and only for so long if a time is given (an IBTA type 2 window,
    /// bound by its owner and not by a request in the send queue). The memory needs no remote rights itself.
    fn bind_window(
        &mut self,
        qp: Qp,
        mr: &Mr,
        offset: u64,
        len: u64,
        access: Access,
        lifetime: Option<Duration>,
    ) -> Result<Window, VerbsError>;
    /// Ends a window: its key is refused from now on.
    fn unbind_window(&mut self, window: &Window) -> Result<(), VerbsError>;
}

/// Marks a provider that has no memory windows ([`Capabilities::windows`](super::Capabilities::windows)): it refuses their
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
