//! Who is at a recording: readers of HDF5 take a shared lock on the file, writers an exclusive one. Ours is shared while
//! we record, so that readers may come, and whoever wants to replace or repair a file asks for all of it.

use crate::StoreError;
use crate::beneath::{has_name, open_regular};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a lock may be in the way before its file counts as being in use. One that has just been let go may last a
/// little longer: a child process that is being started at that moment holds the descriptor until it runs its own
/// program.
const WAIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Lets readers in and keeps writers out, until [`release`] or the file's end.
pub(crate) fn share(file: &File, path: &Path) -> Result<(), StoreError> {
    take(file, path, FlockOperation::NonBlockingLockShared)
}

/// Refuses a file that a program is at; keeps others away from it until [`release`] or the file's end.
pub(crate) fn claim(file: &File, path: &Path) -> Result<(), StoreError> {
    take(file, path, FlockOperation::NonBlockingLockExclusive)
}

/// A lock on a file, given back when this is dropped.
#[derive(Debug)]
pub struct Held(File);

impl Held {
    /// Lets readers in and keeps writers out.
    pub(crate) fn share(file: File, path: &Path) -> Result<Self, StoreError> {
        share(&file, path)?;
        Ok(Self(file))
    }
    /// Keeps all others away from the file of this name.
    pub(crate) fn claim(path: &Path) -> Result<Self, StoreError> {
        open_claimed(path, OFlags::RDONLY).map(Self)
    }
    /// Keeps all others away from a file that is open.
    pub(crate) fn claim_open(file: File, path: &Path) -> Result<Self, StoreError> {
        claim(&file, path)?;
        Ok(Self(file))
    }
    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        release(&self.0);
    }
}

/// Opens a file and takes the exclusive lock. Read the file after this: what was read before may have changed while the lock
/// was waited for. Fails with [`StoreError::InUse`] if the previous holder put another file in its place.
pub(crate) fn open_claimed(path: &Path, access: OFlags) -> Result<File, StoreError> {
    let file = open_regular(path, access).map_err(StoreError::open(path))?;
    claim(&file, path)?;
    if has_name(&file, path) {
        return Ok(file);
    }
    release(&file);
    Err(StoreError::InUse { path: path.to_owned() })
}

/// Gives a lock back. To close the file is not enough while a child process is being started.
pub(crate) fn release(file: &File) {
    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
}

fn take(file: &File, path: &Path, how: FlockOperation) -> Result<(), StoreError> {
    let until = Instant::now() + WAIT_TIMEOUT;
    loop {
        match rustix::fs::flock(file, how) {
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            Err(Errno::WOULDBLOCK) => return Err(StoreError::InUse { path: path.to_owned() }),
            // A file system without locks: then nobody else is kept out either.
            _ => return Ok(()),
        }
    }
}
