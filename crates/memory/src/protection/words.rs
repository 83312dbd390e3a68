//! The words of [`Protection`](super::Protection): what it hands out and why it refuses.

use crate::Sge;

/// A local key is its slot and, below, 8 bits of generation.
pub(super) const SLOT_SHIFT: u32 = 8;

/// A protection domain: queue pairs of one domain use the memory of that domain only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pd(pub(crate) u32);

/// How a peer names the bytes of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// From 0: tells a peer nothing of where the memory is. The default of everything here.
    ZeroBased,
    /// From this address, such as the memory's own.
    Virtual(u64),
}

/// Registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mr {
    /// Names it in one's own work requests.
    pub lkey: u32,
    /// Names it in a peer's operations.
    pub rkey: u32,
    /// The address of its first byte, in both.
    pub address: u64,
    /// Its bytes.
    pub len: u64,
}

impl Mr {
    /// A small number that no other registration of its table has at the same time: the index of a table of one's own.
    pub const fn place(&self) -> usize {
        Self::place_of(self.lkey)
    }
    /// The same of a local key, of which nothing else is known.
    pub const fn place_of(lkey: u32) -> usize {
        (lkey >> SLOT_SHIFT) as usize
    }
}

/// Why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// No registration has this key (any more).
    #[error("no registered memory has this key")]
    UnknownKey,
    /// The key is of another protection domain.
    #[error("the key is of another protection domain")]
    ForeignDomain,
    /// The key is bound to another queue pair.
    #[error("the key is bound to another queue pair")]
    ForeignQueuePair,
    /// The key's time is over.
    #[error("the key has expired")]
    Expired,
    /// The memory was not registered for this.
    #[error("the memory is not registered for this access")]
    Rights,
    /// Not all of the bytes are in the memory.
    #[error("the bytes are not all inside the registered memory")]
    Bounds,
    /// An atomic operation needs 8 bytes at a multiple of 8, in the address that the peer gives and in real memory.
    #[error("an atomic operation needs an address that is a multiple of 8")]
    Misaligned,
}

/// Why memory could not be registered, or a window not bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The range is not inside the region (or the registration, for a window).
    #[error("{offset}+{len} is outside a region of {region} bytes")]
    Range {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes of the region.
        region: u64,
    },
    /// The last byte's address would not fit 64 bits.
    #[error("{len} bytes from address {address:#x} pass the end of 64 bits")]
    Wraps {
        /// First address asked for.
        address: u64,
        /// Bytes asked for.
        len: u64,
    },
    /// There is no such protection domain.
    #[error("there is no such protection domain")]
    NoDomain,
    /// The protection domain still has memory or queues.
    #[error("the protection domain is in use: deregister its memory and destroy its queues first")]
    DomainInUse,
    /// The table is full.
    #[error("65,536 regions are registered: deregister some")]
    Full,
    /// Remote atomic operations or writes ask for local writing, too (IBTA 10.6.3.1).
    #[error("remote write and remote atomic access need local write access as well")]
    NeedsLocalWrite,
    /// The region may only be read.
    #[error("the region is mapped for reading only: it cannot be registered for writing")]
    ReadOnly,
    /// The region is not mapped into this process, so its processor cannot do atomic operations on it.
    #[error("the region is memory of a device without a host address: it cannot be registered for atomic operations")]
    NotMapped,
    /// A window gives a peer rights; one without any is of no use.
    #[error("a window needs remote rights")]
    NoRights,
    /// The memory to bind a window to.
    #[error("the window's memory: {0}")]
    Window(#[from] Refused),
    /// No random numbers.
    #[error("the operating system's random source cannot be read")]
    Random,
}

/// Bytes that a peer may touch, for as long as [`Protection::holds`](super::Protection::holds) says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The bytes.
    pub sge: Sge,
    /// Its first byte's address, as the peer gave it.
    pub address: u64,
    pub(super) key: u32,
    pub(super) serial: u64,
}

impl Grant {
    /// The remote key that the peer showed.
    pub fn key(&self) -> u32 {
        self.key
    }
    /// `len` of its bytes from `offset`.
    ///
    /// # Panics
    /// If they are not in it: a grant is cut by our own tables.
    pub fn cut(&self, offset: u32, len: u32) -> Sge {
        assert!(offset <= self.sge.len && len <= self.sge.len - offset, "{offset}+{len} of {}", self.sge.len);
        Sge { offset: self.sge.offset + u64::from(offset), len, ..self.sge }
    }
}

/// What peers have done with one registration, through its own key and through windows to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Usage {
    /// WRITEs that came in.
    pub writes: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// READs that were answered.
    pub reads: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Atomic operations.
    pub atomics: u64,
}

/// Memory that a work request keeps.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the memory stays until it is unpinned"]
pub struct Pin(pub(super) u32);
