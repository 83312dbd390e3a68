//! What a target may hear of what its peers do, and what went wrong with nobody's request.

use super::{Completed, Cq, Qp, Srq};

/// A one-sided operation of a peer that is done: bytes written whole, a READ answered, an atomic operation executed.
///
/// One-sided operations tell the target nothing; a registration may ask for these all the same
/// ([`super::Provider::watch_mr`]).
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
