//! Carrying a request out: the copy, or the record in the ring.

use super::board::{Board, QUEUES, READY, Word};
use super::endpoint::ShmEndpoint;
use super::pair::{QueuePair, Waits};
use super::record::{HEADER, Header, record_len};
use super::rights::PeerKey;
use crate::api::{Operation, Remote, Status};
use shotline_memory::{Access, Broken, Refused, Regions, Sge};

/// Most bytes of a message in one record: the reader copies them out while the next are copied in, from the cache.
const FRAGMENT: u64 = 32 << 10;
/// From here on, a record is shown at once instead of with the doorbell.
const AT_ONCE: u64 = 4 << 10;
/// The local bytes of a request.
#[derive(Clone, Copy)]
pub(super) enum Payload<'a> {
    Elements(&'a [Sge]),
    Inline(&'a [u8]),
}

/// What came of carrying a request out.
pub(super) enum Outcome {
    Done,
    Sent(u32),
    Waits(Waits, u64),
    Failed(Status),
}

impl From<Waits> for Outcome {
    fn from(waits: Waits) -> Self {
        Self::Waits(waits, 0)
    }
}

impl ShmEndpoint {
    #[inline]
    pub(super) fn carry_out(
        &mut self,
        slot: usize,
        operation: &Operation,
        payload: Payload<'_>,
        len: u64,
        solicited: bool,
        progress: u64,
    ) -> Outcome {
        let peer = match self.peer(slot) {
            Ok(peer) => peer,
            Err(waits) => return Outcome::Waits(waits, progress),
        };
        let flags = if solicited { Header::SOLICITED } else { 0 };
        let access = match operation {
            Operation::Send => return self.send(slot, peer, payload, len, progress, flags, 0),
            Operation::SendImm(imm) => {
                return self.send(slot, peer, payload, len, progress, flags | Header::IMM, *imm);
            }
            Operation::SendInvalidate(rkey) => {
                return self.send(slot, peer, payload, len, progress, flags | Header::INVALIDATE, *rkey);
            }
            Operation::WriteImm(remote, imm) => {
                return self.write_imm(slot, peer, *remote, payload, len, flags, *imm);
            }
            Operation::Write(_) => Access::REMOTE_WRITE,
            Operation::Read(_) => Access::REMOTE_READ,
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => Access::REMOTE_ATOMIC,
        };
        let (Operation::Write(remote)
        | Operation::Read(remote)
        | Operation::CompareSwap { remote, .. }
        | Operation::FetchAdd { remote, .. }) = operation
        else {
            return Outcome::Failed(Status::LocalOperation);
        };
        if len == 0 {
            // Without bytes there is no key to check (IBTA 9.7.4.1.3).
            return Outcome::Done;
        }
        let refused = match self.touch(peer, *remote, len, access) {
            Ok((key, offset)) => {
                let regions = self.protection.regions();
                match (operation, payload) {
                    (Operation::Write(_), payload) => put(regions, key, offset, payload),
                    (Operation::Read(_), Payload::Elements(elements)) => get(regions, key, offset, elements),
                    (Operation::CompareSwap { compare, swap, .. }, Payload::Elements(elements)) => {
                        let was = key.region.compare_swap(offset, *compare, *swap);
                        scatter(regions, elements, &was.to_ne_bytes());
                    }
                    (Operation::FetchAdd { add, .. }, Payload::Elements(elements)) => {
                        scatter(regions, elements, &key.region.fetch_add(offset, *add).to_ne_bytes());
                    }
                    _ => {}
                }
                return Outcome::Done;
            }
            Err(refused) => refused,
        };
        // The key may have been told, and not been heard of yet.
        if refused == Refused::UnknownKey && self.asks_again() {
            let outcome = self.carry_out(slot, operation, payload, len, solicited, progress);
            self.asked = false;
            return outcome;
        }
        self.refused(slot, peer, refused)
    }

    /// Whether a key that is not known may have been told meanwhile. Once an operation: a peer that talks without end
    /// would be listened to without end.
    #[cold]
    fn asks_again(&mut self) -> bool {
        self.asked = !self.asked && self.listen();
        self.asked
    }

    /// The peer would refuse this. One that follows the standard's rules wants to know of it.
    #[cold]
    fn refused(&mut self, slot: usize, peer: usize, why: Refused) -> Outcome {
        if Board::seen(self.theirs.pair(peer, Word::Strict)) == 1
            && let Some(pair) = self.pairs[slot].as_deref()
        {
            let (qp, from) = (pair.peer, pair.number);
            self.control.tell(super::control::Message::Fault { qp, from });
        }
        // IBTA 9.7.4.1.1 has an address off its boundary as an invalid request.
        Outcome::Failed(if why == Refused::Misaligned { Status::RemoteInvalid } else { Status::RemoteAccess })
    }

    /// The line of the peer's queue pair on its board, if it receives from this one.
    #[inline]
    fn peer(&mut self, slot: usize) -> Result<usize, Waits> {
        let pair = self.pairs[slot].as_deref_mut().ok_or(Waits::Peer)?;
        if let Some(peer) = pair.peer_slot {
            if is_ready(&self.theirs, pair, peer) {
                return Ok(peer);
            }
            if Board::seen(self.theirs.pair(peer, Word::Number)) == pair.peer {
                return Err(Waits::Peer);
            }
        }
        let changes = Board::seen(self.theirs.changes());
        if pair.looked == Some(changes) {
            return Err(Waits::Peer);
        }
        let found = (0..QUEUES).find(|peer| Board::seen(self.theirs.pair(*peer, Word::Number)) == pair.peer);
        pair.looked = found.is_none().then_some(changes);
        pair.peer_slot = found;
        found.filter(|peer| is_ready(&self.theirs, pair, *peer)).ok_or(Waits::Peer)
    }

    /// The peer's memory that a request names, if queue pair, key, rights and bounds allow it.
    #[inline]
    fn touch(&self, peer: usize, remote: Remote, len: u64, needed: Access) -> Result<(&PeerKey, usize), Refused> {
        let through = Access::from_bits(Board::seen(self.theirs.pair(peer, Word::Access)) as u8);
        if !through.allows(needed) {
            return Err(Refused::Rights);
        }
        let key = self.rights.theirs.get(&remote.rkey).ok_or(Refused::UnknownKey)?;
        if Board::seen(self.theirs.live(key.offer.slot as usize)) != remote.rkey {
            return Err(Refused::UnknownKey);
        }
        let domain = Board::seen(self.theirs.pair(peer, Word::Domain));
        Ok((key, key.check(domain, remote.address, len, needed)?))
    }

    /// Whether the peer can take another message in the receive queue of one of its queue pairs. Returns the queue.
    #[inline]
    fn credit(&mut self, peer: usize) -> Result<usize, Outcome> {
        let queue = Board::seen(self.theirs.pair(peer, Word::Receives)) as usize;
        if queue >= QUEUES {
            self.broken();
            return Err(Outcome::Failed(Status::BadResponse));
        }
        let posted = Board::seen(self.theirs.receives(queue));
        if posted.wrapping_sub(self.sent_to[queue]) as i32 > 0 { Ok(queue) } else { Err(Waits::Receive.into()) }
    }

    #[allow(clippy::too_many_arguments)] // A record's.
    fn send(
        &mut self,
        slot: usize,
        peer: usize,
        payload: Payload<'_>,
        len: u64,
        mut progress: u64,
        flags: u16,
        word: u32,
    ) -> Outcome {
        let mut flags = flags;
        // A message of no bytes is in one record, so no progress means that nothing is in the ring.
        if progress == 0 {
            match self.credit(peer) {
                Ok(queue) => {
                    let first = len.min(FRAGMENT);
                    match self.has_room(first) {
                        Ok(true) => {}
                        Ok(false) => return Waits::Room.into(),
                        Err(Broken) => return self.ring_broke(),
                    }
                    self.count_sent(queue);
                    flags |= Header::FIRST;
                }
                Err(outcome) => return outcome,
            }
        }
        loop {
            let fragment = (len - progress).min(FRAGMENT);
            match self.has_room(fragment) {
                Ok(true) => {}
                Ok(false) => {
                    self.news |= self.writer.publish(self.mine.tail());
                    return Outcome::Waits(Waits::Room, progress);
                }
                Err(Broken) => return self.ring_broke(),
            }
            let last = progress + fragment == len;
            let now = if last { flags | Header::LAST } else { flags };
            self.record(slot, peer, now, word, len, fragment);
            self.fill(payload, progress, fragment);
            self.writer.wrote(record_len(fragment));
            if fragment >= AT_ONCE {
                self.news |= self.writer.publish(self.mine.tail());
            }
            flags &= !Header::FIRST;
            progress += fragment;
            if last {
                return Outcome::Sent(self.next_message(slot));
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // A record's.
    fn write_imm(
        &mut self,
        slot: usize,
        peer: usize,
        remote: Remote,
        payload: Payload<'_>,
        len: u64,
        flags: u16,
        imm: u32,
    ) -> Outcome {
        let queue = match self.credit(peer) {
            Ok(queue) => queue,
            Err(outcome) => return outcome,
        };
        match self.has_room(0) {
            Ok(true) => {}
            Ok(false) => return Waits::Room.into(),
            Err(Broken) => return self.ring_broke(),
        }
        if len > 0 {
            let refused = match self.touch(peer, remote, len, Access::REMOTE_WRITE) {
                Ok((key, offset)) => {
                    put(self.protection.regions(), key, offset, payload);
                    None
                }
                Err(refused) => Some(refused),
            };
            match refused {
                None => {}
                Some(Refused::UnknownKey) if self.asks_again() => {
                    let outcome = self.write_imm(slot, peer, remote, payload, len, flags, imm);
                    self.asked = false;
                    return outcome;
                }
                Some(refused) => return self.refused(slot, peer, refused),
            }
        }
        self.count_sent(queue);
        let flags = flags | Header::FIRST | Header::LAST | Header::IMM | Header::WRITE;
        self.record(slot, peer, flags, imm, len, 0);
        self.writer.wrote(record_len(0));
        Outcome::Sent(self.next_message(slot))
    }

    /// A message begins that takes a receive of this queue of the peer's.
    #[inline]
    fn count_sent(&mut self, queue: usize) {
        self.sent_to[queue] = self.sent_to[queue].wrapping_add(1);
        self.counted = queue as u16;
    }

    fn next_message(&mut self, slot: usize) -> u32 {
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return 0 };
        let message = pair.next;
        pair.next = pair.next.wrapping_add(1);
        message
    }

    #[inline]
    fn has_room(&mut self, fragment: u64) -> Result<bool, Broken> {
        self.writer.has_room(self.theirs.head(), record_len(fragment))
    }
    #[cold]
    fn ring_broke(&mut self) -> Outcome {
        self.broken();
        Outcome::Failed(Status::BadResponse)
    }

    /// Writes a record's header at the writer's position.
    fn record(&mut self, slot: usize, peer: usize, flags: u16, word: u32, total: u64, fragment: u64) {
        let Some(pair) = self.pairs[slot].as_deref() else { return };
        let header = Header {
            to_slot: peer as u32,
            to: pair.peer,
            from: pair.number,
            message: pair.next,
            flags,
            queue: self.counted,
            word,
            total: total as u32,
            fragment: fragment as u32,
        };
        // Records begin at multiples of 64, so a header is always in one piece.
        let (board, at, _) = self.mine.ring(self.writer.offset());
        board.write(at, &header.bytes());
    }

    /// Copies `len` bytes of a payload, from `skip` on, behind the header.
    fn fill(&mut self, payload: Payload<'_>, mut skip: u64, mut len: u64) {
        let mut to = self.writer.offset() + HEADER;
        match payload {
            Payload::Inline(bytes) => {
                let mut rest = &bytes[skip as usize..][..len as usize];
                while !rest.is_empty() {
                    let (board, at, left) = self.mine.ring(to);
                    let (now, later) = rest.split_at(left.min(rest.len()));
                    board.write(at, now);
                    (rest, to) = (later, to + now.len() as u64);
                }
            }
            Payload::Elements(elements) => {
                for sge in elements {
                    let mut from = skip.min(u64::from(sge.len));
                    skip -= from;
                    while from < u64::from(sge.len) && len > 0 {
                        let (board, at, left) = self.mine.ring(to);
                        let piece = (u64::from(sge.len) - from).min(len).min(left as u64);
                        let source = self.protection.regions().get(sge.region);
                        board.copy_from(at, source, (sge.offset + from) as usize, piece as usize);
                        (from, len, to) = (from + piece, len - piece, to + piece);
                    }
                }
            }
        }
    }
}

#[inline]
pub(super) fn is_ready(theirs: &Board, pair: &QueuePair, peer: usize) -> bool {
    Board::seen(theirs.pair(peer, Word::Number)) == pair.peer
        && Board::seen(theirs.pair(peer, Word::State)) == READY
        && Board::seen(theirs.pair(peer, Word::Peer)) == pair.number
}

#[inline]
fn put(regions: &Regions, key: &PeerKey, mut offset: usize, payload: Payload<'_>) {
    match payload {
        Payload::Inline(bytes) => key.region.write(offset, bytes),
        Payload::Elements(elements) => {
            for sge in elements {
                key.region.copy_from(offset, regions.get(sge.region), sge.offset as usize, sge.len as usize);
                offset += sge.len as usize;
            }
        }
    }
}

#[inline]
fn get(regions: &Regions, key: &PeerKey, mut offset: usize, elements: &[Sge]) {
    for sge in elements {
        regions.get(sge.region).copy_from(sge.offset as usize, &key.region, offset, sge.len as usize);
        offset += sge.len as usize;
    }
}

/// Writes an atomic operation's result, as this machine keeps it, to its elements.
fn scatter(regions: &Regions, elements: &[Sge], mut bytes: &[u8]) {
    for sge in elements {
        let (now, later) = bytes.split_at(bytes.len().min(sge.len as usize));
        regions.get(sge.region).write(sge.offset as usize, now);
        bytes = later;
    }
}
