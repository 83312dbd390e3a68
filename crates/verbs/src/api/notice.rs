//! What a target may hear of what its peers do, and what went wrong with nobody's request.

use super::{Completed, Cq, Qp, Srq, VerbsError};
use shotline_memory::{Mr, Usage};

/// A one-sided operation of a peer that is done: bytes written whole, a READ answered, an atomic operation executed.
///
/// One-sided operations tell the target nothing; a registration may ask for these all the same
/// ([`Notices::watch_mr`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessed {
    /// The local queue pair that it came through.
    pub qp: u32,
    /// The remote key that it showed: names the registration.
    pub rkey: u32,
    /// [`Completed::Write`], [`Completed::Read`], [`Completed::CompareSwap`] or [`Completed::FetchAdd`].
    pub kind: Completed,
    /// Its first byte, as the registration counts.
    pub address: u64,
    /// Its bytes.
    pub len: u32,
}

/// The verbs by which a target learns of its peers' one-sided operations. Providers without them are [`NoNotices`].
pub trait Notices {
    /// Asks to be told of every one-sided operation of a peer on this memory ([`Self::next_access`]), or no longer.
    fn watch_mr(&mut self, mr: &Mr, notify: bool) -> Result<(), VerbsError>;
    /// A one-sided operation on watched memory. Beyond some thousand that wait to be taken, further ones are lost, and counted.
    fn next_access(&mut self) -> Option<Accessed>;
    /// What peers did with registered memory so far.
    fn mr_usage(&self, mr: &Mr) -> Result<Usage, VerbsError>;
}

/// Marks a provider whose targets learn nothing of one-sided operations: it refuses the verbs, and has no accesses to tell.
/// Not for wrappers of other providers, which forward all of [`Notices`].
pub trait NoNotices {}

impl<P: NoNotices> Notices for P {
    fn watch_mr(&mut self, _: &Mr, _: bool) -> Result<(), VerbsError> {
        Err(VerbsError::Unsupported("this provider's targets hear nothing of one-sided operations"))
    }
    fn next_access(&mut self) -> Option<Accessed> {
        None
    }
    fn mr_usage(&self, _: &Mr) -> Result<Usage, VerbsError> {
        Err(VerbsError::Unsupported("this provider's targets do not know what is done with their memory"))
    }
}

/// What happened beside the completions (IBTA volume 1, clause 11.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A completion queue was full and a completion was lost. Its queue pairs are in their error state.
    CqOverrun(Cq),
    /// A queue pair went to its error state by itself.
    QpError(Qp),
    /// A shared receive queue has fewer receives than its limit, which is thereby used up.
    SrqLimit(Srq),
}
