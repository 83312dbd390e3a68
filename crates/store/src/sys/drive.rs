//! What slots are written to: an io_uring ([`Ring`](super::ring::Ring)), or memory ([`Mapped`](super::mapped::Mapped)).

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use shotline_memory::Buffer;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// What has happened.
#[derive(Debug, PartialEq, Eq)]
pub enum Done {
    /// All bytes of a write are in the file, or it failed.
    Write {
        /// Its tag.
        tag: u64,
        /// How it went.
        result: Result<(), Errno>,
    },
    /// The data written before a sync is durable, or that failed.
    Sync(Result<(), Errno>),
    /// Someone woke the drive.
    Woken,
}

/// Writes pool buffers to one file. Call order: [`Self::write`] any number of times, [`Self::submit`], and
/// [`Self::poll`] until everything is told.
pub trait Drive: std::fmt::Debug + Send {
    /// What ends a wait from another thread.
    fn wake(&self) -> &Arc<Wake>;
    /// Writes that can be queued now.
    fn room(&self) -> usize;
    /// Queues the first `len` bytes of a buffer for `at` in the file; gives the buffer back if there is no room.
    fn write(&mut self, buffer: Buffer, len: u32, at: u64, tag: u64) -> Result<(), Buffer>;
    /// Queues a sync of what has been written; false if one is under way.
    fn sync(&mut self) -> bool;
    /// Hands queued work on.
    fn submit(&mut self) -> io::Result<()>;
    /// Waits at most `wait` for something to happen (none: not at all), then tells all that has.
    fn poll(&mut self, wait: Option<Duration>, tell: &mut dyn FnMut(Done)) -> io::Result<()>;
}

/// A drive, and why shot buffers are not registered with it, if so.
pub type Made = (Box<dyn Drive>, Option<io::Error>);

/// A descriptor whose writing ends a wait.
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }
    /// Ends the current wait, or the next one.
    pub fn wake(&self) {
        // The descriptor is ours and open; a full counter is a wake-up too.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
    /// Takes back every wake-up so far.
    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Wake {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
