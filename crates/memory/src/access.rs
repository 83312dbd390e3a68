//! Access rights to memory.

use std::fmt;
use std::ops::BitOr;

/// Access rights to registered memory (IBTA volume 1, clause 10.6.3). Local read is always allowed; all other rights
/// must be requested.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access(u8);

impl Access {
    /// Local read only.
    pub const NONE: Self = Self(0);
    /// Receives, READ responses and atomic results may be written to the memory.
    pub const LOCAL_WRITE: Self = Self(1);
    /// A peer that has the key may READ the memory.
    pub const REMOTE_READ: Self = Self(2);
    /// A peer that has the key may WRITE the memory.
    pub const REMOTE_WRITE: Self = Self(4);
    /// A peer that has the key may perform atomic operations on the memory.
    pub const REMOTE_ATOMIC: Self = Self(8);
    /// A peer that has the key may invalidate it by a SEND with invalidate. Without this right only the keys of windows
    /// can be invalidated, so that one peer cannot invalidate a key that several peers share.
    pub const REMOTE_INVALIDATE: Self = Self(16);
    /// All rights.
    pub const ALL: Self = Self(31);

    /// Returns `true` if all rights of `needed` are granted.
    pub const fn allows(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }
    /// Returns `true` if a peer may access the memory.
    pub const fn is_remote(self) -> bool {
        self.0 & (Self::REMOTE_READ.0 | Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0) != 0
    }
    /// Returns `true` if a peer may modify the memory.
    pub const fn is_remote_change(self) -> bool {
        self.0 & (Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0) != 0
    }
    /// Returns the intersection of both rights.
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
    /// Returns the rights as bits, to send them to a peer.
    pub const fn bits(self) -> u8 {
        self.0
    }
    /// Returns the rights with these bits. Unknown bits are dropped.
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
