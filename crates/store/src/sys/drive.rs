//! Interface for writing slots, by io_uring ([`Ring`](super::ring::Ring)) or to memory
//! ([`Mapped`](super::mapped::Mapped)).

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use shotline_memory::Buffer;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Completion of an operation.
#[derive(Debug, PartialEq, Eq)]
pub enum Completion {
    /// A write has completed with all its bytes, or failed.
    Write {
        /// Tag of the write.
        tag: u64,
        /// Result of the write.
        result: Result<(), Errno>,
    },
    /// A sync has completed: all data written before it is durable, or it failed.
    Sync(Result<(), Errno>),
    /// Another thread has ended the wait.
    Woken,
}

/// Writes pool buffers to one file. Call order: [`Self::write`] any number of times, [`Self::submit`], and
/// [`Self::poll`] until all completions are reported.
pub trait Drive: std::fmt::Debug + Send {
    /// Returns the handle that ends a wait from another thread.
    fn wake(&self) -> &Arc<Wake>;
    /// Returns the number of writes that can be queued now.
    fn available(&self) -> usize;
    /// Queues a write of the first `len` bytes of a buffer at file offset `at`; returns the buffer if the queue is
    /// full.
    fn write(&mut self, buffer: Buffer, len: u32, at: u64, tag: u64) -> Result<(), Buffer>;
    /// Queues a sync of all written data; returns `false` if one is in flight.
    fn sync(&mut self) -> bool;
    /// Submits queued work.
    fn submit(&mut self) -> io::Result<()>;
    /// Blocks for at most `wait` for a completion (`None`: without blocking), then calls `on_completion` for each.
    fn poll(&mut self, wait: Option<Duration>, on_completion: &mut dyn FnMut(Completion)) -> io::Result<()>;
}

/// A drive, and the error if shot buffers could not be registered with it.
pub type DriveSetup = (Box<dyn Drive>, Option<io::Error>);

/// Eventfd that ends a wait of [`Drive::poll`].
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }
    /// Ends the current wait, or the next one if there is none.
    pub fn wake(&self) {
        // The write can only fail on a full counter, which is a pending wake-up too.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
    /// Clears all pending wake-ups.
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
