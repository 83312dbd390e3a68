//! Execution of a request: a copy for one-sided operations, a record in the ring for messages.

use super::board::{Board, MAX_QUEUES, READY, Word};
use super::endpoint::ShmEndpoint;
use super::keys::PeerKey;
use super::pair::{Payload, QueuePair, WaitReason};
use super::path::{copy_part, is_direct};
use super::record::{HEADER, Header, record_len};
use crate::api::{Operation, Remote, Status};
use shotline_memory::{Access, AccessError, InvalidPosition, PathDirection, Regions, Sge};

/// Maximum payload of a record, in bytes: the reader copies it from the cache while the next one is written.
const MAX_FRAGMENT_BYTES: u64 = 32 << 10;
/// Minimum payload, in bytes, of a record that is published at once instead of with the doorbell.
const MIN_EARLY_PUBLISH_BYTES: u64 = 4 << 10;

/// Result of executing a request.
pub(super) enum Outcome {
    /// A one-sided operation was executed.
    Done,
    /// The message with this sequence number is in the ring.
    Sent(u32),
    /// It cannot continue now; this many bytes of its message are in the ring, or have passed over a path.
    Waiting(WaitReason, u64),
    /// It failed.
    Failed(Status),
}

impl From<WaitReason> for Outcome {
    fn from(reason: WaitReason) -> Self {
        Self::Waiting(reason, 0)
    }
}

