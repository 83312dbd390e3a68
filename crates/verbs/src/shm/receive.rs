//! Messages that come out of the peer's ring.

use super::board::Word;
use super::endpoint::ShmEndpoint;
use super::pair::Incoming;
use super::queues::{Entry, Receive};
use super::record::{HEADER, Header, record_len};
use crate::api::{Completed, Status};
use crate::slab::place;
use std::sync::atomic::Ordering;

/// Records that are taken before everything else gets its turn.
const BATCH: usize = 64;

/// Why a message is refused, as the sender reads it.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Refusal {
    /// Longer than its receive.
    TooLong = 1,
    /// It may not end that key.
    Key = 2,
    /// There is no receive, or it came out of turn.
    OutOfTurn = 3,
}

/// What the sender's request fails of.
pub(super) fn verdict(code: u32) -> Status {
    match code {
        1 => Status::RemoteInvalid,
        2 => Status::RemoteAccess,
        3 => Status::RemoteOperation,
        _ => Status::BadResponse,
    }
}

impl ShmEndpoint {
    /// Takes what is in the peer's ring, up to a batch. Returns whether there was anything.
    #[inline]
    pub(super) fn take_records(&mut self) -> bool {
        let mut taken = 0;
        while taken < BATCH && !self.gone {
            match self.reader.available(self.theirs.tail()) {
                Ok(0) => break,
                Ok(available) => match self.take_record(available) {
                    Some(len) => self.reader.read(len),
                    None => self.broken(),
                },
                Err(_) => self.broken(),
            }
            taken += 1;
        }
        if taken > 0 {
            self.news |= self.reader.publish(self.mine.head());
        }
        taken > 0
    }

