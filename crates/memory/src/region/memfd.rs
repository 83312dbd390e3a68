//! Shared memory behind a file descriptor (`memfd`).

use super::description::RegionDescription;
use super::map::{round_up, shared};
use super::{MemoryError, Pages, Region};
use crate::capacity::check_one;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FsWord, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::Advice;
use std::sync::Arc;

/// File system type of reserved huge pages (HUGETLBFS_MAGIC).
const HUGETLBFS: FsWord = 0x9584_58F6;

/// Registry entry of this region kind.
pub(super) const DESCRIPTION: RegionDescription = RegionDescription {
    name: "memfd",
    form: "memfd",
    backing: "anonymous shared memory (memfd_create)",
    pages: Pages::Memfd,
    privilege: None,
};

impl Region {
    /// Allocates shared memory behind a file descriptor, from which the kernel can send without a copy and which
    /// another process can map. The length is rounded up to whole pages and sealed: no holder of the descriptor can
    /// change it.
    ///
    /// # Errors
    /// If `len` is 0 or there is not enough memory.
    pub fn memfd(name: &str, len: usize) -> Result<Arc<Self>, MemoryError> {
        Self::new_memfd(name, len)?.populated(Advice::LinuxPopulateWrite)
    }

    /// Like [`Self::memfd`], without touching the pages: [`Self::populate`] can be called later.
    ///
    /// # Errors
    /// As [`Self::memfd`].
    pub fn memfd_untouched(name: &str, len: usize) -> Result<Arc<Self>, MemoryError> {
        let region = Self::new_memfd(name, len)?;
        region.advise_huge();
        Ok(Arc::new(region))
    }

    fn new_memfd(name: &str, len: usize) -> Result<Self, MemoryError> {
        let len = round_up(len, rustix::param::page_size())?;
        check_one(Pages::Memfd, len)?;
        let failed = |source| MemoryError::Map { bytes: len, source };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags).map_err(failed)?;
        rustix::fs::ftruncate(&fd, len as u64).map_err(failed)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).map_err(MemoryError::Seal)?;
        let base = shared(fd.as_fd(), len, true).map_err(failed)?;
        Ok(Self::from_mapping(base, len, Pages::Memfd, Some(fd), true))
    }

    /// Maps shared memory that another process created and passed by its file descriptor, in its current length. It
    /// must be sealed against shrinking, and must not be of reserved huge pages: otherwise the other process could kill
    /// this one by removing pages. The descriptor is closed, since the mapping does not need it, so that many regions
    /// of a peer do not exhaust the descriptors of this process.
    ///
    /// The mapping is not populated: this process must not spend time on page faults of another process's memory, nor
    /// make the kernel allocate pages that their owner has never touched.
    ///
    /// # Errors
    /// If the memory is not sealed, is of reserved huge pages, is empty, or cannot be mapped.
    pub fn from_fd(fd: OwnedFd, writable: bool) -> Result<Arc<Self>, MemoryError> {
        // Only memfds have seals, so this also refuses everything else.
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| MemoryError::NotSealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MemoryError::NotSealed);
        }
        if rustix::fs::fstatfs(&fd).map_err(MemoryError::Seal)?.f_type == HUGETLBFS {
            return Err(MemoryError::SharedHugePages);
        }
        let stat = rustix::fs::fstat(&fd).map_err(MemoryError::Seal)?;
        let len = usize::try_from(stat.st_size).ok().filter(|len| *len > 0).ok_or(MemoryError::Empty)?;
        let base = shared(fd.as_fd(), len, writable).map_err(|source| MemoryError::Map { bytes: len, source })?;
        Ok(Arc::new(Self::from_mapping(base, len, Pages::Memfd, None, writable)))
    }

    /// Prevents holders of the file descriptor of a [`Self::memfd`] from creating writable mappings (if `read_only`)
    /// and from changing its seals. Existing mappings, this one included, are not affected.
    ///
    /// # Errors
    /// [`MemoryError::Seal`] if the region has no file descriptor or cannot be sealed.
    pub fn seal(&self, read_only: bool) -> Result<(), MemoryError> {
        let fd = self.fd().ok_or(MemoryError::Seal(Errno::INVAL))?;
        let current = rustix::fs::fcntl_get_seals(fd).map_err(MemoryError::Seal)?;
        let mut required = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        if read_only {
            required |= SealFlags::FUTURE_WRITE;
        }
        if current.contains(required) {
            return Ok(());
        }
        rustix::fs::fcntl_add_seals(fd, required).map_err(MemoryError::Seal)
    }
}
