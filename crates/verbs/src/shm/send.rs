//! The send queue: one-sided operations are executed when they are posted, messages are written to the ring.

use super::board::{Board, Word};
use super::endpoint::ShmEndpoint;
use super::execute::{Outcome, is_ready};
use super::pair::{Payload, QueuePair, Request, Stage, WaitReason, kind};
use super::path::Turn;
use super::queues::{Entry, PinnedElements};
use super::receive::refusal_status;
use crate::api::{Data, Operation, PostError, QpState, SendWr, Status};
use shotline_memory::{Access, Sge};
use std::time::{Duration, Instant};

/// Maximum length of an operation in bytes.
pub(super) const MAX_OPERATION_BYTES: u64 = 1 << 31;
/// Maximum bytes of waiting one-sided operations executed before other work continues.
const MAX_TURN_BYTES: u64 = 4 << 20;
/// Maximum time until a peer counts as lost: the clock must not overflow.
const MAX_TIMEOUT: Duration = Duration::from_secs(1 << 32);

impl ShmEndpoint {
    /// Posts a request, and executes it at once if possible.
    #[inline]
    pub(super) fn post_one(&mut self, slot: usize, wr: &SendWr<'_>) -> Result<(), PostError> {
        let Some(pair) = self.pairs[slot].as_deref() else { return Err(PostError::NoQueue) };
        match pair.state {
            QpState::ReadyToSend | QpState::Error => {}
            state => return Err(PostError::State(state)),
        }
        if !pair.has_space() {
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

    /// Checks the local side of a request, and resolves its elements. Returns its length in bytes.
    #[inline]
    fn check(&self, slot: usize, wr: &SendWr<'_>, resolved: &mut Vec<Sge>) -> Result<u64, PostError> {
        let Some(pair) = self.pairs[slot].as_deref() else { return Err(PostError::NoQueue) };
        resolved.clear();
        let (writes_local, is_atomic) = match wr.operation {
            Operation::Read(_) => (true, false),
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => (true, true),
            _ => (false, false),
        };
        let len = match wr.data {
            Data::Inline(bytes) => {
                let max = if writes_local { 0 } else { pair.config.max_inline };
                if writes_local || bytes.len() > max as usize {
                    return Err(PostError::Inline { max, found: bytes.len() });
                }
                bytes.len() as u64
            }
            Data::Elements(elements) => {
                if elements.len() > pair.config.max_sge as usize {
                    return Err(PostError::TooManyElements { max: pair.config.max_sge, found: elements.len() });
                }
                let needed = if writes_local { Access::LOCAL_WRITE } else { Access::NONE };
                let mut len = 0;
                for (index, element) in elements.iter().enumerate() {
                    let sge = self.protection.local(pair.config.pd, element.lkey, element.address, element.len, needed);
                    resolved.push(sge.map_err(|refused| PostError::Element { index, refused })?);
                    len += u64::from(element.len);
                }
                len
            }
        };
        let max = if is_atomic { 8 } else { MAX_OPERATION_BYTES };
        if len > max || is_atomic && len != 8 {
            return Err(PostError::Length { max, found: len });
        }
        Ok(len)
    }

    /// Executes a validated request, or queues it after waiting ones.
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
        let stage = if pair.executed < pair.requests.len() || pair.has_failed_request() {
            Stage::Waiting(0)
        } else {
            self.turn = self.turn.of_operation(false);
            match self.execute(slot, &wr.operation, payload, len, wr.solicited, 0) {
                Outcome::Done => Stage::Done,
                Outcome::Sent(message) => Stage::Sent(message),
                Outcome::Waiting(_, progress) => Stage::Waiting(progress),
                Outcome::Failed(status) => Stage::Failed(status),
            }
        };
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return };
        // Fast path of one-sided operations: no earlier request is incomplete.
        if stage == Stage::Done && pair.requests.is_empty() {
            if wr.signalled {
                let entry = Entry::new(wr.id, kind(&wr.operation), qp, slot).freeing(number);
                self.complete(cq, Entry { bytes: local_bytes(&wr.operation, len), ..entry });
            }
            return;
        }
        self.queue(slot, wr, elements, len, number, stage);
    }

