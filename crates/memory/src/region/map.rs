//! Mappings: what the kinds of regions that this process maps have in common.

use super::{MemoryError, Pages, Region};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes that are touched in one go, and threads that do so at most.
const PIECE: usize = 32 << 20;
const MOST_THREADS: usize = 8;

impl Region {
    /// Touches every page of its own writable memory, in pieces by as many threads as there are processors (up to 8): the
    /// kernel clears each page, which takes a second for 0.2 to 4 GiB. Returns early once `stop` is set.
    pub fn populate(&self, stop: &AtomicBool) -> Result<(), MemoryError> {
        let pieces = self.len.div_ceil(PIECE);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS).min(pieces);
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

    pub(super) fn over(base: NonNull<u8>, len: usize, pages: Pages, fd: Option<OwnedFd>, writable: bool) -> Self {
        Self { base: Some(base), len, pages, writable, fd, device: None }
    }

    /// Has every page in memory, with its entry in the page table.
    pub(super) fn populated(self, how: Advice) -> Result<Arc<Self>, MemoryError> {
        self.advise_huge();
        self.advise(0, self.len, how)?;
        Ok(Arc::new(self))
    }

    /// Asks for huge pages. Only a hint: without transparent huge pages the region works on small ones.
    pub(super) fn advise_huge(&self) {
        if self.pages.take_huge_pages() {
            let _ = self.advise(0, self.len, Advice::LinuxHugepage);
        }
    }

    fn advise(&self, offset: usize, len: usize, how: Advice) -> Result<(), MemoryError> {
        let address = self.address(offset, len).cast();
        // SAFETY: the range is within the mapping that `self` owns; no advice that is given here changes its contents.
        unsafe { rustix::mm::madvise(address, len, how) }.map_err(|source| MemoryError::Map { bytes: self.len, source })
    }
}

/// `len` rounded up to whole units.
pub(super) fn whole(len: usize, unit: usize) -> Result<usize, MemoryError> {
    if len == 0 {
        return Err(MemoryError::Empty);
    }
    // Twice the unit must fit, too: `Region::host` maps one unit more.
    let fits = len.checked_add(2 * unit).is_some();
    fits.then(|| len.next_multiple_of(unit)).ok_or(MemoryError::Map { bytes: len, source: Errno::NOMEM })
}

pub(super) fn anonymous(len: usize, flags: MapFlags) -> Result<NonNull<u8>, Errno> {
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice overlaps nothing of ours.
    let base =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}

pub(super) fn shared(fd: BorrowedFd<'_>, len: usize, writable: bool) -> Result<NonNull<u8>, Errno> {
    let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing of ours.
    let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, fd, 0) }?;
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}
