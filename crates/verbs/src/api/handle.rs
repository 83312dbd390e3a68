//! Handles of the objects of a provider.

/// Handle of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cq(pub(crate) u32);

/// Handle of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Srq(pub(crate) u32);

/// Handle of a queue pair: its 24-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Qp(pub u32);
