//! Shared memory of the kernel's, behind a file descriptor.

use super::description::RegionDescription;
use super::map::{shared, whole};
use super::{MemoryError, Pages, Region};
use crate::capacity::check_one;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FsWord, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::Advice;
use std::sync::Arc;

/// The file system of reserved huge pages (HUGETLBFS_MAGIC).
const HUGETLBFS: FsWord = 0x9584_58F6;

/// The kind's entry in the registry.
pub(super) const DESCRIPTION: RegionDescription = RegionDescription {
    name: "memfd",
    form: "memfd",
    backing: "shared memory of the kernel",
    pages: Pages::Memfd,
    privilege: None,
};

impl Region {
    /// Shared memory behind a file descriptor: what the kernel can send from without a copy, and another process can
    /// map. Its length is rounded up to whole pages and sealed: no holder of the descriptor can change it.
    pub fn memfd(name: &str, len: usize) -> Result<Arc<Self>, MemoryError> {
        let len = whole(len, rustix::param::page_size())?;
        check_one(Pages::Memfd, len)?;
        let failed = |source| MemoryError::Map { bytes: len, source };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags).map_err(failed)?;
        rustix::fs::ftruncate(&fd, len as u64).map_err(failed)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).map_err(MemoryError::Seal)?;
        let base = shared(fd.as_fd(), len, true).map_err(failed)?;
        Self::over(base, len, Pages::Memfd, Some(fd), true).populated(Advice::LinuxPopulateWrite)
    }

    /// Shared memory that another process made and handed over by its file descriptor, as long as it is now. It must be
    /// sealed against shrinking, and not of reserved huge pages: otherwise its maker could kill this process by taking pages
    /// away. The descriptor is closed (the mapping needs none), so that many regions of a peer do not use up those that a
    /// process may have.
    ///
    /// The mapping is not populated: another process's memory must not cost this one the time of its page faults, nor make
    /// the kernel allocate pages that its owner never touched.
    pub fn from_fd(fd: OwnedFd, writable: bool) -> Result<Arc<Self>, MemoryError> {
        // Only memfds have seals: this refuses everything else, too.
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
        Ok(Arc::new(Self::over(base, len, Pages::Memfd, None, writable)))
    }

    /// Prevents holders of the file descriptor of a [`Self::memfd`] from writing to it from now on (if `read_only`), and
    /// from changing its seals. This mapping, and those that others have already, stay as they are.
    pub fn seal(&self, read_only: bool) -> Result<(), MemoryError> {
        let fd = self.fd().ok_or(MemoryError::Seal(Errno::INVAL))?;
        let has = rustix::fs::fcntl_get_seals(fd).map_err(MemoryError::Seal)?;
        let mut wanted = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        if read_only {
            wanted |= SealFlags::FUTURE_WRITE;
        }
        if has.contains(wanted) {
            return Ok(());
        }
        rustix::fs::fcntl_add_seals(fd, wanted).map_err(MemoryError::Seal)
    }
}
