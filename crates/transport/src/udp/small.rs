//! Receives small datagrams whole, several per system call.
//!
//! Peeking at a small packet costs as much as receiving it. If the traffic is small packets (acknowledgements,
//! requests, short messages), they are received whole, and the steer chooses from the received bytes: payloads are
//! copied once more, which costs less than the second call. A large datagram among them is also copied once more; so
//! this path starts after several consecutive small datagrams, and ends with the first large one.

use super::sys::RecvBuffers;
use rustix::fd::OwnedFd;
use std::io;

/// Maximum bytes of a datagram or batch for which a second copy is cheaper than a second call.
const MAX_SMALL_BYTES: usize = 2048;
/// Number of consecutive small datagrams after which this path is used.
const MIN_RUN: u32 = 8;
/// Maximum datagrams received by one call.
const DEPTH: usize = 16;

/// Memory for the datagrams of one call.
pub(super) type Buffers = RecvBuffers<DEPTH>;

/// State of receiving small datagrams whole.
#[derive(Default)]
pub(super) struct SmallReceiver {
    /// Number of consecutive small datagrams so far, at most [`MIN_RUN`].
    run_length: u32,
    /// Datagrams received by the previous call.
    last_count: usize,
    /// `None` until first used.
    buffers: Option<Box<Buffers>>,
}

impl SmallReceiver {
    /// Records a datagram or batch of this many bytes.
    pub(super) fn record(&mut self, bytes: usize) {
        self.run_length = if bytes <= MAX_SMALL_BYTES { (self.run_length + 1).min(MIN_RUN) } else { 0 };
    }

    /// Returns `true` if the traffic is small datagrams.
    pub(super) fn is_active(&self) -> bool {
        self.run_length == MIN_RUN
    }

    /// Receives up to `max` datagrams without blocking. Returns them with their number and the number requested: fewer
    /// are received only if the queue is empty. [`Self::return_buffers`] returns the memory.
    pub(super) fn receive(&mut self, fd: &OwnedFd, max: usize) -> io::Result<(Box<Buffers>, usize, usize)> {
        // Request twice as many as the previous call received: a single datagram stays cheap, and a stream quickly
        // reaches full batches.
        let requested = (2 * self.last_count).clamp(2, DEPTH).min(max);
        let mut buffers = self.buffers.take().unwrap_or_else(|| Box::new(Buffers::new()));
        match buffers.receive(fd, requested) {
            Ok(count) => {
                self.last_count = count;
                Ok((buffers, count, requested))
            }
            Err(error) => {
                self.buffers = Some(buffers);
                Err(error)
            }
        }
    }

    pub(super) fn return_buffers(&mut self, buffers: Box<Buffers>) {
        self.buffers = Some(buffers);
    }
}
