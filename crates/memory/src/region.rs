//! One mapping of host memory.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ptr::NonNull;
use std::sync::Arc;

const HUGE_PAGE: usize = 2 << 20;

/// What backs a region's pages, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Reserved 2 MiB pages (`vm.nr_hugepages`).
    Huge,
    /// Ordinary memory that the kernel was asked to back with transparent huge pages.
    Transparent,
    /// Shared memory behind a file descriptor.
    Memfd,
}

/// Why memory could not be had or named.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The kernel refused the mapping.
    #[error("cannot map {bytes} bytes of memory: {source}; ask for a smaller pool, or free memory")]
    Map {
        /// Bytes asked for.
        bytes: usize,
        /// The kernel's reason.
        source: rustix::io::Errno,
    },
    /// A pool without slots.
    #[error("a pool needs slots and slot bytes, found {slots} slots of {slot_bytes} bytes")]
    EmptyPool {
        /// Slots asked for.
        slots: u32,
        /// Bytes of a slot asked for.
        slot_bytes: u32,
    },
}

/// Pre-faulted host memory at a fixed address.
///
/// Its bytes may be written by the kernel or a device at any time while receives or reads point into it,
/// so it hands out no references: only raw copies, and a pointer for the parties that register it. A copy
/// that races with such a write may see either byte, never anything outside the region.
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    pages: Pages,
    fd: Option<OwnedFd>,
}

// SAFETY: a Region is an address range that lives until drop; its methods copy bytes through raw pointers
// and never form references, so sharing or sending it cannot create aliased Rust references.
unsafe impl Send for Region {}
// SAFETY: as above; concurrent raw copies may tear, which the type documents.
unsafe impl Sync for Region {}

impl Region {
    /// Memory private to this process: reserved huge pages where there are enough, else transparent ones.
    /// Every page is touched before this returns: the first touch of a page costs more than a whole shot.
    pub fn host(len: usize) -> Result<Arc<Self>, MemoryError> {
        let len = len.next_multiple_of(HUGE_PAGE);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // Without NORESERVE's accounting a reserved-page mapping fails at once where the pool is too
        // small, rather than by SIGBUS at the first touch.
        if let Ok(base) = map_anonymous(len, MapFlags::PRIVATE | MapFlags::HUGETLB) {
            return Self { base, len, pages: Pages::Huge, fd: None }.prefaulted();
        }
        // Map 2 MiB more than asked, so that the region can begin on a huge-page boundary.
        let raw = map_anonymous(len + HUGE_PAGE, flags).map_err(|source| MemoryError::Map { bytes: len, source })?;
        let head = raw.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: `head` is below HUGE_PAGE, so the three parts tile the mapping just made, and nothing
        // else knows of the two that are given back.
        let base = unsafe {
            let base = raw.as_ptr().add(head);
            if head > 0 {
                let _ = rustix::mm::munmap(raw.as_ptr().cast(), head);
            }
            let _ = rustix::mm::munmap(base.add(len).cast(), HUGE_PAGE - head);
            NonNull::new_unchecked(base)
        };
        Self { base, len, pages: Pages::Transparent, fd: None }.prefaulted()
    }

    /// Shared memory behind a file descriptor: what the kernel can send from without a copy, and another
    /// process can map.
    pub fn memfd(name: &str, len: usize) -> Result<Arc<Self>, MemoryError> {
        let len = len.next_multiple_of(HUGE_PAGE);
        let failed = |source| MemoryError::Map { bytes: len, source };
        let fd = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).map_err(failed)?;
        rustix::fs::ftruncate(&fd, len as u64).map_err(failed)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing of ours.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd.as_fd(),
                0,
            )
        }
        .map_err(failed)?;
        let base = NonNull::new(base.cast()).ok_or_else(|| failed(rustix::io::Errno::NOMEM))?;
        Self { base, len, pages: Pages::Memfd, fd: Some(fd) }.prefaulted()
    }

    fn prefaulted(self) -> Result<Arc<Self>, MemoryError> {
        let address = self.base.as_ptr().cast();
        // SAFETY: the range is the mapping that `self` owns; neither advice changes its contents.
        unsafe {
            if self.pages != Pages::Huge {
                // Only a hint: without transparent huge pages the region works on small ones.
                let _ = rustix::mm::madvise(address, self.len, Advice::LinuxHugepage);
            }
            rustix::mm::madvise(address, self.len, Advice::LinuxPopulateWrite)
        }
        .map_err(|source| MemoryError::Map { bytes: self.len, source })?;
        Ok(Arc::new(self))
    }

    /// Bytes of the region.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Never: a region has at least one page.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// What backs it.
    pub fn pages(&self) -> Pages {
        self.pages
    }
    /// Its file descriptor, if it is shared memory.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// The address of `offset`, for a party that registers or fills the memory; `len` bytes from there
    /// are inside the region.
    ///
    /// # Panics
    /// If they are not: offsets come from our own tables, never from a peer.
    pub fn address(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "{offset}+{len} is outside a region of {} bytes",
            self.len
        );
        // SAFETY: the assertion keeps the pointer inside the mapping (or at its end).
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Copies bytes out. Panics outside the region, as [`Self::address`].
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        // SAFETY: `address` checked the source range; the target is a live exclusive slice, which cannot
        // overlap the mapping because no reference into the mapping exists.
        unsafe { std::ptr::copy_nonoverlapping(self.address(offset, to.len()), to.as_mut_ptr(), to.len()) }
    }

    /// Copies bytes in. Panics outside the region, as [`Self::address`].
    pub fn write(&self, offset: usize, from: &[u8]) {
        // SAFETY: as for `read`, with the roles exchanged.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.address(offset, from.len()), from.len()) }
    }

    /// Writes zeros. Panics outside the region, as [`Self::address`].
    pub fn zero(&self, offset: usize, len: usize) {
        // SAFETY: `address` checked the range.
        unsafe { std::ptr::write_bytes(self.address(offset, len), 0, len) }
    }

    /// Copies from another region (or this one; the ranges may overlap). Panics outside either.
    pub fn copy_from(&self, offset: usize, source: &Region, source_offset: usize, len: usize) {
        // SAFETY: both ranges were checked; `copy` allows overlap.
        unsafe { std::ptr::copy(source.address(source_offset, len), self.address(offset, len), len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and the last owner is going: registered parties hold an Arc of it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} bytes, {:?})", self.len, self.pages)
    }
}

fn map_anonymous(len: usize, flags: MapFlags) -> Result<NonNull<u8>, rustix::io::Errno> {
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice overlaps nothing of ours.
    let base =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
    NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_move_bytes_between_kinds_of_regions() {
        let (host, shared) = (Region::host(4096).unwrap(), Region::memfd("test", 4096).unwrap());
        host.write(10, b"shot");
        shared.copy_from(100, &host, 10, 4);
        let mut out = [0; 6];
        shared.read(99, &mut out);
        assert_eq!(&out, b"\0shot\0");
        shared.zero(100, 2);
        shared.read(99, &mut out);
        assert_eq!(&out, b"\0\0\0ot\0");
    }

    #[test]
    #[should_panic(expected = "outside a region")]
    fn an_offset_that_wraps_is_refused() {
        Region::host(4096).unwrap().zero(usize::MAX, 2);
    }
}
