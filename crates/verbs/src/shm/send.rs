//! The send queue: one-sided operations are carried out when they are posted, messages go into the ring.

use super::board::{Board, Word};
use super::carry::{Outcome, Payload, is_ready};
use super::endpoint::ShmEndpoint;
use super::pair::{QueuePair, Request, Stage, Waits, kind};
use super::queues::{Entry, Held};
use super::receive::verdict;
use crate::api::{Data, Operation, PostError, QpState, SendWr, Status};
use shotline_memory::{Access, Sge};
use std::time::{Duration, Instant};

/// The longest operation in bytes.
pub(super) const MOST: u64 = 1 << 31;
/// Bytes of requests that have waited and are carried out before everything else gets its turn.
const TURN: u64 = 4 << 20;

impl ShmEndpoint {
    /// Posts a request, and carries it out if nothing is in its way.
    #[inline]
    pub(super) fn post_one(&mut self, slot: usize, wr: &SendWr<'_>) -> Result<(), PostError> {
        let Some(pair) = self.pairs[slot].as_deref() else { return Err(PostError::NoQueue) };
        match pair.state {
            QpState::ReadyToSend | QpState::Error => {}
            state => return Err(PostError::State(state)),
        }
        if !pair.has_room() {
            return Err(PostError::Full);
        }
        if wr.destination.is_some() {
            return Err(PostError::Destination);
        }
        let mut elements = std::mem::take(&mut self.scratch);
        let posted = match self.check(slot, wr, &mut elements) {
            Ok(len) => {
                self.begin(slot, wr, &elements, len);
                Ok(())
            }
            Err(refused) => Err(refused),
        };
        self.scratch = elements;
        posted
    }

    /// Checks the local side of a request, and finds its elements. Returns its length.
    #[inline]
    fn check(&self, slot: usize, wr: &SendWr<'_>, found: &mut Vec<Sge>) -> Result<u64, PostError> {
        let Some(pair) = self.pairs[slot].as_deref() else { return Err(PostError::NoQueue) };
        found.clear();
        let (lands, atomic) = match wr.operation {
            Operation::Read(_) => (true, false),
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => (true, true),
            _ => (false, false),
        };
        let len = match wr.data {
            Data::Inline(bytes) => {
                let most = if lands { 0 } else { pair.config.max_inline };
                if lands || bytes.len() > most as usize {
                    return Err(PostError::Inline { most, found: bytes.len() });
                }
                bytes.len() as u64
            }
            Data::Elements(elements) => {
                if elements.len() > pair.config.max_sge as usize {
                    return Err(PostError::TooManyElements { most: pair.config.max_sge, found: elements.len() });
                }
                let needed = if lands { Access::LOCAL_WRITE } else { Access::NONE };
                let mut len = 0;
                for (index, element) in elements.iter().enumerate() {
                    let place =
                        self.protection.local(pair.config.pd, element.lkey, element.address, element.len, needed);
                    found.push(place.map_err(|refused| PostError::Element { index, refused })?);
                    len += u64::from(element.len);
                }
                len
            }
        };
        let most = if atomic { 8 } else { MOST };
        if len > most || atomic && len != 8 {
            return Err(PostError::Length { most, found: len });
        }
        Ok(len)
    }