impl ShmEndpoint {
    /// Executes a request, or continues it if `progress` bytes of its message are in the ring already, or have passed
    /// over a path.
    #[inline]
    pub(super) fn execute(
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
            Err(reason) => return Outcome::Waiting(reason, progress),
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
                return self.write_imm(slot, peer, *remote, payload, (progress, len), flags, *imm);
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
            // The key of an empty operation is not checked (IBTA C9-88).
            return Outcome::Done;
        }
        let refused = match self.check_remote(peer, *remote, len, access) {
            Ok((key, offset)) => {
                let regions = self.protection.regions();
                let direction = match operation {
                    Operation::Write(_) => PathDirection::Write,
                    Operation::Read(_) => PathDirection::Read,
                    _ => {
                        execute_atomic(regions, key, offset, operation, payload);
                        return Outcome::Done;
                    }
                };
                if !is_direct(regions, key, payload) {
                    let part = copy_part(regions, (key, offset), direction, payload, (progress, len), self.turn);
                    self.turn = part.turn;
                    let progress = progress + part.bytes;
                    return if progress == len { Outcome::Done } else { Outcome::Waiting(WaitReason::Path, progress) };
                }
                match (direction, payload) {
                    (PathDirection::Write, payload) => copy_to_peer(regions, key, offset, payload),
                    (PathDirection::Read, Payload::Elements(elements)) => {
                        copy_from_peer(regions, key, offset, elements);
                    }
                    (PathDirection::Read, Payload::Inline(_)) => {}
                }
                return Outcome::Done;
            }
            Err(refused) => refused,
        };
        // The announcement of the key may still be unread.
        if refused == AccessError::UnknownKey && self.recheck_keys() {
            let outcome = self.execute(slot, operation, payload, len, solicited, progress);
            self.rechecked = false;
            return outcome;
        }
        self.refused(slot, peer, refused)
    }

    /// Polls the socket for announcements of an unknown key. Returns `true` if there were messages. At most once per
    /// operation, so that a peer that keeps sending cannot block it.
    #[cold]
    fn recheck_keys(&mut self) -> bool {
        self.rechecked = !self.rechecked && self.poll_socket();
        self.rechecked
    }

    /// Refuses an operation on behalf of the peer, and reports it to the peer if its queue pair is strict.
    #[cold]
    fn refused(&mut self, slot: usize, peer: usize, reason: AccessError) -> Outcome {
        if Board::load(self.theirs.pair(peer, Word::Strict)) == 1
            && let Some(pair) = self.pairs[slot].as_deref()
        {
            let (qp, from) = (pair.peer, pair.number);
            self.control.send(super::control::Message::Fault { qp, from });
        }
        // By IBTA 9.7.4.1.1, a misaligned address is an invalid request.
        Outcome::Failed(if reason == AccessError::Misaligned { Status::RemoteInvalid } else { Status::RemoteAccess })
    }

    /// Returns the slot of the peer's queue pair on its board, if it can receive from this one.
    #[inline]
    fn peer(&mut self, slot: usize) -> Result<usize, WaitReason> {
        let pair = self.pairs[slot].as_deref_mut().ok_or(WaitReason::Peer)?;
        if let Some(peer) = pair.peer_slot {
            if is_ready(&self.theirs, pair, peer) {
                return Ok(peer);
            }
            if Board::load(self.theirs.pair(peer, Word::Number)) == pair.peer {
                return Err(WaitReason::Peer);
            }
        }
        let changes = Board::load(self.theirs.changes());
        if pair.searched_at == Some(changes) {
            return Err(WaitReason::Peer);
        }
        let found = (0..MAX_QUEUES).find(|peer| Board::load(self.theirs.pair(*peer, Word::Number)) == pair.peer);
        pair.searched_at = found.is_none().then_some(changes);
        pair.peer_slot = found;
        found.filter(|peer| is_ready(&self.theirs, pair, *peer)).ok_or(WaitReason::Peer)
    }

    /// Returns the key and offset of the remote memory of a request, if queue pair, key, access rights and bounds allow
    /// it.
    #[inline]
    fn check_remote(
        &self,
        peer: usize,
        remote: Remote,
        len: u64,
        needed: Access,
    ) -> Result<(&PeerKey, usize), AccessError> {
        let pair_access = Access::from_bits(Board::load(self.theirs.pair(peer, Word::Access)) as u8);
        if !pair_access.allows(needed) {
            return Err(AccessError::Rights);
        }
        let key = self.keys.theirs.get(&remote.rkey).ok_or(AccessError::UnknownKey)?;
        if Board::load(self.theirs.live(key.offer.slot as usize)) != remote.rkey {
            return Err(AccessError::UnknownKey);
        }
        let domain = Board::load(self.theirs.pair(peer, Word::Domain));
        Ok((key, key.check(domain, remote.address, len, needed)?))
    }

    /// Returns the slot of the receive queue of a queue pair of the peer, if it has a receive for another message.
    #[inline]
    fn credit(&mut self, peer: usize) -> Result<usize, Outcome> {
        let queue = Board::load(self.theirs.pair(peer, Word::Receives)) as usize;
        if queue >= MAX_QUEUES {
            self.fail_link();
            return Err(Outcome::Failed(Status::BadResponse));
        }
        let posted = Board::load(self.theirs.receives(queue));
        if posted.wrapping_sub(self.sent_to[queue]) as i32 > 0 { Ok(queue) } else { Err(WaitReason::Receive.into()) }
    }

    /// Writes a message to the ring in fragments, from byte `progress` on. `word` is its immediate data or the key to
    /// invalidate.
    #[allow(clippy::too_many_arguments)] // fields of a record
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
        // An empty message is one record, so no progress means that nothing is in the ring.
        if progress == 0 {
            match self.credit(peer) {
                Ok(queue) => {
                    let first = len.min(MAX_FRAGMENT_BYTES);
                    match self.has_space(first) {
                        Ok(true) => {}
                        Ok(false) => return WaitReason::RingSpace.into(),
                        Err(InvalidPosition) => return self.fail_ring(),
                    }
                    self.count_sent(queue);
                    flags |= Header::FIRST;
                }
                Err(outcome) => return outcome,
            }
        }
        loop {
            let fragment = (len - progress).min(MAX_FRAGMENT_BYTES);
            match self.has_space(fragment) {
                Ok(true) => {}
                Ok(false) => {
                    self.must_notify |= self.writer.publish(self.mine.tail());
                    return Outcome::Waiting(WaitReason::RingSpace, progress);
                }
                Err(InvalidPosition) => return self.fail_ring(),
            }
            let last = progress + fragment == len;
            let now = if last { flags | Header::LAST } else { flags };
            self.write_header(slot, peer, now, word, len, fragment);
            self.write_payload(payload, progress, fragment);
            self.writer.advance(record_len(fragment));
            if fragment >= MIN_EARLY_PUBLISH_BYTES {
                self.must_notify |= self.writer.publish(self.mine.tail());
            }
            flags &= !Header::FIRST;
            progress += fragment;
            if last {
                return Outcome::Sent(self.next_message(slot));
            }
        }
    }

    /// Executes a WRITE with immediate data: copies the payload, then writes a record without payload to the ring.
    /// `progress` bytes of the payload have passed over a path already.
    #[allow(clippy::too_many_arguments)] // fields of a record
    fn write_imm(
        &mut self,
        slot: usize,
        peer: usize,
        remote: Remote,
        payload: Payload<'_>,
        (progress, len): (u64, u64),
        flags: u16,
        imm: u32,
    ) -> Outcome {
        let queue = match self.credit(peer) {
            Ok(queue) => queue,
            Err(Outcome::Waiting(reason, _)) => return Outcome::Waiting(reason, progress),
            Err(outcome) => return outcome,
        };
        match self.has_space(0) {
            Ok(true) => {}
            Ok(false) => return Outcome::Waiting(WaitReason::RingSpace, progress),
            Err(InvalidPosition) => return self.fail_ring(),
        }
        if len > 0 {
            let refused = match self.check_remote(peer, remote, len, Access::REMOTE_WRITE) {
                Ok((key, offset)) => {
                    let regions = self.protection.regions();
                    if is_direct(regions, key, payload) {
                        copy_to_peer(regions, key, offset, payload);
                    } else {
                        let (to, write) = ((key, offset), PathDirection::Write);
                        let part = copy_part(regions, to, write, payload, (progress, len), self.turn);
                        self.turn = part.turn;
                        if progress + part.bytes < len {
                            return Outcome::Waiting(WaitReason::Path, progress + part.bytes);
                        }
                    }
                    None
                }
                Err(refused) => Some(refused),
            };
            match refused {
                None => {}
                Some(AccessError::UnknownKey) if self.recheck_keys() => {
                    let outcome = self.write_imm(slot, peer, remote, payload, (progress, len), flags, imm);
                    self.rechecked = false;
                    return outcome;
                }
                Some(refused) => return self.refused(slot, peer, refused),
            }
        }
        self.count_sent(queue);
        let flags = flags | Header::FIRST | Header::LAST | Header::IMM | Header::WRITE;
        self.write_header(slot, peer, flags, imm, len, 0);
        self.writer.advance(record_len(0));
        Outcome::Sent(self.next_message(slot))
    }

    /// Counts a message against a receive queue of the peer.
    #[inline]
    fn count_sent(&mut self, queue: usize) {
        self.sent_to[queue] = self.sent_to[queue].wrapping_add(1);
        self.last_queue = queue as u16;
    }

    /// Returns the sequence number of the message that was written, and advances to the next one.
    fn next_message(&mut self, slot: usize) -> u32 {
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return 0 };
        let message = pair.next_message;
        pair.next_message = pair.next_message.wrapping_add(1);
        message
    }

    #[inline]
    fn has_space(&mut self, fragment: u64) -> Result<bool, InvalidPosition> {
        self.writer.has_space(self.theirs.head(), record_len(fragment))
    }
    #[cold]
    fn fail_ring(&mut self) -> Outcome {
        self.fail_link();
        Outcome::Failed(Status::BadResponse)
    }

    /// Writes a record's header at the writer's position.
    fn write_header(&mut self, slot: usize, peer: usize, flags: u16, word: u32, total: u64, fragment: u64) {
        let Some(pair) = self.pairs[slot].as_deref() else { return };
        let header = Header {
            to_slot: peer as u32,
            to: pair.peer,
            from: pair.number,
            message: pair.next_message,
            flags,
            queue: self.last_queue,
            word,
            total: total as u32,
            fragment: fragment as u32,
        };
        // Records are 64-byte aligned, so a header is contiguous.
        let (board, offset, _) = self.mine.ring(self.writer.offset());
        board.write(offset, &header.bytes());
    }

    /// Copies `len` bytes of a payload, starting at `skip`, after the header.
    fn write_payload(&mut self, payload: Payload<'_>, mut skip: u64, mut len: u64) {
        let mut position = self.writer.offset() + HEADER;
        match payload {
            Payload::Inline(bytes) => {
                let mut rest = &bytes[skip as usize..][..len as usize];
                while !rest.is_empty() {
                    let (board, offset, left) = self.mine.ring(position);
                    let (now, later) = rest.split_at(left.min(rest.len()));
                    board.write(offset, now);
                    (rest, position) = (later, position + now.len() as u64);
                }
            }
            Payload::Elements(elements) => {
                for sge in elements {
                    let mut from = skip.min(u64::from(sge.len));
                    skip -= from;
                    while from < u64::from(sge.len) && len > 0 {
                        let (board, offset, left) = self.mine.ring(position);
                        let piece = (u64::from(sge.len) - from).min(len).min(left as u64);
                        let source = self.protection.regions().get(sge.region);
                        board.copy_from(offset, source, (sge.offset + from) as usize, piece as usize);
                        (from, len, position) = (from + piece, len - piece, position + piece);
                    }
                }
            }
        }
    }
}

