//! A buffer of a device that its driver has exported as a file descriptor (dma-buf).

mod error;
mod memfd;

pub use error::DmabufError;

use super::description::RegionDescription;
use super::map::{Mapping, round_up};
use super::{DeviceMemory, MemoryError, Pages, Region, copy};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use rustix::fs::{FsWord, SeekFrom};
use rustix::io::Errno;
use rustix::ioctl::{Setter, opcode};
use std::sync::{Arc, OnceLock};

/// Registry entry of this region kind.
pub(super) const DESCRIPTION: RegionDescription = RegionDescription {
    name: "dmabuf",
    form: "dmabuf:FD",
    backing: "a buffer that a driver exports as a file descriptor (dma-buf)",
    pages: Pages::Device,
    privilege: Some("an inherited file descriptor of a dma-buf"),
};

/// File system type of dma-bufs (`DMA_BUF_MAGIC` of `include/uapi/linux/magic.h`).
const DMA_BUF: FsWord = 0x444D_4142;

/// `DMA_BUF_IOCTL_SYNC` and its flags (`include/uapi/linux/dma-buf.h`). The argument is a structure of one `u64`.
const SYNC: rustix::ioctl::Opcode = opcode::write::<u64>(b'b', 0);
const SYNC_READ: u64 = 1;
const SYNC_WRITE: u64 = 2;
const SYNC_END: u64 = 4;

impl Region {
    /// Maps the first `len` bytes, rounded up to 8, of a dma-buf that this process has inherited as `fd`. The descriptor is
    /// duplicated. The driver is notified of the begin and the end of each copy, so that caches are consistent with the
    /// device; therefore the region has no address and no atomic operations.
    ///
    /// # Errors
    /// If `len` is 0 or exceeds the buffer, or the descriptor is not open, no dma-buf, or cannot be mapped.
    pub fn dmabuf(fd: RawFd, len: usize, writable: bool) -> Result<Arc<Self>, MemoryError> {
        if fd < 0 {
            return Err(DmabufError::NotOpen(fd).into());
        }
        // SAFETY: the number is not negative. It is used only to duplicate the descriptor: if it is not open, that fails.
        let inherited = unsafe { BorrowedFd::borrow_raw(fd) };
        let owned = rustix::io::fcntl_dupfd_cloexec(inherited, 0);
        let owned = owned.map_err(|error| match error {
            Errno::BADF => DmabufError::NotOpen(fd),
            source => DmabufError::Descriptor(source),
        })?;
        if rustix::fs::fstatfs(&owned).map(|stat| stat.f_type) != Ok(DMA_BUF) {
            return Err(DmabufError::NotADmabuf(fd).into());
        }
        Self::from_dmabuf(owned, len, writable)
    }

    /// Maps the first `len` bytes of a dma-buf as [`Self::dmabuf`] does, of a descriptor that this process owns.
    ///
    /// # Errors
    /// As [`Self::dmabuf`].
    pub fn from_dmabuf(fd: OwnedFd, len: usize, writable: bool) -> Result<Arc<Self>, MemoryError> {
        let len = round_up(len, 8)?;
        let found = rustix::fs::seek(&fd, SeekFrom::End(0)).map_err(DmabufError::Descriptor)?;
        if len as u64 > found {
            return Err(DmabufError::TooLarge { found, requested: len as u64 }.into());
        }
        let mapping = Mapping::new(fd.as_fd(), 0, len, writable);
        let mapping = mapping.map_err(|source| DmabufError::Map { bytes: found, source })?;
        let memory = DmabufMemory { mapping, fd, len, failure: OnceLock::new() };
        // A descriptor that does not support it is refused before the first copy.
        memory.access(SYNC_READ, || ());
        memory.failure().map_or_else(|| Ok(Self::device_with(Arc::new(memory), writable)), Err)
    }
}

/// A mapped dma-buf.
#[derive(Debug)]
struct DmabufMemory {
    mapping: Mapping,
    fd: OwnedFd,
    len: usize,
    failure: OnceLock<DmabufError>,
}

impl DmabufMemory {
    /// Accesses the bytes between the begin and the end of an access by the processor.
    /// Returns `false` without an access if it could not begin.
    fn access(&self, direction: u64, copy: impl FnOnce()) -> bool {
        let begun = self.sync(direction);
        if begun.is_ok() {
            copy();
        }
        if let Err(source) = begun.and_then(|()| self.sync(direction | SYNC_END)) {
            let _ = self.failure.set(DmabufError::Sync(source));
        }
        begun.is_ok()
    }
    fn sync(&self, flags: u64) -> Result<(), Errno> {
        // SAFETY: the request reads a structure of one u64.
        let request = || unsafe { rustix::ioctl::ioctl(&self.fd, Setter::<SYNC, u64>::new(flags)) };
        loop {
            match request() {
                // The header requires that these are repeated.
                Err(Errno::AGAIN | Errno::INTR) => {}
                done => return done,
            }
        }
    }
}

// SAFETY: only the given ranges are accessed, and those of the mapping by atomic words; there is no host address.
unsafe impl DeviceMemory for DmabufMemory {
    fn len(&self) -> usize {
        self.len
    }
    unsafe fn copy_out(&self, offset: usize, to: *mut u8, len: usize) {
        // SAFETY: the caller guarantees both ranges; a mapping has whole words.
        if !self.access(SYNC_READ, || unsafe { copy::load(self.mapping.address(offset), to, len) }) {
            // What the target had before could be another peer's.
            // SAFETY: as above.
            unsafe { to.write_bytes(0, len) };
        }
    }
    unsafe fn copy_in(&self, offset: usize, from: *const u8, len: usize) {
        // SAFETY: as for `copy_out`; a region that is not writable refuses writes.
        self.access(SYNC_READ | SYNC_WRITE, || unsafe { copy::store(from, self.mapping.address(offset), len) });
    }
    fn failure(&self) -> Option<MemoryError> {
        self.failure.get().cloned().map(MemoryError::Dmabuf)
    }
    fn export(&self) -> Option<Result<OwnedFd, MemoryError>> {
        let duplicate = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0);
        Some(duplicate.map_err(|source| MemoryError::Dmabuf(DmabufError::Descriptor(source))))
    }
}
