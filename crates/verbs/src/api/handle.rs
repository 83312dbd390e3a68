//! Handles of the objects of a provider.

/// A completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cq(pub(crate) u32);

/// A shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Srq(pub(crate) u32);

/// A queue pair, by its 24-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Qp(pub u32);
