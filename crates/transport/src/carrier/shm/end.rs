//! One end of a path: its two rings, and when it sleeps.

use super::socket::WakeSocket;
use super::sys::{RING_BYTES, SharedRing};
use super::{invalid, wake};
use crate::IoError;
use crate::carrier::{Carrier, MAX_DATAGRAM};
use shotline_memory::{InvalidPosition, RingReader, RingWriter, request_wakeup, requested_wakeup};
use std::os::fd::BorrowedFd;

/// Bytes of a record before its datagram: its length, alone in a cache line, so that the datagram is aligned.
pub(super) const RECORD_HEADER: u64 = 64;
/// Number of fruitless calls of [`Carrier::receive`] or [`Carrier::remaining`] after which they check whether the peer
/// has gone: the check is a system call.
const CALLS_PER_CHECK: u32 = 1024;
/// Number of read bytes after which their space is released although more datagrams are there.
const MAX_UNRELEASED: u64 = RING_BYTES / 8;

/// Maximum number of bytes of the ring that are prefetched.
const MAX_PREFETCH: u64 = 8 << 10;

/// Returns the length in bytes of the record of a datagram: records are aligned to cache lines.
#[inline]
pub(super) fn record_len(datagram: usize) -> u64 {
    (RECORD_HEADER + datagram as u64).next_multiple_of(64)
}

/// One end of a path through shared memory.
#[derive(Debug)]
pub struct ShmCarrier {
    /// The ring that this end writes, and its words.
    mine: SharedRing,
    theirs: SharedRing,
    socket: WakeSocket,

    writer: RingWriter,
    /// Length of the datagram being built, in bytes.
    built: usize,
    /// Bytes that may be appended to it; 0 also until that is known.
    space: usize,
    /// [`Carrier::remaining`] has found no space.
    is_full: bool,

    reader: RingReader,
    /// Bytes of the peer's ring that are known to be written and not read.
    unread: u64,
    /// Bytes that were read and not released.
    unreleased: u64,
    received: Box<[u8]>,

    /// The word with the last request to be woken.
    wake: u32,
    /// That request is still there.
    is_requested: bool,
    /// The peer's last request that was answered.
    answered: u32,

    /// Number of fruitless calls.
    idle_calls: u32,
    /// The peer has closed the socket.
    has_gone: bool,
    /// What the peer wrote that is impossible.
    failure: Option<&'static str>,
}

impl ShmCarrier {
    pub(super) fn new(socket: WakeSocket, mine: SharedRing, theirs: SharedRing) -> Self {
        Self {
            mine,
            theirs,
            socket,
            writer: RingWriter::new(RING_BYTES),
            built: 0,
            space: 0,
            is_full: false,
            reader: RingReader::new(RING_BYTES),
            unread: 0,
            unreleased: 0,
            received: vec![0; MAX_DATAGRAM].into(),
            wake: 0,
            is_requested: false,
            answered: 0,
            idle_calls: 0,
            has_gone: false,
            failure: None,
        }
    }

    /// Wakes the peer if it has requested that for this reason.
    #[inline]
    fn wake_peer(&mut self, reason: u32) {
        let request = requested_wakeup(self.theirs.wake());
        if request & reason != 0 && request != self.answered {
            self.answered = request;
            self.socket.wake();
        }
    }

    fn cancel_request(&mut self) {
        // A wake-up that is sent nevertheless is harmless.
        self.mine.wake().store(0, std::sync::atomic::Ordering::Relaxed);
        self.is_requested = false;
    }

    /// Checks now and then whether the peer has gone.
    fn count_idle_call(&mut self) {
        self.idle_calls = self.idle_calls.wrapping_add(1);
        if self.idle_calls.is_multiple_of(CALLS_PER_CHECK) {
            self.has_gone |= !self.socket.drain();
        }
    }

    /// Returns `true` if there is space for a datagram.
    fn has_space(&mut self) -> bool {
        match self.writer.has_space(self.theirs.head(), record_len(MAX_DATAGRAM)) {
            Ok(has_space) => has_space,
            Err(InvalidPosition) => {
                self.failure = Some("an impossible position");
                false
            }
        }
    }

