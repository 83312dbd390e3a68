//! Handles and errors of [`Protection`](super::Protection).

use crate::Sge;

/// Bits of the generation in a local key, below its slot number.
pub(super) const SLOT_SHIFT: u32 = 8;

/// A protection domain: queue pairs of a domain can access only memory of that domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pd(pub(crate) u32);

/// Virtual addresses of registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// Addresses begin at 0, which reveals nothing about the memory's location. The default throughout this project.
    ZeroBased,
    /// Addresses begin at this value, such as the memory's own address.
    Virtual(u64),
}

/// A memory registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mr {
    /// Local key (L_Key), for local work requests.
    pub lkey: u32,
    /// Remote key (R_Key), for a peer's operations.
    pub rkey: u32,
    /// Virtual address of the first byte, with either key.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Mr {
    /// Returns a small number that is unique among the live registrations of the table, to index another table.
    pub const fn index(&self) -> usize {
        Self::index_of(self.lkey)
    }
    /// Like [`Self::index`], for a local key.
    pub const fn index_of(lkey: u32) -> usize {
        (lkey >> SLOT_SHIFT) as usize
    }
}

/// Reason for which an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AccessError {
    /// No registration or window has this key.
    #[error("no registered memory has this key")]
    UnknownKey,
    /// The key is of another protection domain.
    #[error("the key is of another protection domain")]
    WrongDomain,
    /// The key is bound to another queue pair.
    #[error("the key is bound to another queue pair")]
    WrongQueuePair,
    /// The key has expired.
    #[error("the key has expired")]
    Expired,
    /// The memory is not registered for this access.
    #[error("the memory is not registered for this access")]
    Rights,
    /// Not all of the bytes are inside the registered memory.
    #[error("the range is not inside the registered memory")]
    Bounds,
    /// The address of an atomic operation, virtual or real, is not a multiple of 8.
    #[error("an atomic operation needs an address that is a multiple of 8")]
    Misaligned,
}

/// Reason for which memory could not be registered or a window bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The range is not inside the region (or the registration, for a window).
    #[error("{offset}+{len} is outside a region of {region} bytes")]
    Range {
        /// Requested byte offset.
        offset: u64,
        /// Requested length in bytes.
        len: u64,
        /// Length of the region in bytes.
        region: u64,
    },
    /// The address of the last byte exceeds 64 bits.
    #[error("{len} bytes from address {address:#x} exceed the 64-bit address space")]
    Wraps {
        /// Requested address.
        address: u64,
        /// Requested length in bytes.
        len: u64,
    },
    /// The protection domain does not exist.
    #[error("there is no such protection domain")]
    NoDomain,
    /// The protection domain still has memory or queues.
    #[error("the protection domain is in use: deregister its memory and destroy its queues first")]
    DomainInUse,
    /// The table is full.
    #[error("65,536 regions are registered: deregister some")]
    Full,
    /// Remote write and remote atomic access also require local write access (IBTA 10.6.3.1).
    #[error("remote write and remote atomic access need local write access as well")]
    NeedsLocalWrite,
    /// The region is read-only.
    #[error("the region is mapped for reading only: it cannot be registered for writing")]
    ReadOnly,
    /// The region is not mapped into this process, so the processor cannot perform atomic operations on it.
    #[error("the region is memory of a device without a host address: it cannot be registered for atomic operations")]
    NotMapped,
    /// A window without remote rights was requested.
    #[error("a memory window needs remote access rights")]
    NoRights,
    /// The key of the window's memory is refused.
    #[error("the window's memory: {0}")]
    Window(#[from] AccessError),
    /// The random source of the operating system failed.
    #[error("the operating system's random source cannot be read")]
    Random,
}

/// Bytes that a peer may access while [`Protection::is_valid`](super::Protection::is_valid) returns `true`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The byte range.
    pub sge: Sge,
    /// Virtual address of the first byte, as the peer sent it.
    pub address: u64,
    pub(super) key: u32,
    pub(super) serial: u64,
}

impl Grant {
    /// Returns the remote key that the peer sent.
    pub fn key(&self) -> u32 {
        self.key
    }
    /// Returns the part of `len` bytes from `offset`.
    ///
    /// # Panics
    /// If it is not inside the grant. Offsets come from this process, never from a peer.
    pub fn cut(&self, offset: u32, len: u32) -> Sge {
        assert!(offset <= self.sge.len && len <= self.sge.len - offset, "{offset}+{len} of {}", self.sge.len);
        Sge { offset: self.sge.offset + u64::from(offset), len, ..self.sge }
    }
}

/// Counters of the peers' operations on a registration, through its key and through windows to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RegistrationCounters {
    /// Number of WRITEs received.
    pub writes: u64,
    /// Bytes of these WRITEs.
    pub bytes_in: u64,
    /// Number of READs answered.
    pub reads: u64,
    /// Bytes of these READs.
    pub bytes_out: u64,
    /// Number of atomic operations.
    pub atomics: u64,
}

/// Handle that keeps the memory of a registration alive for a work request.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the memory stays until it is unpinned"]
pub struct Pin(pub(super) u32);
