//! Advisory locks on recordings. HDF5 readers take a shared lock on the file, writers an exclusive one. The recorder
//! holds a shared lock, so that readers can open the file; replacing or repairing a file needs the exclusive lock.

use crate::StoreError;
use crate::confined_path::{has_name, open_regular};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time to retry a contended lock before the file counts as in use. A lock that was just released can persist for a
/// moment: a child process between fork and exec still holds the descriptor.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Takes a shared lock, which allows readers and excludes writers, until [`release`] or the last close.
pub(crate) fn share(file: &File, path: &Path) -> Result<(), StoreError> {
    take(file, path, FlockOperation::NonBlockingLockShared)
}

/// Takes the exclusive lock, until [`release`] or the last close. Fails if another program holds a lock.
pub(crate) fn claim(file: &File, path: &Path) -> Result<(), StoreError> {
    take(file, path, FlockOperation::NonBlockingLockExclusive)
}

/// Lock on an open file, released on drop.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Takes a shared lock, which allows readers and excludes writers.
    pub(crate) fn shared(file: File, path: &Path) -> Result<Self, StoreError> {
        share(&file, path)?;
        Ok(Self(file))
    }
    /// Opens a file and takes the exclusive lock.
    pub(crate) fn exclusive(path: &Path) -> Result<Self, StoreError> {
        open_claimed(path, OFlags::RDONLY).map(Self)
    }
    /// Takes the exclusive lock on an open file.
    pub(crate) fn exclusive_open(file: File, path: &Path) -> Result<Self, StoreError> {
        claim(&file, path)?;
        Ok(Self(file))
    }
    /// The locked file.
    pub(crate) fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        release(&self.0);
    }
}

/// Opens a file and takes the exclusive lock. Read the file only after this: it may have changed while the lock was
/// contended. Fails with [`StoreError::InUse`] if the previous holder replaced the file.
pub(crate) fn open_claimed(path: &Path, access: OFlags) -> Result<File, StoreError> {
    let file = open_regular(path, access).map_err(StoreError::open(path))?;
    claim(&file, path)?;
    if has_name(&file, path) {
        return Ok(file);
    }
    release(&file);
    Err(StoreError::InUse { path: path.to_owned() })
}

/// Releases a lock. Closing the file is not enough: a child process between fork and exec may still hold it open.
pub(crate) fn release(file: &File) {
    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
}

fn take(file: &File, path: &Path, how: FlockOperation) -> Result<(), StoreError> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match rustix::fs::flock(file, how) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Err(Errno::WOULDBLOCK) => return Err(StoreError::InUse { path: path.to_owned() }),
            // The file system has no locks, so other programs are not excluded either.
            _ => return Ok(()),
        }
    }
}
