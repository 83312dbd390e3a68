//! Mapping helpers shared by the region kinds that this process maps.

use super::{MemoryError, Pages, Region};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Length in bytes of the pieces in which pages are touched.
const PIECE: usize = 32 << 20;
/// Maximum number of threads that touch pages.
const MAX_THREADS: usize = 8;

impl Region {
    /// Touches every page of writable memory, in pieces, with one thread per processor (up to 8). The kernel
    /// clears each page, which takes one second for 0.2 to 4 GiB. Returns early once `stop` is set, and at once if the
    /// memory is not mapped into this process.
    ///
    /// # Errors
    /// If the kernel cannot provide the pages.
    pub fn populate(&self, stop: &AtomicBool) -> Result<(), MemoryError> {
        if !self.is_mapped() {
            return Ok(());
        }
        let pieces = self.len.div_ceil(PIECE);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS).min(pieces);
        let next = AtomicUsize::new(0);
        let touch = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed).saturating_mul(PIECE);
                if at >= self.len || stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.advise(at, PIECE.min(self.len - at), Advice::LinuxPopulateWrite)?;
            }
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(touch)).collect();
            let mine = touch();
            others.into_iter().filter_map(|other| other.join().ok()).fold(mine, Result::and)
        })
    }

    pub(super) fn from_mapping(
        base: NonNull<u8>,
        len: usize,
        pages: Pages,
        fd: Option<OwnedFd>,
        writable: bool,
    ) -> Self {
        Self { base: Some(base), len, pages, writable, fd, device: None }
    }

    /// Brings every page into memory and into the page table.
    pub(super) fn populated(self, how: Advice) -> Result<Arc<Self>, MemoryError> {
        self.advise_huge();
        self.advise(0, self.len, how)?;
        Ok(Arc::new(self))
    }

    /// Requests huge pages. This is only a hint: without transparent huge pages the region has small ones.
    pub(super) fn advise_huge(&self) {
        if self.pages.supports_huge_pages() {
            let _ = self.advise(0, self.len, Advice::LinuxHugepage);
        }
    }

    fn advise(&self, offset: usize, len: usize, how: Advice) -> Result<(), MemoryError> {
        let address = self.address(offset, len).cast();
        // SAFETY: the range is within the mapping that `self` owns; no advice used here changes its contents.
        unsafe { rustix::mm::madvise(address, len, how) }.map_err(|source| MemoryError::Map { bytes: self.len, source })
    }
}

/// Rounds `len` up to whole units.
pub(super) fn round_up(len: usize, unit: usize) -> Result<usize, MemoryError> {
    if len == 0 {
        return Err(MemoryError::Empty);
    }
    // Two units must fit, since `Region::host` maps one more.
    let fits = len.checked_add(2 * unit).is_some();
    fits.then(|| len.next_multiple_of(unit)).ok_or(MemoryError::Map { bytes: len, source: Errno::NOMEM })
}

pub(super) fn anonymous(len: usize, flags: MapFlags) -> Result<NonNull<u8>, Errno> {
    // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps no existing mapping.
    let base =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}

pub(super) fn shared(fd: BorrowedFd<'_>, len: usize, writable: bool) -> Result<NonNull<u8>, Errno> {
    shared_from(fd, 0, len, writable)
}

fn shared_from(fd: BorrowedFd<'_>, offset: u64, len: usize, writable: bool) -> Result<NonNull<u8>, Errno> {
    let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    // SAFETY: a new mapping at an address that the kernel chooses overlaps no existing mapping.
    let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, fd, offset) }?;
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}

/// A shared mapping of device memory, which its owner accesses.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: only an address range; the unsafe code that accesses it ensures that several threads may.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file descriptor from `offset`, which is a multiple of the page size.
    pub(super) fn new(fd: BorrowedFd<'_>, offset: u64, len: usize, writable: bool) -> Result<Self, Errno> {
        Ok(Self { base: shared_from(fd, offset, len, writable)?, len })
    }
    /// Returns the address of a byte that is inside the mapping.
    pub(super) fn address(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len, "{offset} is outside a mapping of {} bytes", self.len);
        // SAFETY: inside the mapping, or at its end.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing has its address any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
