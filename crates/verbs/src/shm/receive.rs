//! Reception of messages from the peer's ring.

use super::board::Word;
use super::endpoint::ShmEndpoint;
use super::pair::Incoming;
use super::queues::{Entry, Receive};
use super::record::{HEADER, Header, record_len};
use crate::api::{CompletionKind, Status};
use crate::slab::slot_of;
use std::sync::atomic::Ordering;

/// Maximum number of records processed before other work continues.
const MAX_BATCH_RECORDS: usize = 64;

/// Reason for refusing a message, as published to the sender.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Refusal {
    /// Longer than its receive.
    TooLong = 1,
    /// The peer may not invalidate the key.
    Key = 2,
    /// No receive is posted, or the message is out of sequence.
    OutOfSequence = 3,
}

/// Returns the completion status of a request that the peer refused.
pub(super) fn refusal_status(code: u32) -> Status {
    match code {
        1 => Status::RemoteInvalid,
        2 => Status::RemoteAccess,
        3 => Status::RemoteOperation,
        _ => Status::BadResponse,
    }
}

impl ShmEndpoint {
    /// Processes records in the peer's ring, up to a batch. Returns `true` if there were any.
    #[inline]
    pub(super) fn take_records(&mut self) -> bool {
        let mut taken = 0;
        while taken < MAX_BATCH_RECORDS && !self.is_disconnected {
            match self.reader.available(self.theirs.tail()) {
                Ok(0) => break,
                Ok(available) => match self.take_record(available) {
                    Some(len) => self.reader.consume(len),
                    None => self.fail_link(),
                },
                Err(_) => self.fail_link(),
            }
            taken += 1;
        }
        if taken > 0 {
            self.must_notify |= self.reader.publish(self.mine.head());
        }
        taken > 0
    }

    /// Processes one record of at most `available` bytes. Returns its length, or `None` if it is invalid.
    fn take_record(&mut self, available: u64) -> Option<u64> {
        let mut bytes = [0; HEADER as usize];
        let (board, offset, _) = self.theirs.ring(self.reader.offset());
        // All checks use one private copy, which the peer cannot change. (It is contiguous: records are 64-byte
        // aligned, and so is the reader's position, regardless of what the peer writes.)
        board.read(offset, &mut bytes);
        let header = Header::parse(&bytes);
        let len = record_len(u64::from(header.fragment));
        if len > available {
            return None;
        }
        self.take_message(&header);
        Some(len)
    }

