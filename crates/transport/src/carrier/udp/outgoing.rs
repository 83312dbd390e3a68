//! Datagrams to send, in batches of equal length.

use super::icmp::without_icmp;
use crate::MAX_BATCH;
use crate::udp::sys::{self, MAX_BYTES};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::io;

/// Bytes of completed datagrams that are collected until they are sent.
const COLLECTED_BYTES: usize = 4 << 16;

/// Datagrams of equal length, of which the last may be shorter.
#[derive(Clone, Copy, Debug)]
struct Batch {
    /// Their bytes in the buffer.
    start: usize,
    end: usize,
    /// Length in bytes of each datagram except the last.
    segment: usize,
    count: usize,
    /// The last one is shorter.
    is_closed: bool,
}

/// The datagram being built, after the completed ones.
#[derive(Debug)]
pub(super) struct Outgoing {
    max: usize,
    bytes: Vec<u8>,
    /// Completed datagrams, in order.
    batches: VecDeque<Batch>,
    /// Offset of the datagram being built.
    start: usize,
    /// Bytes that may be appended to it; 0 also until that is known.
    space: usize,
}

impl Outgoing {
    pub(super) fn new(max: usize) -> Self {
        let bytes = Vec::with_capacity(COLLECTED_BYTES + max);
        Self { max, bytes, batches: VecDeque::new(), start: 0, space: 0 }
    }

    /// Returns `true` if the completed datagrams must be sent before another one is begun.
    pub(super) fn is_full(&self) -> bool {
        self.start >= COLLECTED_BYTES
    }

    /// Returns `true` if completed datagrams were not sent.
    pub(super) fn has_batches(&self) -> bool {
        !self.batches.is_empty()
    }

    #[inline]
    pub(super) fn remaining(&mut self) -> usize {
        if self.space == 0 && self.bytes.len() == self.start && !self.is_full() {
            self.space = self.max;
        }
        self.space
    }

    #[inline]
    pub(super) fn append(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.space, "{} bytes are appended, {} remain", bytes.len(), self.space);
        self.space -= bytes.len();
        self.bytes.extend_from_slice(bytes);
    }

    /// Completes the datagram being built, unless it is empty.
    pub(super) fn finish(&mut self) {
        let (start, end) = (self.start, self.bytes.len());
        let len = end - start;
        if len == 0 {
            return;
        }
        (self.start, self.space) = (end, 0);
        match self.batches.back_mut() {
            Some(batch)
                if !batch.is_closed
                    && len <= batch.segment
                    && batch.count < MAX_BATCH
                    && end - batch.start <= MAX_BYTES =>
            {
                batch.end = end;
                batch.count += 1;
                batch.is_closed = len < batch.segment;
            }
            _ => self.batches.push_back(Batch { start, end, segment: len, count: 1, is_closed: false }),
        }
    }

    /// Sends completed datagrams until the socket is full.
    pub(super) fn send(&mut self, fd: &OwnedFd) -> io::Result<()> {
        while let Some(batch) = self.batches.front() {
            let bytes = &self.bytes[batch.start..batch.end];
            match without_icmp(|| sys::send_segments(fd, bytes, batch.segment as u16)) {
                Ok(_) => _ = self.batches.pop_front(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        Ok(())
    }
}
