//! Shared memory: atomic words of the window, and mappings of a driver's memory. Raw sockets.

pub(super) mod packet;

use rustix::fd::BorrowedFd;
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use shotline_memory::{DeviceMemory, MemoryError, Region};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Pages of all kinds are multiples of this.
pub(super) const PAGE: u64 = 4096;

/// Shared memory that is accessed only as words, each always with the same size.
#[derive(Debug)]
pub(super) struct Words(Arc<Region>);

impl Words {
    /// Allocates memory of zeros.
    pub fn new(name: &str, bytes: usize) -> Result<Self, MemoryError> {
        Region::memfd(name, bytes).map(Self)
    }

    /// Maps a file, which is created if it is missing, and fills it with zeros.
    pub fn file(path: &Path, bytes: usize) -> Result<Self, MemoryError> {
        let region = Region::file(path, bytes, true)?;
        region.zero(0, bytes);
        Ok(Self(region))
    }

    /// Returns the descriptor of the memory.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd().expect("the memory is a memfd or a file")
    }

    /// Returns the word of 4 bytes at an offset.
    ///
    /// # Panics
    /// If it is not inside the memory, or the offset is not a multiple of 4.
    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        let address = self.0.address(offset, 4).cast::<u32>();
        assert!(address.is_aligned(), "a word at {offset:#x}");
        // SAFETY: 4 aligned bytes inside a writable mapping that lives as long as `self`. Another process may change them,
        // and this one accesses them only here.
        unsafe { AtomicU32::from_ptr(address) }
    }

    /// Returns the word of 8 bytes at an offset.
    ///
    /// # Panics
    /// If it is not inside the memory, or the offset is not a multiple of 8.
    pub fn u64(&self, offset: usize) -> &AtomicU64 {
        let address = self.0.address(offset, 8).cast::<u64>();
        assert!(address.is_aligned(), "a word at {offset:#x}");
        // SAFETY: as for `u32`, with 8 bytes.
        unsafe { AtomicU64::from_ptr(address) }
    }
}

/// A part of a file of another process, mapped here.
struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping may be accessed by any thread, and lives until drop.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Region` accesses it by atomic words.
unsafe impl Sync for Mapping {}

// SAFETY: the copies access nothing but the mapping and the given range. The address is that of a page, and whole pages
// are mapped while `self` is alive. An access of a page that the file has lost ends this process by a signal: no memory
// of this process is accessed instead.
unsafe impl DeviceMemory for Mapping {
    fn len(&self) -> usize {
        self.length
    }

    unsafe fn copy_out(&self, offset: usize, to: *mut u8, len: usize) {
        // SAFETY: the caller guarantees both ranges.
        unsafe { std::ptr::copy(self.base.as_ptr().add(offset), to, len) }
    }

    unsafe fn copy_in(&self, offset: usize, from: *const u8, len: usize) {
        // SAFETY: the caller guarantees both ranges.
        unsafe { std::ptr::copy(from, self.base.as_ptr().add(offset), len) }
    }

    fn host_address(&self) -> Option<NonNull<u8>> {
        Some(self.base)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `map`, and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// Maps a part of a file: shared memory, or a file of huge pages.
///
/// # Errors
/// `INVAL` if it is not a part of a file, or does not begin at a page, and those of `mmap`.
pub(super) fn map(fd: BorrowedFd<'_>, offset: u64, length: u64) -> Result<Arc<Region>, Errno> {
    let stat = rustix::fs::fstat(fd)?;
    let end = offset.checked_add(length).ok_or(Errno::INVAL)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file || end > stat.st_size as u64 || length == 0 || !offset.is_multiple_of(PAGE) {
        return Err(Errno::INVAL);
    }
    let length = usize::try_from(length).map_err(|_| Errno::NOMEM)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses overlaps no other.
    let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, fd, offset) }?;
    let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
    Ok(Region::device(Arc::new(Mapping { base, length })))
}
