//! Mapped files.

use super::description::RegionDescription;
use super::map::shared;
use super::{MemoryError, Pages, Region};
use rustix::fd::AsFd;
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

/// The kind's entry in the registry.
pub(super) const DESCRIPTION: RegionDescription = RegionDescription {
    name: "file",
    form: "file=PATH",
    backing: "a mapped file: what is written is in the file",
    pages: Pages::File,
    privilege: None,
};

impl Region {
    /// The first `len` bytes of a file, which is made, or extended if it is shorter. Pages come from the disk when they
    /// are touched and go back to it when the kernel likes; nothing here waits for that.
    ///
    /// Room on the disk is taken at once where the file system can, because a disk that is full would otherwise kill
    /// the process (SIGBUS) at the first write to a hole. The file is locked (`flock`): exclusively if writable, else
    /// shared; so two processes of this project cannot have it by mistake. The lock binds only those who ask for
    /// it: another process that truncates the file kills this one at the next touch of a page that is gone. Where that
    /// must not be, use [`Self::memfd`], whose length is sealed.
    pub fn file(path: &Path, len: usize, writable: bool) -> Result<Arc<Self>, MemoryError> {
        let failed = |source| MemoryError::File { path: path.into(), source };
        if len == 0 {
            return Err(MemoryError::Empty);
        }
        // NONBLOCK: opening a pipe must not wait for its other end; regular files do not care.
        let access = if writable { OFlags::RDWR | OFlags::CREATE } else { OFlags::RDONLY };
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        let stat = rustix::fs::fstat(&fd).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(MemoryError::NotAFile(path.into()));
        }
        let lock =
            if writable { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
        rustix::fs::flock(&fd, lock).map_err(|source| match source {
            Errno::AGAIN => MemoryError::InUse(path.into()),
            other => failed(other),
        })?;
        // Once more: before the lock, another process may have made it shorter.
        let found = rustix::fs::fstat(&fd).map_err(failed)?.st_size as u64;
        if found < len as u64 {
            if !writable {
                return Err(MemoryError::TooShort { found, needed: len as u64 });
            }
            rustix::fs::ftruncate(&fd, len as u64).map_err(failed)?;
        }
        if writable {
            match rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len as u64) {
                Ok(()) | Err(Errno::OPNOTSUPP) => {}
                Err(source) => return Err(failed(source)),
            }
        }
        let base = shared(fd.as_fd(), len, writable).map_err(|source| MemoryError::Map { bytes: len, source })?;
        Ok(Arc::new(Self::over(base, len, Pages::File, Some(fd), writable)))
    }
}