/// Returns `true` if the peer's queue pair in this slot is connected to `pair` and can receive.
#[inline]
pub(super) fn is_ready(theirs: &Board, pair: &QueuePair, peer: usize) -> bool {
    Board::load(theirs.pair(peer, Word::Number)) == pair.peer
        && Board::load(theirs.pair(peer, Word::State)) == READY
        && Board::load(theirs.pair(peer, Word::Peer)) == pair.number
}

#[inline]
fn copy_to_peer(regions: &Regions, key: &PeerKey, mut offset: usize, payload: Payload<'_>) {
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
fn copy_from_peer(regions: &Regions, key: &PeerKey, mut offset: usize, elements: &[Sge]) {
    for sge in elements {
        regions.get(sge.region).copy_from(sge.offset as usize, &key.region, offset, sge.len as usize);
        offset += sge.len as usize;
    }
}

/// Executes an atomic operation. Memory that is not mapped has none: its keys do not allow them.
#[inline]
fn execute_atomic(regions: &Regions, key: &PeerKey, offset: usize, operation: &Operation, payload: Payload<'_>) {
    let Payload::Elements(elements) = payload else { return };
    let original = match operation {
        Operation::CompareSwap { compare, swap, .. } => key.region.compare_swap(offset, *compare, *swap),
        Operation::FetchAdd { add, .. } => key.region.fetch_add(offset, *add),
        _ => return,
    };
    scatter(regions, elements, &original.to_ne_bytes());
}

/// Writes an atomic operation's result, in native byte order, to its elements.
fn scatter(regions: &Regions, elements: &[Sge], mut bytes: &[u8]) {
    for sge in elements {
        let (now, later) = bytes.split_at(bytes.len().min(sge.len as usize));
        regions.get(sge.region).write(sge.offset as usize, now);
        bytes = later;
    }
}
