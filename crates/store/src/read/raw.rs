//! Reads the bytes of a recording: cached bytes from the page cache, all others with direct I/O.
//!
//! A recording is written with direct I/O, so most of it is only on the drive. Reading it through the page cache would
//! take several times longer than the drive needs.

use crate::medium::Medium;
use crate::sys::cache::cached_bytes;
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;

const ALIGN: usize = 4096;

/// Reader of a file, for one thread.
#[derive(Debug)]
pub(crate) struct RawReader {
    direct: Option<File>,
    buffer: Vec<u8>,
    start: usize,
}

impl RawReader {
    /// Creates a reader for at most `largest` bytes at a time.
    pub(crate) fn new(medium: &Medium, largest: usize) -> Self {
        let direct = match medium {
            Medium::File(file) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
                // Reopened by descriptor, because its name may refer to another file by now.
                rustix::fs::open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty()).ok()
            }
            Medium::Extent(_) => None,
        };
        let buffer = vec![0; largest + ALIGN];
        let start = buffer.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self { direct: direct.map(File::from), buffer, start }
    }

    /// Reads `len` bytes at offset `at` of the same medium.
    pub(crate) fn read(&mut self, medium: &Medium, at: u64, len: usize) -> Result<&[u8], Errno> {
        let to = &mut self.buffer[self.start..self.start + len];
        let cached = match medium {
            Medium::File(file) => file,
            Medium::Extent(extent) => {
                extent.read(at, to)?;
                return Ok(to);
            }
        };
        let in_memory = || cached_bytes(cached.as_fd(), at, len as u64).is_some_and(|bytes| bytes >= len as u64);
        if let Some(direct) = &self.direct
            && !in_memory()
            && rustix::io::pread(direct, &mut *to, at) == Ok(len)
        {
            return Ok(to);
        }
        // The data is in the page cache, or the file system has no direct reads.
        let mut done = 0;
        while done < len {
            match rustix::io::pread(cached, &mut to[done..], at + done as u64) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(to)
    }
}