    /// Adds a request to the send queue.
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
                        // This cannot fail: the key was resolved just before.
                        let _ = request.pinned.pin(&mut self.protection, *sge, element.lkey);
                    }
                }
            }
        } else {
            pair.executed += 1;
        }
        request.is_inline = matches!(wr.data, Data::Inline(_));
        pair.requests.push_back(request);
        self.activate(slot);
        if matches!(stage, Stage::Failed(_)) {
            self.retire(slot);
        }
    }

    /// Adds a queue pair to the list of those with incomplete requests.
    fn activate(&mut self, slot: usize) {
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return };
        if !std::mem::replace(&mut pair.active, true) {
            self.active.push(slot as u32);
        }
    }

    /// Advances all queue pairs with incomplete requests. Returns `true` if there was progress.
    pub(super) fn advance_all(&mut self) -> bool {
        let (mut done, mut index, mut left) = (false, 0, MAX_TURN_BYTES);
        // Index of the queue pair that comes first in the next call: the one after the queue pair that used up this one.
        let mut first = None;
        self.turn = Turn::new();
        while let Some(slot) = self.active.get(index).map(|slot| *slot as usize) {
            if left == 0 {
                first.get_or_insert(index);
                break;
            }
            done |= self.advance(slot, &mut left);
            match self.pairs[slot].as_deref_mut() {
                Some(pair) if !pair.requests.is_empty() => index += 1,
                idle => {
                    if let Some(pair) = idle {
                        pair.active = false;
                    }
                    self.active.swap_remove(index);
                }
            }
            if self.turn.is_over() {
                first.get_or_insert(index);
            }
        }
        let first = first.unwrap_or(0).min(self.active.len());
        self.active.rotate_left(first);
        if self.writer.publish(self.mine.tail()) {
            self.must_notify = true;
        }
        done
    }

    /// Executes requests of a queue pair until one waits, none is left, or `left` bytes are used up. Returns `true` if
    /// there was progress.
    fn advance(&mut self, slot: usize, left: &mut u64) -> bool {
        let mut done = self.retire(slot);
        while let Some(pair) = self.pairs[slot].as_deref_mut() {
            let index = pair.executed;
            if pair.has_failed_request() || index >= pair.requests.len() || *left == 0 {
                break;
            }
            let request = &mut pair.requests[index];
            let Stage::Waiting(before) = request.stage else { break };
            let pinned = std::mem::take(&mut request.pinned);
            let inline = std::mem::take(&mut request.inline);
            let (operation, len, solicited) = (request.operation, request.len, request.solicited);
            let payload =
                if request.is_inline { Payload::Inline(&inline) } else { Payload::Elements(&pinned.elements) };
            self.turn = self.turn.of_operation(true);
            let outcome = self.execute(slot, &operation, payload, len, solicited, before);
            done |= !matches!(outcome, Outcome::Waiting(_, progress) if progress == before);
            if matches!(outcome, Outcome::Done) {
                *left = left.saturating_sub(len);
            }
            if !self.apply_outcome(slot, index, outcome, pinned, inline) {
                break;
            }
        }
        self.retire(slot) || done
    }

    /// Stores the outcome of the request at this index of the queue. Returns `true` if the next one may be executed.
    fn apply_outcome(
        &mut self,
        slot: usize,
        index: usize,
        outcome: Outcome,
        mut pinned: PinnedElements,
        inline: Vec<u8>,
    ) -> bool {
        let timed_out = match outcome {
            Outcome::Waiting(reason, _) => self.check_timeout(slot, reason),
            _ => None,
        };
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return false };
        // If the queue pair failed meanwhile (invalid ring), its requests were flushed.
        let Some(request) = pair.requests.get_mut(index) else {
            pinned.unpin_all(&mut self.protection);
            return false;
        };
        let (stage, continues) = match (outcome, timed_out) {
            (Outcome::Done, _) => (Stage::Done, true),
            (Outcome::Sent(message), _) => (Stage::Sent(message), true),
            (Outcome::Failed(status), _) | (_, Some(status)) => (Stage::Failed(status), false),
            (Outcome::Waiting(_, progress), None) => (Stage::Waiting(progress), false),
        };
        request.stage = stage;
        if matches!(stage, Stage::Waiting(_)) {
            (request.pinned, request.inline) = (pinned, inline);
            return false;
        }
        pinned.unpin_all(&mut self.protection);
        (request.pinned, request.inline) = (pinned, inline);
        (pair.executed, pair.deadline) = (pair.executed + 1, None);
        continues
    }

    /// Starts or checks the timeout of a waiting request. Returns the error status if it has expired.
    fn check_timeout(&mut self, slot: usize, reason: WaitReason) -> Option<Status> {
        let pair = self.pairs[slot].as_deref_mut()?;
        let timeout = match reason {
            WaitReason::RingSpace | WaitReason::Path => None,
            WaitReason::Receive if pair.rnr_retry == 7 => None,
            WaitReason::Receive => {
                let timer = pair.peer_slot.map_or(0, |peer| Board::load(self.theirs.pair(peer, Word::RnrTimer)));
                Some(Duration::from_nanos(u64::from(timer)) * u32::from(pair.rnr_retry))
            }
            WaitReason::Peer => pair.timeout,
        };
        let Some(timeout) = timeout else {
            pair.deadline = None;
            return None;
        };
        let now = Instant::now();
        let end = match pair.deadline {
            Some((before, end)) if before == reason => end,
            // A timeout may be as long as a program likes.
            _ => now.checked_add(timeout).unwrap_or_else(|| now + MAX_TIMEOUT),
        };
        pair.deadline = Some((reason, end));
        let status = if reason == WaitReason::Receive { Status::RnrRetryExceeded } else { Status::RetryExceeded };
        (now >= end).then_some(status)
    }

    /// Completes executed requests in order. Returns `true` if there were any.
    fn retire(&mut self, slot: usize) -> bool {
        let mut done = false;
        while let Some(pair) = self.pairs[slot].as_deref_mut() {
            let Some(request) = pair.requests.front() else { break };
            let status = match request.stage {
                Stage::Waiting(_) => break,
                Stage::Done => Status::Success,
                Stage::Failed(status) => status,
                Stage::Sent(message) => match message_status(&self.theirs, pair, message) {
                    Some(status) => status,
                    None => {
                        let is_closed = pair.peer_slot.is_none_or(|peer| !is_ready(&self.theirs, pair, peer));
                        match is_closed.then(|| self.check_timeout(slot, WaitReason::Peer)).flatten() {
                            Some(status) => status,
                            None => break,
                        }
                    }
                },
            };
            let Some(pair) = self.pairs[slot].as_deref_mut() else { break };
            let Some(mut request) = pair.requests.pop_front() else { break };
            pair.executed -= 1;
            let cq = pair.config.send_cq;
            let entry = Entry::new(request.id, kind(&request.operation), pair.number, slot).freeing(request.number);
            let entry = match status {
                Status::Success => Entry { bytes: local_bytes(&request.operation, request.len), ..entry },
                _ => entry.failed(status),
            };
            request.pinned.unpin_all(&mut self.protection);
            let posts_completion = request.signalled || status != Status::Success;
            pair.spare.push(request);
            if posts_completion {
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
    /// Returns `true` if a failed request has not completed: no later one is executed.
    fn has_failed_request(&self) -> bool {
        self.executed > 0
            && self.requests.get(self.executed - 1).is_some_and(|last| matches!(last.stage, Stage::Failed(_)))
    }
}

impl Request {
    fn empty() -> Self {
        Self {
            id: 0,
            operation: Operation::Send,
            pinned: PinnedElements::default(),
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

/// Returns the status of a message that the peer has received or refused, or `None` if it is still in flight.
fn message_status(theirs: &Board, pair: &QueuePair, message: u32) -> Option<Status> {
    let peer = pair.peer_slot.filter(|peer| Board::load(theirs.pair(*peer, Word::Number)) == pair.peer)?;
    if Board::load(theirs.pair(peer, Word::Expected)).wrapping_sub(message) as i32 > 0 {
        return Some(Status::Success);
    }
    let code = Board::load(theirs.pair(peer, Word::RefusalCode));
    (code != 0 && Board::load(theirs.pair(peer, Word::Refused)) == message).then(|| refusal_status(code))
}

/// Returns the number of bytes that the operation writes to local memory.
#[inline]
fn local_bytes(operation: &Operation, len: u64) -> u32 {
    match operation {
        Operation::Read(_) | Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => len as u32,
        _ => 0,
    }
}
