//! Names of what a provider has made.

/// A completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cq(pub(crate) u32);

/// A shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Srq(pub(crate) u32);

/// A memory window: peers address its bytes from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// What a peer must show.
    pub rkey: u32,
    /// Its bytes.
    pub len: u64,
}

/// A queue pair, by its 24-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Qp(pub u32);