    /// Carries a checked request out, or queues it behind those that wait.
    #[inline]
    fn begin(&mut self, slot: usize, wr: &SendWr<'_>, elements: &[Sge], len: u64) {
        let payload = match wr.data {
            Data::Inline(bytes) => Payload::Inline(bytes),
            Data::Elements(_) => Payload::Elements(elements),
        };
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return };
        pair.posted = pair.posted.wrapping_add(1);
        let (number, qp, cq) = (pair.posted, pair.number, pair.config.send_cq);
        if pair.state == QpState::Error {
            let entry = Entry::new(wr.id, kind(&wr.operation), qp, slot).freeing(number);
            return self.complete(cq, entry.failed(Status::Flushed));
        }
        let stage = if pair.carried < pair.requests.len() || pair.is_stopped() {
            Stage::Waiting(0)
        } else {
            match self.carry_out(slot, &wr.operation, payload, len, wr.solicited, 0) {
                Outcome::Done => Stage::Done,
                Outcome::Sent(message) => Stage::Sent(message),
                Outcome::Waits(_, progress) => Stage::Waiting(progress),
                Outcome::Failed(status) => Stage::Failed(status),
            }
        };
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return };
        // The usual end of a one-sided operation: nothing is before it.
        if stage == Stage::Done && pair.requests.is_empty() {
            if wr.signalled {
                let entry = Entry::new(wr.id, kind(&wr.operation), qp, slot).freeing(number);
                self.complete(cq, Entry { bytes: bytes(&wr.operation, len), ..entry });
            }
            return;
        }
        self.queue(slot, wr, elements, len, number, stage);
    }

    /// Puts a request on the send queue.
    fn queue(&mut self, slot: usize, wr: &SendWr<'_>, elements: &[Sge], len: u64, number: u32, stage: Stage) {
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return };
        let mut request = pair.spare.pop().unwrap_or_else(Request::empty);
        (request.id, request.operation, request.len, request.number) = (wr.id, wr.operation, len, number);
        (request.signalled, request.solicited, request.stage) = (wr.signalled, wr.solicited, stage);
        request.inline.clear();
        if matches!(stage, Stage::Waiting(_)) {
            match wr.data {
                Data::Inline(bytes) => request.inline.extend_from_slice(bytes),
                Data::Elements(posted) => {
                    for (sge, element) in elements.iter().zip(posted) {
                        // Cannot fail: the key was found a moment ago.
                        let _ = request.held.hold(&mut self.protection, *sge, element.lkey);
                    }
                }
            }
        } else {
            pair.carried += 1;
        }
        request.is_inline = matches!(wr.data, Data::Inline(_));
        pair.requests.push_back(request);
        self.activate(slot);
        if matches!(stage, Stage::Failed(_)) {
            self.retire(slot);
        }
    }

    fn activate(&mut self, slot: usize) {
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return };
        if !std::mem::replace(&mut pair.active, true) {
            self.active.push(slot as u32);
        }
    }

    /// Goes on with every queue pair that waits for something. Returns whether any got further.
    pub(super) fn advance_all(&mut self) -> bool {
        let (mut done, mut index, mut left) = (false, 0, TURN);
        while let Some(slot) = self.active.get(index).map(|slot| *slot as usize) {
            if left == 0 {
                // The others come first in the next turn.
                self.active.rotate_left(index);
                break;
            }
            done |= self.advance(slot, &mut left);
            match self.pairs[slot].as_deref_mut() {
                Some(pair) if !pair.requests.is_empty() => index += 1,
                gone => {
                    if let Some(pair) = gone {
                        pair.active = false;
                    }
                    self.active.swap_remove(index);
                }
            }
        }
        if self.writer.publish(self.mine.tail()) {
            self.news = true;
        }
        done
    }

    /// Goes on with a queue pair until it waits or nothing is left of what may be carried out.
    fn advance(&mut self, slot: usize, left: &mut u64) -> bool {
        let mut done = self.retire(slot);
        while let Some(pair) = self.pairs[slot].as_deref_mut() {
            let at = pair.carried;
            if pair.is_stopped() || at >= pair.requests.len() || *left == 0 {
                break;
            }
            let request = &mut pair.requests[at];
            let Stage::Waiting(before) = request.stage else { break };
            let held = std::mem::take(&mut request.held);
            let inline = std::mem::take(&mut request.inline);
            let (operation, len, solicited) = (request.operation, request.len, request.solicited);
            let payload = if request.is_inline { Payload::Inline(&inline) } else { Payload::Elements(&held.elements) };
            let outcome = self.carry_out(slot, &operation, payload, len, solicited, before);
            done |= !matches!(outcome, Outcome::Waits(_, progress) if progress == before);
            if matches!(outcome, Outcome::Done) {
                *left = left.saturating_sub(len);
            }
            if !self.settle(slot, at, outcome, held, inline) {
                break;
            }
        }
        self.retire(slot) || done
    }

    /// Notes what came of carrying out the request at a place of the queue. Returns whether the next may be.
    fn settle(&mut self, slot: usize, at: usize, outcome: Outcome, mut held: Held, inline: Vec<u8>) -> bool {
        let late = match outcome {
            Outcome::Waits(waits, _) => self.is_late(slot, waits),
            _ => None,
        };
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return false };
        // A queue pair that failed meanwhile (the ring broke) has flushed its requests.
        let Some(request) = pair.requests.get_mut(at) else {
            held.let_go(&mut self.protection);
            return false;
        };
        let (stage, goes_on) = match (outcome, late) {
            (Outcome::Done, _) => (Stage::Done, true),
            (Outcome::Sent(message), _) => (Stage::Sent(message), true),
            (Outcome::Failed(status), _) | (_, Some(status)) => (Stage::Failed(status), false),
            (Outcome::Waits(_, progress), None) => (Stage::Waiting(progress), false),
        };
        request.stage = stage;
        if matches!(stage, Stage::Waiting(_)) {
            (request.held, request.inline) = (held, inline);
            return false;
        }
        held.let_go(&mut self.protection);
        (request.held, request.inline) = (held, inline);
        (pair.carried, pair.deadline) = (pair.carried + 1, None);
        goes_on
    }

    /// Whether what a queue pair waits for has been waited for long enough, and what it fails of then.
    fn is_late(&mut self, slot: usize, waits: Waits) -> Option<Status> {
        let pair = self.pairs[slot].as_deref_mut()?;
        let patience = match waits {
            Waits::Room => None,
            Waits::Receive if pair.rnr_retries == 7 => None,
            Waits::Receive => {
                let timer = pair.peer_slot.map_or(0, |peer| Board::seen(self.theirs.pair(peer, Word::RnrTimer)));
                Some(Duration::from_nanos(u64::from(timer)) * u32::from(pair.rnr_retries))
            }
            Waits::Peer => pair.patience,
        };
        let Some(patience) = patience else {
            pair.deadline = None;
            return None;
        };
        let now = Instant::now();
        let end = match pair.deadline {
            Some((before, end)) if before == waits => end,
            _ => now + patience,
        };
        pair.deadline = Some((waits, end));
        let status = if waits == Waits::Receive { Status::RnrRetryExceeded } else { Status::RetryExceeded };
        (now >= end).then_some(status)
    }

    /// Completes what is carried out, in order. Returns whether anything was.
    fn retire(&mut self, slot: usize) -> bool {
        let mut done = false;
        while let Some(pair) = self.pairs[slot].as_deref_mut() {
            let Some(request) = pair.requests.front() else { break };
            let status = match request.stage {
                Stage::Waiting(_) => break,
                Stage::Done => Status::Success,
                Stage::Failed(status) => status,
                Stage::Sent(message) => match arrived(&self.theirs, pair, message) {
                    Some(status) => status,
                    None => {
                        let ended = pair.peer_slot.is_none_or(|peer| !is_ready(&self.theirs, pair, peer));
                        match ended.then(|| self.is_late(slot, Waits::Peer)).flatten() {
                            Some(status) => status,
                            None => break,
                        }
                    }
                },
            };
            let Some(pair) = self.pairs[slot].as_deref_mut() else { break };
            let Some(mut request) = pair.requests.pop_front() else { break };
            pair.carried -= 1;
            let cq = pair.config.send_cq;
            let entry = Entry::new(request.id, kind(&request.operation), pair.number, slot).freeing(request.number);
            let entry = match status {
                Status::Success => Entry { bytes: bytes(&request.operation, request.len), ..entry },
                _ => entry.failed(status),
            };
            request.held.let_go(&mut self.protection);
            let shown = request.signalled || status != Status::Success;
            pair.spare.push(request);
            if shown {
                self.complete(cq, entry);
            }
            if status != Status::Success {
                self.fail(slot);
            }
            done = true;
        }
        done
    }
}