    fn take_message(&mut self, header: &Header) {
        let slot = header.to_slot as usize;
        let pair = self.pairs.get(slot).and_then(Option::as_deref);
        let known = pair.filter(|pair| pair.number == header.to && pair.peer == header.from && pair.is_connected());
        let Some(pair) = known.filter(|pair| pair.expected == header.message) else {
            let out_of_sequence = known.is_some();
            if header.has(Header::FIRST) {
                self.return_credit(header);
            }
            if out_of_sequence {
                self.refuse(slot, header.message, Refusal::OutOfSequence);
            } else {
                self.counters.stray += 1;
            }
            return;
        };
        let queue = pair.receives;
        if header.has(Header::FIRST) && !self.begin_message(slot, queue, header) {
            return;
        }
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return };
        // A later fragment of a refused message is ignored.
        let Some(incoming) = pair.incoming.as_mut() else { return };
        if header.has(Header::WRITE) {
            incoming.filled = incoming.total;
        } else if u64::from(header.fragment) > incoming.total - incoming.filled {
            self.counters.malformed += 1;
            return self.put_back(slot);
        } else {
            self.copy_out(slot, u64::from(header.fragment));
        }
        let Some(pair) = self.pairs[slot].as_deref() else { return };
        let whole = pair.incoming.as_ref().is_some_and(|incoming| incoming.filled == incoming.total);
        match (header.has(Header::LAST), whole) {
            (true, true) => self.finish_message(slot, queue, header),
            (true, false) => {
                self.counters.malformed += 1;
                self.put_back(slot);
            }
            (false, _) => {}
        }
    }

    /// Returns the credit of a dropped message, which the sender counted against a receive queue, to the queue that has
    /// this slot now, or to the slot if there is none.
    fn return_credit(&mut self, header: &Header) {
        let index = usize::from(header.queue);
        let Some(taken) = self.taken.get_mut(index) else {
            self.counters.malformed += 1;
            return;
        };
        *taken = taken.wrapping_add(1);
        let published = self.mine.receives(index);
        published.store(published.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        self.must_notify = true;
    }

    fn count_taken(&mut self, queue: u32) {
        let taken = &mut self.taken[slot_of(queue)];
        *taken = taken.wrapping_add(1);
    }

    /// Processes the first fragment of a message: takes a receive. Returns `true` if there is one.
    fn begin_message(&mut self, slot: usize, queue: u32, header: &Header) -> bool {
        self.count_taken(queue);
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return false };
        // An aborted message leaves its receive to the next one.
        let left = pair.incoming.take().map(|incoming| incoming.receive);
        let receive = left.or_else(|| self.receives.get_mut(queue).and_then(|queue| queue.take()));
        self.check_limit(queue);
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return false };
        let Some(receive) = receive else {
            self.publish_receives(queue);
            self.refuse(slot, header.message, Refusal::OutOfSequence);
            return false;
        };
        let total = u64::from(header.total);
        if total > receive.len && !header.has(Header::WRITE) {
            self.too_long(slot, queue, header, receive);
            return false;
        }
        pair.incoming = Some(Incoming { receive, total, filled: 0, cursor: (0, 0) });
        true
    }

    /// Handles a message longer than its receive. If the queue pair is strict, the receive completes with an error, as
    /// the standard requires; otherwise it is kept for the next message.
    fn too_long(&mut self, slot: usize, queue: u32, header: &Header, receive: Receive) {
        let Some(pair) = self.pairs[slot].as_deref() else { return };
        let (strict, cq, qp) = (pair.config.strict, pair.config.recv_cq, pair.number);
        let Some(receives) = self.receives.get_mut(queue) else { return };
        if strict {
            let entry = Entry::new(receive.id, CompletionKind::Recv, qp, slot).failed(Status::LocalLength);
            receives.recycle(&mut self.protection, receive);
            self.complete(cq, entry);
        } else {
            receives.put_back(receive);
        }
        self.publish_receives(queue);
        self.refuse(slot, header.message, Refusal::TooLong);
    }

    /// Publishes to the sender that a message is refused. A strict queue pair then fails, as the standard requires.
    fn refuse(&mut self, slot: usize, message: u32, reason: Refusal) {
        self.counters.refused += 1;
        // The first refusal decides the sender's status; later messages are out of sequence.
        if self.mine.pair(slot, Word::RefusalCode).load(Ordering::Relaxed) == 0 {
            self.mine.pair(slot, Word::Refused).store(message, Ordering::Release);
            self.mine.pair(slot, Word::RefusalCode).store(reason as u32, Ordering::Release);
        }
        self.must_notify = true;
        if self.pairs[slot].as_deref().is_some_and(|pair| pair.config.strict) {
            self.fail(slot);
        }
    }

    /// Aborts a message and keeps its receive for the next one.
    fn put_back(&mut self, slot: usize) {
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return };
        let (queue, incoming) = (pair.receives, pair.incoming.take());
        if let (Some(receives), Some(incoming)) = (self.receives.get_mut(queue), incoming) {
            receives.put_back(incoming.receive);
        }
        self.publish_receives(queue);
    }

    /// Copies a fragment of `len` bytes from the ring to the receive's elements. The caller has checked that it fits.
    fn copy_out(&mut self, slot: usize, mut len: u64) {
        let Some(incoming) = self.pairs[slot].as_deref_mut().and_then(|pair| pair.incoming.as_mut()) else { return };
        let mut position = self.reader.offset() + HEADER;
        incoming.filled += len;
        let (mut index, mut offset) = incoming.cursor;
        while len > 0 {
            let Some(sge) = incoming.receive.pinned.elements.get(index) else { break };
            let (ring, start, left) = self.theirs.ring(position);
            let piece = u64::from(sge.len - offset).min(len).min(left as u64);
            let target = self.protection.regions().get(sge.region);
            target.copy_from((sge.offset + u64::from(offset)) as usize, ring, start, piece as usize);
            (position, len, offset) = (position + piece, len - piece, offset + piece as u32);
            if offset == sge.len {
                (index, offset) = (index + 1, 0);
            }
        }
        incoming.cursor = (index, offset);
    }

    /// Completes a message whose last fragment was copied.
    fn finish_message(&mut self, slot: usize, queue: u32, header: &Header) {
        let Some(pair) = self.pairs[slot].as_deref() else { return };
        let (pd, qp, cq) = (pair.config.pd, pair.number, pair.config.recv_cq);
        if header.has(Header::INVALIDATE) {
            let rkey = header.word;
            if self.protection.invalidate(pd, qp, rkey).is_err() {
                self.put_back(slot);
                return self.refuse(slot, header.message, Refusal::Key);
            }
            self.unshare(rkey);
        }
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return };
        let Some(incoming) = pair.incoming.take() else { return };
        pair.expected = pair.expected.wrapping_add(1);
        self.mine.pair(slot, Word::Expected).store(pair.expected, Ordering::Release);
        let kind = if header.has(Header::WRITE) { CompletionKind::RecvWriteImm } else { CompletionKind::Recv };
        let mut entry = Entry::new(incoming.receive.id, kind, qp, slot);
        (entry.bytes, entry.word) = (incoming.total as u32, header.word);
        let flags = [
            (Header::IMM, Entry::IMM),
            (Header::INVALIDATE, Entry::INVALIDATED),
            (Header::SOLICITED, Entry::SOLICITED),
        ];
        for (header_flag, entry_flag) in flags {
            entry.flags |= if header.has(header_flag) { entry_flag } else { 0 };
        }
        if let Some(receives) = self.receives.get_mut(queue) {
            receives.recycle(&mut self.protection, incoming.receive);
        }
        self.must_notify = true;
        self.complete(cq, entry);
    }
}
