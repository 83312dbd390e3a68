//! Rights to memory.

use std::fmt;
use std::ops::BitOr;

/// What may be done to registered memory (IBTA volume 1, clause 10.6.3). Local reading is always allowed; everything
/// else has to be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access(u8);

impl Access {
    /// Nothing but local reading.
    pub const NONE: Self = Self(0);
    /// Receives, READ responses and atomic results may be put here.
    pub const LOCAL_WRITE: Self = Self(1);
    /// A peer that has the key may READ it.
    pub const REMOTE_READ: Self = Self(2);
    /// A peer that has the key may WRITE it.
    pub const REMOTE_WRITE: Self = Self(4);
    /// A peer that has the key may do atomic operations on it.
    pub const REMOTE_ATOMIC: Self = Self(8);
    /// A peer that has the key may end it by a SEND with invalidate. Without it, only windows end so: a key that
    /// several peers share is not one peer's to end.
    pub const REMOTE_INVALIDATE: Self = Self(16);
    /// Everything.
    pub const ALL: Self = Self(31);

    /// Whether all of `needed` is allowed.
    pub const fn allows(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }
    /// Whether a peer may do anything at all.
    pub const fn is_remote(self) -> bool {
        self.0 & (Self::REMOTE_READ.0 | Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0) != 0
    }
    /// Whether a peer may change the memory.
    pub const fn is_remote_change(self) -> bool {
        self.0 & (Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0) != 0
    }
    /// What both allow.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
    /// The rights as bits, to tell them to a peer.
    pub const fn bits(self) -> u8 {
        self.0
    }
    /// The rights of such bits; those that are unknown are left out.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }
}

impl BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::LOCAL_WRITE, "local write"),
            (Self::REMOTE_READ, "remote read"),
            (Self::REMOTE_WRITE, "remote write"),
            (Self::REMOTE_ATOMIC, "remote atomic"),
            (Self::REMOTE_INVALIDATE, "remote invalidate"),
        ];
        let mut rest = names.iter().filter(|(right, _)| self.allows(*right)).map(|(_, name)| *name);
        f.write_str(rest.next().unwrap_or("local read only"))?;
        rest.try_for_each(|name| write!(f, ", {name}"))
    }
}
