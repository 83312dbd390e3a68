//! Storage of a recording's bytes: a file, or an extent of a raw device ([`crate::nvme`]), with one interface.

use crate::confined_path::open_regular;
use crate::nvme::Extent;
use crate::positioned::{ReadAt, write_file};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;

/// Bytes per write when zeroing by writes.
const ZERO_BLOCK_BYTES: u64 = 1 << 20;

/// A file or an extent of a raw device.
#[derive(Debug)]
pub enum Medium {
    /// A file, without direct I/O.
    File(File),
    /// Part of a device.
    Extent(Extent),
}

impl From<File> for Medium {
    fn from(file: File) -> Self {
        Self::File(file)
    }
}

impl ReadAt for Medium {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> usize {
        match self {
            Self::File(file) => ReadAt::read_at(file, offset, buf),
            Self::Extent(extent) => extent.read_at(offset, buf),
        }
    }
}

impl Medium {
    /// Opens an existing file for reading.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        open_regular(path, OFlags::RDONLY).map(Self::File)
    }
    /// File on which locks are taken: the recording's file, or the device.
    pub fn handle(&self) -> &File {
        match self {
            Self::File(file) => file,
            Self::Extent(extent) => extent.handle(),
        }
    }
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::File(file) => file.metadata().map_or(0, |metadata| metadata.len()),
            Self::Extent(extent) => extent.bytes(),
        }
    }

    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// Returns the error of the write. Fails with `ENOSPC` beyond the end of an extent.
    pub fn write_all(&self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        match self {
            Self::File(file) => write_file(file, at, bytes),
            Self::Extent(extent) => extent.write_all(at, bytes),
        }
    }
    /// Zeroes a range within the current length.
    pub(crate) fn zero(&self, at: u64, len: u64) -> Result<(), Errno> {
        if let Self::File(file) = self {
            let fallocate = |how| rustix::fs::fallocate(file, how | FallocateFlags::KEEP_SIZE, at, len);
            if fallocate(FallocateFlags::ZERO_RANGE).or_else(|_| fallocate(FallocateFlags::PUNCH_HOLE)).is_ok() {
                return Ok(());
            }
        }
        let zeros = vec![0; len.min(ZERO_BLOCK_BYTES) as usize];
        let mut done = 0;
        while done < len {
            let count = (len - done).min(ZERO_BLOCK_BYTES);
            self.write_all(at + done, &zeros[..count as usize])?;
            done += count;
        }
        Ok(())
    }
    /// Makes written data durable (`fdatasync`).
    pub(crate) fn sync_data(&self) -> Result<(), Errno> {
        match self {
            Self::File(file) => rustix::fs::fdatasync(file),
            Self::Extent(extent) => extent.flush(),
        }
    }
    /// Makes written data and the length durable (`fsync`).
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        match self {
            Self::File(file) => rustix::fs::fsync(file),
            Self::Extent(extent) => extent.flush(),
        }
    }
    /// Extends to at least `end` bytes. Fails with `ENOSPC` on an extent that is smaller.
    pub(crate) fn grow(&self, end: u64) -> Result<(), Errno> {
        match self {
            _ if self.bytes() >= end => Ok(()),
            Self::File(file) => rustix::fs::fallocate(file, FallocateFlags::empty(), 0, end)
                .or_else(|_| rustix::fs::ftruncate(file, end)),
            Self::Extent(_) => Err(Errno::NOSPC),
        }
    }
    /// Truncates to `end` bytes and makes the new length durable.
    pub(crate) fn truncate(&self, end: u64) -> Result<(), Errno> {
        match self {
            _ if self.bytes() <= end => Ok(()),
            Self::File(file) => {
                rustix::fs::ftruncate(file, end)?;
                rustix::fs::fsync(file)
            }
            Self::Extent(extent) => extent.truncate(end),
        }
    }
}
