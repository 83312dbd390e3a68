//! Receives small datagrams whole, several per system call.
//!
//! Peeking at a small packet costs as much as receiving it. If the traffic is small packets (acknowledgements,
//! requests, short messages), they are received whole, and the steer chooses from the received bytes: payloads are
//! copied once more, which costs less than the second call. A large datagram among them is also copied once more; so
//! this path starts after several consecutive small datagrams, and ends with the first large one.

use super::sys::{self, IoVec, RecvBatch};
use rustix::fd::OwnedFd;
use std::io;

/// Maximum bytes of a datagram or batch for which a second copy is cheaper than a second call.
const MAX_SMALL_BYTES: usize = 2048;
/// Number of consecutive small datagrams after which this path is used.
const MIN_RUN: u32 = 8;
/// Maximum datagrams received by one call.
const DEPTH: usize = 16;
/// Maximum bytes of a datagram or batch.
const MAX_DATAGRAM_BYTES: usize = 1 << 16;

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

/// Memory for [`DEPTH`] datagrams; small ones touch few pages of it.
pub(super) struct Buffers {
    messages: RecvBatch<DEPTH>,
    bytes: Vec<u8>,
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
        let mut buffers = self.buffers.take().unwrap_or_default();
        let mut pieces = [[IoVec { iov_base: std::ptr::null_mut(), iov_len: MAX_DATAGRAM_BYTES }]; DEPTH];
        for ([piece], slot) in pieces.iter_mut().zip(buffers.bytes.chunks_exact_mut(MAX_DATAGRAM_BYTES)) {
            piece.iov_base = slot.as_mut_ptr().cast();
        }
        // SAFETY: every piece is in `buffers`, which is exclusively borrowed.
        let received = unsafe { buffers.messages.receive(fd, &mut pieces[..requested]) };
        match received {
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

impl Buffers {
    /// Returns one of the received datagrams and its metadata.
    pub(super) fn datagram(&self, index: usize) -> io::Result<(sys::Received, &[u8])> {
        let meta = self.messages.received(index)?;
        let slot = &self.bytes[index * MAX_DATAGRAM_BYTES..][..MAX_DATAGRAM_BYTES];
        Ok((meta, &slot[..meta.total.min(MAX_DATAGRAM_BYTES)]))
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Self { messages: RecvBatch::new(), bytes: vec![0; DEPTH * MAX_DATAGRAM_BYTES] }
    }
}
