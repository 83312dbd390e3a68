//! The shared memory of one end: words that the two ends exchange, and a ring of bytes.

use rustix::fd::{BorrowedFd, OwnedFd};
use shotline_memory::{MemoryError, Region};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Size of the ring in bytes. It is more than the private cache of a processor: a line that is still in the reader's
/// private cache takes the writer four times as long to write as one that the reader has evicted to a common cache.
pub(super) const RING_BYTES: u64 = 4 << 20;

/// Identifies the memory as that of this carrier, and its version.
const MAGIC: u64 = u64::from_be_bytes(*b"shtlCar1");

// Offsets in bytes. Each word has two cache lines of its own, because processors fetch pairs of them.
const TAIL: usize = 128;
const HEAD: usize = 256;
const WAKE: usize = 384;
const WORDS_BYTES: usize = 4096;
const TOTAL_BYTES: usize = WORDS_BYTES + RING_BYTES as usize;

/// The shared memory of one end.
#[derive(Debug)]
pub(super) struct SharedRing {
    base: NonNull<u8>,
    region: Arc<Region>,
}

// SAFETY: the pointer is into the region, which may be shared and sent; the words are accessed by atomic operations and
// the ring's bytes by copies of the region.
unsafe impl Send for SharedRing {}

impl SharedRing {
    /// Allocates the memory of this end.
    pub(super) fn new() -> Result<Self, MemoryError> {
        let region = Region::memfd("shotline-carrier", TOTAL_BYTES)?;
        // From now on it cannot be mapped for writing; our own mapping exists already.
        region.seal(true)?;
        let ring = Self::over(region);
        ring.long(0).store(MAGIC, Ordering::Release);
        Ok(ring)
    }

    /// Maps the peer's memory. Returns `None` if it is not that of this carrier.
    pub(super) fn of_peer(fd: OwnedFd) -> Option<Self> {
        let region = Region::from_fd(fd, false).ok()?;
        let ring = (region.len() == TOTAL_BYTES).then(|| Self::over(region))?;
        (ring.long(0).load(Ordering::Relaxed) == MAGIC).then_some(ring)
    }

    fn over(region: Arc<Region>) -> Self {
        let base = NonNull::new(region.address(0, TOTAL_BYTES)).expect("a mapping is not at 0");
        Self { base, region }
    }

    /// Returns the file descriptor, to be passed to the peer.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.region.fd().expect("the memory of this end is a memfd")
    }

    #[inline]
    fn long(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the callers' offsets are constants, in bounds and aligned; the mapping lives as long as `self`. The
        // peer's words are only loaded, which read-only memory allows (`std::sync::atomic`).
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Returns the position up to which the owner has written its ring.
    #[inline]
    pub(super) fn tail(&self) -> &AtomicU64 {
        self.long(TAIL)
    }
    /// Returns the position up to which the owner has read the other ring.
    #[inline]
    pub(super) fn head(&self) -> &AtomicU64 {
        self.long(HEAD)
    }
    /// Returns the owner's request to be woken.
    #[inline]
    pub(super) fn wake(&self) -> &AtomicU32 {
        // SAFETY: as for `long`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(WAKE).cast()) }
    }

    /// Writes bytes into the ring from this position on, wrapping around at its end.
    #[inline]
    pub(super) fn write(&self, position: u64, bytes: &[u8]) {
        let offset = (position & (RING_BYTES - 1)) as usize;
        let (first, rest) = bytes.split_at(bytes.len().min(RING_BYTES as usize - offset));
        self.region.write(WORDS_BYTES + offset, first);
        if !rest.is_empty() {
            self.region.write(WORDS_BYTES, rest);
        }
    }
    /// Hints that bytes from this position on will be read soon, up to the end of the ring.
    #[inline]
    pub(super) fn prefetch(&self, position: u64, len: u64) {
        let offset = (position & (RING_BYTES - 1)) as usize;
        self.region.prefetch(WORDS_BYTES + offset, len as usize);
    }
    /// Reads bytes of the ring from this position on.
    #[inline]
    pub(super) fn read(&self, position: u64, bytes: &mut [u8]) {
        let offset = (position & (RING_BYTES - 1)) as usize;
        let (first, rest) = bytes.split_at_mut(bytes.len().min(RING_BYTES as usize - offset));
        self.region.read(WORDS_BYTES + offset, first);
        if !rest.is_empty() {
            self.region.read(WORDS_BYTES, rest);
        }
    }
}