impl QueuePair {
    /// Whether a request has failed that has not completed yet: nothing behind it is carried out.
    fn is_stopped(&self) -> bool {
        self.carried > 0
            && self.requests.get(self.carried - 1).is_some_and(|last| matches!(last.stage, Stage::Failed(_)))
    }
}

impl Request {
    fn empty() -> Self {
        Self {
            id: 0,
            operation: Operation::Send,
            held: Held::default(),
            inline: Vec::new(),
            is_inline: false,
            len: 0,
            signalled: true,
            solicited: false,
            number: 0,
            stage: Stage::Done,
        }
    }
}

/// Whether the peer has taken a message, and how that ended.
fn arrived(theirs: &Board, pair: &QueuePair, message: u32) -> Option<Status> {
    let peer = pair.peer_slot.filter(|peer| Board::seen(theirs.pair(*peer, Word::Number)) == pair.peer)?;
    if Board::seen(theirs.pair(peer, Word::Expected)).wrapping_sub(message) as i32 > 0 {
        return Some(Status::Success);
    }
    let code = Board::seen(theirs.pair(peer, Word::Verdict));
    (code != 0 && Board::seen(theirs.pair(peer, Word::Refused)) == message).then(|| verdict(code))
}

/// Bytes that came in.
#[inline]
fn bytes(operation: &Operation, len: u64) -> u32 {
    match operation {
        Operation::Read(_) | Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => len as u32,
        _ => 0,
    }
}