    /// Takes one record. Returns its length; none if it cannot be.
    fn take_record(&mut self, available: u64) -> Option<u64> {
        let mut bytes = [0; HEADER as usize];
        let (board, at, _) = self.theirs.ring(self.reader.offset());
        // One copy, which nobody changes any more, is what all checks are about. (It is in one piece: records begin at
        // multiples of 64, and so does the reader's position, whatever the peer writes.)
        board.read(at, &mut bytes);
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
            let out_of_turn = known.is_some();
            self.counters.stray += 1;
            if header.has(Header::FIRST) {
                self.count_stray(header);
            }
            if out_of_turn {
                self.refuse(slot, header.message, Refusal::OutOfTurn);
            }
            return;
        };
        let queue = pair.receives;
        if header.has(Header::FIRST) && !self.begin_message(slot, queue, header) {
            return;
        }
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return };
        // The rest of a message that was refused.
        let Some(incoming) = pair.incoming.as_mut() else { return };
        if header.has(Header::WRITE) {
            incoming.filled = incoming.total;
        } else if u64::from(header.fragment) > incoming.total - incoming.filled {
            self.counters.nonsense += 1;
            return self.put_back(slot);
        } else {
            self.copy_out(slot, u64::from(header.fragment));
        }
        let Some(pair) = self.pairs[slot].as_deref() else { return };
        let whole = pair.incoming.as_ref().is_some_and(|incoming| incoming.filled == incoming.total);
        match (header.has(Header::LAST), whole) {
            (true, true) => self.finish_message(slot, queue, header),
            (true, false) => {
                self.counters.nonsense += 1;
                self.put_back(slot);
            }
            (false, _) => {}
        }
    }

    /// A message that nobody takes was counted by the sender against a receive queue, which gives it back: whoever has
    /// that queue's place now, even nobody.
    fn count_stray(&mut self, header: &Header) {
        let place = usize::from(header.queue);
        let Some(taken) = self.taken.get_mut(place) else {
            self.counters.nonsense += 1;
            return;
        };
        *taken = taken.wrapping_add(1);
        let shown = self.mine.receives(place);
        shown.store(shown.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        self.news = true;
    }

    fn count_taken(&mut self, queue: u32) {
        let taken = &mut self.taken[place(queue)];
        *taken = taken.wrapping_add(1);
    }

    /// The first part of a message: finds its receive. Returns whether it has one.
    fn begin_message(&mut self, slot: usize, queue: u32, header: &Header) -> bool {
        self.count_taken(queue);
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return false };
        // A message that the sender gave up leaves its receive to the next.
        let left = pair.incoming.take().map(|incoming| incoming.receive);
        let receive = left.or_else(|| self.receives.get_mut(queue).and_then(|queue| queue.take()));
        self.check_limit(queue);
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return false };
        let Some(receive) = receive else {
            self.counters.stray += 1;
            self.show_receives(queue);
            self.refuse(slot, header.message, Refusal::OutOfTurn);
            return false;
        };
        let total = u64::from(header.total);
        if total > receive.len && !header.has(Header::WRITE) {
            self.too_long(slot, queue, header, receive);
            return false;
        }
        pair.incoming = Some(Incoming { receive, total, filled: 0, at: (0, 0) });
        true
    }

    /// A message is longer than its receive. The standard has the receive complete with an error; otherwise it is for
    /// the next message.
    fn too_long(&mut self, slot: usize, queue: u32, header: &Header, receive: Receive) {
        let Some(pair) = self.pairs[slot].as_deref() else { return };
        let (strict, cq, qp) = (pair.config.strict, pair.config.recv_cq, pair.number);
        let Some(receives) = self.receives.get_mut(queue) else { return };
        if strict {
            let entry = Entry::new(receive.id, Completed::Recv, qp, slot).failed(Status::LocalLength);
            receives.give_back(&mut self.protection, receive);
            self.complete(cq, entry);
        } else {
            receives.put_back(receive);
        }
        self.show_receives(queue);
        self.refuse(slot, header.message, Refusal::TooLong);
    }

    /// Tells the sender that a message is refused. By the standard's rules that is the end of the queue pair.
    fn refuse(&mut self, slot: usize, message: u32, why: Refusal) {
        self.counters.refused += 1;
        // The first refusal is what the sender fails of; messages behind it come out of turn.
        if self.mine.pair(slot, Word::Verdict).load(Ordering::Relaxed) == 0 {
            self.mine.pair(slot, Word::Refused).store(message, Ordering::Release);
            self.mine.pair(slot, Word::Verdict).store(why as u32, Ordering::Release);
        }
        self.news = true;
        if self.pairs[slot].as_deref().is_some_and(|pair| pair.config.strict) {
            self.fail(slot);
        }
    }

    /// A message breaks off: its receive is for the next.
    fn put_back(&mut self, slot: usize) {
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return };
        let (queue, incoming) = (pair.receives, pair.incoming.take());
        if let (Some(receives), Some(incoming)) = (self.receives.get_mut(queue), incoming) {
            receives.put_back(incoming.receive);
        }
        self.show_receives(queue);
    }

    /// Copies a part of a message from the ring to its receive's elements, in which there is room for it.
    fn copy_out(&mut self, slot: usize, mut len: u64) {
        let Some(incoming) = self.pairs[slot].as_deref_mut().and_then(|pair| pair.incoming.as_mut()) else { return };
        let mut from = self.reader.offset() + HEADER;
        incoming.filled += len;
        let (mut index, mut at) = incoming.at;
        while len > 0 {
            let Some(sge) = incoming.receive.held.elements.get(index) else { break };
            let (ring, place, left) = self.theirs.ring(from);
            let piece = u64::from(sge.len - at).min(len).min(left as u64);
            let target = self.protection.regions().get(sge.region);
            target.copy_from((sge.offset + u64::from(at)) as usize, ring, place, piece as usize);
            (from, len, at) = (from + piece, len - piece, at + piece as u32);
            if at == sge.len {
                (index, at) = (index + 1, 0);
            }
        }
        incoming.at = (index, at);
    }

    /// The last part of a message is in place.
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
        let completed = if header.has(Header::WRITE) { Completed::RecvWriteImm } else { Completed::Recv };
        let mut entry = Entry::new(incoming.receive.id, completed, qp, slot);
        (entry.bytes, entry.word) = (incoming.total as u32, header.word);
        let flags = [
            (Header::IMM, Entry::IMM),
            (Header::INVALIDATE, Entry::INVALIDATED),
            (Header::SOLICITED, Entry::SOLICITED),
        ];
        for (told, shown) in flags {
            entry.flags |= if header.has(told) { shown } else { 0 };
        }
        if let Some(receives) = self.receives.get_mut(queue) {
            receives.give_back(&mut self.protection, incoming.receive);
        }
        self.news = true;
        self.complete(cq, entry);
    }
}