    /// Releases the space of the records that were read.
    #[inline]
    fn release(&mut self) {
        self.unreleased = 0;
        if self.reader.publish(self.mine.head()) {
            self.wake_peer(wake::SPACE);
        }
    }

    /// Looks for records that the peer has written. Returns `false` if there are none.
    fn look(&mut self) -> bool {
        match self.reader.available(self.theirs.tail()) {
            Ok(unread) => {
                self.unread = unread;
                unread > 0
            }
            Err(InvalidPosition) => {
                self.failure = Some("an impossible position");
                false
            }
        }
    }

    /// Copies the next record's datagram, and returns its length.
    #[inline]
    fn take_record(&mut self) -> Result<usize, &'static str> {
        let position = self.reader.offset();
        let mut len = [0; 8];
        self.theirs.read(position, &mut len);
        // Read once: the peer may change it.
        let len = usize::try_from(u64::from_le_bytes(len)).unwrap_or(usize::MAX);
        let into = self.received.get_mut(..len).filter(|_| len > 0).ok_or("a datagram of an impossible length")?;
        let record = record_len(len);
        self.unread = self.unread.checked_sub(record).ok_or("an incomplete datagram")?;
        self.theirs.read(position + RECORD_HEADER, into);
        self.reader.consume(record);
        self.unreleased += record;
        // The next datagram crosses to this processor while the present one is processed.
        self.theirs.prefetch(self.reader.offset(), self.unread.min(MAX_PREFETCH));
        Ok(len)
    }
}

impl Carrier for ShmCarrier {
    fn max_datagram(&self) -> usize {
        MAX_DATAGRAM
    }

    #[inline]
    fn remaining(&mut self) -> usize {
        if self.space == 0 && self.built == 0 && self.failure.is_none() {
            self.is_full = !self.has_space();
            if self.is_full {
                self.count_idle_call();
            } else {
                self.space = MAX_DATAGRAM;
            }
        }
        self.space
    }

    #[inline]
    fn append(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.space, "{} bytes are appended, {} remain", bytes.len(), self.space);
        self.mine.write(self.writer.offset() + RECORD_HEADER + self.built as u64, bytes);
        self.space -= bytes.len();
        self.built += bytes.len();
    }

    #[inline]
    fn finish(&mut self) -> Result<(), IoError> {
        if self.built > 0 {
            self.mine.write(self.writer.offset(), &(self.built as u64).to_le_bytes());
            self.writer.advance(record_len(self.built));
            (self.built, self.space) = (0, 0);
        }
        Ok(())
    }

    #[inline]
    fn flush(&mut self) -> Result<(), IoError> {
        if self.writer.publish(self.mine.tail()) {
            self.wake_peer(wake::DATA);
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<&mut [u8]>, IoError> {
        if self.is_requested {
            self.cancel_request();
        }
        if self.unread == 0 {
            self.release();
            // In this order: the peer may have written its last datagrams before it went.
            let has_gone = self.has_gone;
            if !self.look() && self.failure.is_none() {
                self.count_idle_call();
                return if has_gone { Err(IoError::Disconnected) } else { Ok(None) };
            }
        }
        if let Some(what) = self.failure {
            return Err(invalid(what));
        }
        match self.take_record() {
            Ok(len) => {
                if self.unreleased >= MAX_UNRELEASED {
                    self.release();
                }
                Ok(Some(&mut self.received[..len]))
            }
            Err(what) => {
                self.failure = Some(what);
                Err(invalid(what))
            }
        }
    }

    fn prepare_sleep(&mut self) -> bool {
        self.has_gone |= !self.socket.drain();
        if self.unread > 0 || self.has_gone || self.failure.is_some() {
            return false;
        }
        self.release();
        let reasons = wake::DATA | if self.is_full { wake::SPACE } else { 0 };
        self.wake = (self.wake & !(wake::STEP - 1)).wrapping_add(wake::STEP) | reasons;
        request_wakeup(self.mine.wake(), self.wake);
        self.is_requested = true;
        let must_run = self.look() || self.is_full && self.has_space() || self.failure.is_some();
        if must_run {
            self.cancel_request();
        }
        !must_run
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }
}
