//! Notifications of peers' one-sided operations, and asynchronous events that belong to no request.

use super::{CompletionKind, Cq, Qp, Srq, VerbsError};
use shotline_memory::{Mr, RegistrationCounters};

/// One-sided operation of a peer: all bytes of a WRITE are written, a READ is accepted, or an atomic operation is
/// executed.
///
/// One-sided operations do not notify the target. A target can request these reports for a registration instead
/// ([`Notices::watch_mr`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAccess {
    /// Local queue pair that received it.
    pub qp: u32,
    /// rkey that it used, which identifies the registration.
    pub rkey: u32,
    /// [`CompletionKind::Write`], [`CompletionKind::Read`], [`CompletionKind::CompareSwap`] or
    /// [`CompletionKind::FetchAdd`].
    pub kind: CompletionKind,
    /// Address of the first byte, in the registration's addressing.
    pub address: u64,
    /// Length in bytes.
    pub len: u32,
}

/// Verbs that report peers' one-sided operations to a target ([`guide::notices`](super::guide::notices)). Providers
/// without them implement [`NoNotices`].
pub trait Notices {
    /// Starts or stops reporting every one-sided operation of a peer on this memory ([`Self::next_access`]).
    ///
    /// # Errors
    /// [`VerbsError::NoSuch`] if the memory is not registered, [`VerbsError::Unsupported`] from [`NoNotices`].
    fn watch_mr(&mut self, mr: &Mr, notify: bool) -> Result<(), VerbsError>;
    /// Returns the next one-sided operation on watched memory, or `None`. A provider queues a limited number of them
    /// (`soft`: 4096); further ones are lost and counted.
    fn next_access(&mut self) -> Option<RemoteAccess>;
    /// Returns the counters of peers' operations on this registration.
    ///
    /// # Errors
    /// As for [`Self::watch_mr`].
    fn mr_usage(&self, mr: &Mr) -> Result<RegistrationCounters, VerbsError>;
}

/// Marks a provider that does not report one-sided operations to targets: it rejects these verbs and never returns an
/// access. Not for wrappers of other providers, which forward all of [`Notices`].
pub trait NoNotices {}

impl<P: NoNotices> Notices for P {
    fn watch_mr(&mut self, _: &Mr, _: bool) -> Result<(), VerbsError> {
        Err(VerbsError::Unsupported("this provider does not report one-sided operations to targets"))
    }
    fn next_access(&mut self) -> Option<RemoteAccess> {
        None
    }
    fn mr_usage(&self, _: &Mr) -> Result<RegistrationCounters, VerbsError> {
        Err(VerbsError::Unsupported("this provider does not count one-sided operations at targets"))
    }
}

/// Asynchronous event (IBTA volume 1, clause 11.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A completion queue was full and a completion was lost. Its queue pairs are in their error state.
    CqOverrun(Cq),
    /// A queue pair entered its error state without a call of `modify_qp`.
    QpError(Qp),
    /// A shared receive queue has fewer receives than its limit; the limit is disarmed.
    SrqLimit(Srq),
}
