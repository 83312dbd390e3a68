//! Mapped files.

use super::description::RegionDescription;
use super::map::shared;
use super::{MemoryError, Pages, Region};
use rustix::fd::AsFd;
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

/// Registry entry of this region kind.
pub(super) const DESCRIPTION: RegionDescription = RegionDescription {
    name: "file",
    form: "file=PATH",
    backing: "a mapped file: writes go to the file",
    pages: Pages::File,
    privilege: None,
};

impl Region {
    /// Maps the first `len` bytes of a file. A writable file is created if needed, and extended if it is shorter. Pages
    /// are read from the disk on first access and written back when the kernel decides to; nothing here waits for that.
    ///
    /// Disk space is allocated at once if the file system supports it, because on a full disk the first write to a hole
    /// would kill the process (SIGBUS). The file is locked (`flock`), exclusively if writable, else shared, so that two
    /// processes of this project cannot map it by mistake. The lock is advisory: if another process truncates the file,
    /// the next access to a removed page kills this process. To exclude that, use [`Self::memfd`], whose length is
    /// sealed.
    ///
    /// # Errors
    /// If `len` is 0, the path is not a regular file or is locked by another process, a read-only file is too short, or
    /// the file cannot be opened, extended or mapped.
    pub fn file(path: &Path, len: usize, writable: bool) -> Result<Arc<Self>, MemoryError> {
        let failed = |source| MemoryError::File { path: path.into(), source };
        if len == 0 {
            return Err(MemoryError::Empty);
        }
        // NONBLOCK: opening a pipe must not wait for its other end. Regular files ignore the flag.
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
        // Read the length again: another process may have truncated the file before it was locked.
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
        Ok(Arc::new(Self::from_mapping(base, len, Pages::File, Some(fd), writable)))
    }
}
