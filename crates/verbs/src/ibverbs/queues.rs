//! Outstanding requests: their ids, and the memory that they use.
//!
//! Both queues are also kept here, and a request's number in them is part of its `wr_id`, for three reasons: a device
//! may hold more requests than a queue was created for, the completion of a failed request does not contain its
//! operation, and an unsignalled request has no completion of its own.

use super::convert;
use super::memory::Memory;
use super::sys::abi::ibv_sge;
use super::sys::{Ah, RecvList};
use crate::api::{CompletionKind, Data, PostError, QpConfig, QpType, RecvWr, SendWr};
use shotline_memory::{Access, AccessError, Pd};
use std::sync::Arc;

/// Layout of a `wr_id`: handle of the queue in the upper 32 bits, then the kind of queue, then the request's number.
const KIND_SHIFT: u32 = 30;
/// Mask of a request's number.
const NUMBER_MASK: u32 = (1 << KIND_SHIFT) - 1;

/// Kind of the queue that a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueKind {
    /// A queue pair's send queue.
    Send,
    /// A queue pair's receive queue.
    Receive,
    /// A shared receive queue.
    SharedReceive,
}

/// Packs the `wr_id` of a request.
#[inline]
pub(super) fn wr_id(handle: u32, kind: QueueKind, number: u32) -> u64 {
    u64::from(handle) << 32 | u64::from((kind as u32) << KIND_SHIFT | number)
}

/// Unpacks a `wr_id`.
#[inline]
pub(super) fn parse_wr_id(wr_id: u64) -> (u32, QueueKind, u32) {
    let kind = match wr_id as u32 >> KIND_SHIFT {
        0 => QueueKind::Send,
        1 => QueueKind::Receive,
        _ => QueueKind::SharedReceive,
    };
    ((wr_id >> 32) as u32, kind, wr_id as u32 & NUMBER_MASK)
}

/// An outstanding send work request.
#[derive(Clone, Copy, Debug)]
pub(super) struct PostedSend {
    pub(super) id: u64,
    pub(super) kind: CompletionKind,
    /// Bytes written to local memory (READ, atomic operations).
    pub(super) bytes: u32,
    /// Number of elements.
    count: u32,
}

/// A queue pair's send queue.
pub(super) struct SendQueue {
    is_ud: bool,
    pd: Pd,
    depth: u32,
    max_sge: u32,
    max_inline: u32,
    /// Maximum length of an operation in bytes.
    pub(super) max_operation: u64,
    requests: Box<[PostedSend]>,
    /// Registrations in use, `max_sge` per request.
    mr_indices: Box<[u32]>,
    /// Address handle of each request (UD), otherwise empty.
    ahs: Box<[Option<Arc<Ah>>]>,
    /// Number of the oldest outstanding request.
    first: u32,
    /// Number of outstanding requests.
    len: u32,
}

impl SendQueue {
    pub(super) fn new(config: &QpConfig, max_operation: u64) -> Self {
        let depth = config.max_send_wr.next_power_of_two() as usize;
        let none = PostedSend { id: 0, kind: CompletionKind::Send, bytes: 0, count: 0 };
        let is_ud = config.kind == QpType::Ud;
        Self {
            is_ud,
            pd: config.pd,
            depth: config.max_send_wr,
            max_sge: config.max_sge,
            max_inline: config.max_inline,
            max_operation,
            requests: vec![none; depth].into(),
            mr_indices: vec![0; depth * config.max_sge as usize].into(),
            ahs: vec![None; if is_ud { depth } else { 0 }].into(),
            first: 0,
            len: 0,
        }
    }

    /// Adds a request and puts its converted elements into `elements`. Returns its number, which is part of its
    /// `wr_id`.
    #[inline]
    pub(super) fn post(
        &mut self,
        memory: &mut Memory,
        wr: &SendWr<'_>,
        ah: Option<&Arc<Ah>>,
        elements: &mut Vec<ibv_sge>,
    ) -> Result<u32, PostError> {
        if self.len >= self.depth {
            return Err(PostError::Full);
        }
        if wr.destination.is_some() != self.is_ud {
            return Err(PostError::Destination);
        }
        let kind = convert::completion_kind(&wr.operation);
        let is_atomic = matches!(kind, CompletionKind::CompareSwap | CompletionKind::FetchAdd);
        let writes_local = is_atomic || kind == CompletionKind::Read;
        let total = match wr.data {
            Data::Elements(elements) => elements.iter().map(|element| u64::from(element.len)).sum(),
            Data::Inline(bytes) => bytes.len() as u64,
        };
        let (min, max) = if is_atomic { (8, 8) } else { (0, self.max_operation) };
        if !(min..=max).contains(&total) {
            return Err(PostError::Length { max, found: total });
        }
        if is_atomic && !convert::remote(&wr.operation).is_multiple_of(8) {
            return Err(PostError::Element { index: 0, refused: AccessError::Misaligned });
        }
        let number = self.first.wrapping_add(self.len) & NUMBER_MASK;
        let index = self.index_of(number);
        elements.clear();
        let count = match wr.data {
            Data::Elements(list) => {
                let needed = if writes_local { Access::LOCAL_WRITE } else { Access::NONE };
                let mr_indices = &mut self.mr_indices[index * self.max_sge as usize..][..self.max_sge as usize];
                acquire(memory, self.pd, list, needed, mr_indices, elements)?
            }
            Data::Inline(bytes) => {
                let max = if writes_local { 0 } else { self.max_inline };
                if bytes.len() > max as usize {
                    return Err(PostError::Inline { max, found: bytes.len() });
                }
                0
            }
        };
        if let Some(slot_ah) = self.ahs.get_mut(index) {
            *slot_ah = ah.cloned();
        }
        self.requests[index] =
            PostedSend { id: wr.id, kind, bytes: if writes_local { total as u32 } else { 0 }, count };
        self.len += 1;
        Ok(number)
    }

    /// Removes the `count` newest requests, which the device did not accept.
    pub(super) fn retract(&mut self, memory: &mut Memory, count: u32) {
        for _ in 0..count.min(self.len) {
            self.len -= 1;
            let index = self.index_of(self.first.wrapping_add(self.len) & NUMBER_MASK);
            memory.release(self.mr_indices(index));
        }
    }

    /// Completes a request and all earlier ones. Returns `None` if it is not outstanding.
    #[inline]
    pub(super) fn complete(&mut self, memory: &mut Memory, number: u32) -> Option<PostedSend> {
        let before = number.wrapping_sub(self.first) & NUMBER_MASK;
        if before >= self.len {
            return None;
        }
        for offset in 0..=before {
            let index = self.index_of(self.first.wrapping_add(offset) & NUMBER_MASK);
            memory.release(self.mr_indices(index));
        }
        self.first = number.wrapping_add(1) & NUMBER_MASK;
        self.len -= before + 1;
        Some(self.requests[self.index_of(number)])
    }

    /// Removes all requests.
    pub(super) fn discard(&mut self, memory: &mut Memory) {
        if self.len > 0 {
            self.complete(memory, self.first.wrapping_add(self.len - 1) & NUMBER_MASK);
        }
    }

    #[inline]
    fn index_of(&self, number: u32) -> usize {
        number as usize & (self.requests.len() - 1)
    }
    #[inline]
    fn mr_indices(&self, index: usize) -> &[u32] {
        &self.mr_indices[index * self.max_sge as usize..][..self.requests[index].count as usize]
    }
}

/// Acquires the registrations of a request: their indices go to `mr_indices`, its converted elements to `out`. Returns
/// the number of elements.
#[inline]
fn acquire(
    memory: &mut Memory,
    pd: Pd,
    list: &[crate::api::Element],
    needed: Access,
    mr_indices: &mut [u32],
    out: &mut Vec<ibv_sge>,
) -> Result<u32, PostError> {
    if list.len() > mr_indices.len() {
        return Err(PostError::TooManyElements { max: mr_indices.len() as u32, found: list.len() });
    }
    for (index, element) in list.iter().enumerate() {
        match memory.acquire(pd, element, needed) {
            Ok((mr_index, sge)) => {
                mr_indices[index] = mr_index;
                out.push(sge);
            }
            Err(refused) => {
                memory.release(&mr_indices[..index]);
                return Err(PostError::Element { index, refused });
            }
        }
    }
    Ok(list.len() as u32)
}

/// Number of bits of a receive's number that are its slot; the bits above them are the queue's generation.
const SLOT_BITS: u32 = 22;
/// Maximum number of receives in a queue.
pub(super) const MAX_RECEIVES: u32 = 1 << SLOT_BITS;

/// A receive queue of one queue pair, or a shared one.
#[derive(Debug)]
pub(super) struct ReceiveQueue {
    pub(super) pd: Pd,
    max_sge: u32,
    /// Id and number of elements of each outstanding receive.
    slots: Box<[Option<(u64, u32)>]>,
    /// Registrations in use, `max_sge` per receive.
    mr_indices: Box<[u32]>,
    /// Free slots.
    free: Vec<u32>,
    /// Incremented when all receives are discarded, so that late completions of those do not match.
    generation: u32,
}

impl ReceiveQueue {
    pub(super) fn new(pd: Pd, depth: u32, max_sge: u32) -> Self {
        Self {
            pd,
            max_sge,
            slots: vec![None; depth as usize].into(),
            mr_indices: vec![0; depth as usize * max_sge as usize].into(),
            free: (0..depth).rev().collect(),
            generation: 0,
        }
    }

    /// Adds a receive and appends it to a list. `before` returns the element to put before its own, if any, for its
    /// slot. Returns its number, which is part of its `wr_id`.
    #[inline]
    pub(super) fn post(
        &mut self,
        memory: &mut Memory,
        wr: &RecvWr<'_>,
        (handle, kind): (u32, QueueKind),
        before: impl FnOnce(u32) -> Option<ibv_sge>,
        (list, elements): (&mut RecvList, &mut Vec<ibv_sge>),
    ) -> Result<u32, PostError> {
        let &slot = self.free.last().ok_or(PostError::Full)?;
        elements.clear();
        elements.extend(before(slot));
        let mr_indices = &mut self.mr_indices[slot as usize * self.max_sge as usize..][..self.max_sge as usize];
        let count = acquire(memory, self.pd, wr.elements, Access::LOCAL_WRITE, mr_indices, elements)?;
        self.free.pop();
        self.slots[slot as usize] = Some((wr.id, count));
        let number = (self.generation << SLOT_BITS | slot) & NUMBER_MASK;
        list.push(wr_id(handle, kind, number), elements);
        Ok(number)
    }

    /// Completes a receive, or removes one that the device did not accept. Returns its id and slot, or `None` if it is
    /// not outstanding.
    #[inline]
    pub(super) fn complete(&mut self, memory: &mut Memory, number: u32) -> Option<(u64, u32)> {
        let slot = number & (MAX_RECEIVES - 1);
        if number != (self.generation << SLOT_BITS | slot) & NUMBER_MASK {
            return None;
        }
        let (id, count) = self.slots.get_mut(slot as usize)?.take()?;
        memory.release(&self.mr_indices[slot as usize * self.max_sge as usize..][..count as usize]);
        self.free.push(slot);
        Some((id, slot))
    }

    /// Removes all receives.
    pub(super) fn discard(&mut self, memory: &mut Memory) {
        for (slot, posted) in self.slots.iter_mut().enumerate() {
            let count = posted.take().map_or(0, |(_, count)| count as usize);
            memory.release(&self.mr_indices[slot * self.max_sge as usize..][..count]);
        }
        self.free.clear();
        self.free.extend((0..self.slots.len() as u32).rev());
        self.generation = self.generation.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Cq, Operation};

    /// Posts a request without elements, which needs no device.
    fn send(sends: &mut SendQueue, memory: &mut Memory, id: u64, operation: Operation) -> Result<u32, PostError> {
        sends.post(memory, &SendWr::new(id, operation, Data::Inline(&[1, 2, 3])), None, &mut Vec::new())
    }

    fn queue(depth: u32) -> (SendQueue, Memory) {
        let mut memory = Memory::new();
        let pd = memory.protection.allocate();
        let config = QpConfig { max_send_wr: depth, ..QpConfig::new(QpType::Rc, pd, Cq(0), Cq(0)) };
        (SendQueue::new(&config, 1 << 20), memory)
    }

    #[test]
    fn wr_id_round_trips() {
        for parts in [
            (0, QueueKind::Send, 0),
            (u32::MAX, QueueKind::SharedReceive, NUMBER_MASK),
            (7 << 16 | 3, QueueKind::Receive, 9),
        ] {
            assert_eq!(parse_wr_id(wr_id(parts.0, parts.1, parts.2)), parts);
        }
    }

    #[test]
    fn completion_frees_all_earlier_requests_across_wraparound() {
        let (mut sends, mut memory) = queue(3);
        sends.first = NUMBER_MASK - 1;
        for round in 0..5 {
            let numbers = [0, 1, 2].map(|id| send(&mut sends, &mut memory, id + round, Operation::Send).unwrap());
            assert_eq!(send(&mut sends, &mut memory, 9, Operation::Send), Err(PostError::Full));
            assert_eq!(sends.complete(&mut memory, numbers[1]).map(|sent| sent.id), Some(1 + round));
            assert!(sends.complete(&mut memory, numbers[0]).is_none(), "it has completed already");
            assert_eq!(sends.complete(&mut memory, numbers[2]).map(|sent| sent.id), Some(2 + round));
        }
    }

    #[test]
    fn retracted_or_discarded_requests_do_not_complete() {
        let (mut sends, mut memory) = queue(4);
        let numbers = [0, 1, 2].map(|id| send(&mut sends, &mut memory, id, Operation::Send).unwrap());
        sends.retract(&mut memory, 2);
        assert!(sends.complete(&mut memory, numbers[1]).is_none());
        assert_eq!(sends.complete(&mut memory, numbers[0]).map(|sent| sent.id), Some(0));
        let number = send(&mut sends, &mut memory, 3, Operation::Send).unwrap();
        sends.discard(&mut memory);
        assert!(sends.complete(&mut memory, number).is_none());
    }

    #[test]
    fn invalid_requests_are_refused_before_the_device() {
        let (mut sends, mut memory) = queue(4);
        let remote = crate::api::Remote { address: 4, rkey: 1 };
        let read = send(&mut sends, &mut memory, 0, Operation::Read(remote));
        assert_eq!(read, Err(PostError::Inline { max: 0, found: 3 }));
        let add = send(&mut sends, &mut memory, 0, Operation::FetchAdd { remote, add: 1 });
        assert_eq!(add, Err(PostError::Length { max: 8, found: 3 }));
    }

    #[test]
    fn receives_complete_in_any_order_and_only_once() {
        let mut memory = Memory::new();
        let pd = memory.protection.allocate();
        let mut receives = ReceiveQueue::new(pd, 2, 1);
        let (mut list, mut elements) = (RecvList::new(4, 1), Vec::new());
        let mut post = |receives: &mut ReceiveQueue, memory: &mut Memory, id| {
            let wr = RecvWr { id, elements: &[] };
            receives.post(memory, &wr, (0, QueueKind::SharedReceive), |_| None, (&mut list, &mut elements))
        };
        let first = post(&mut receives, &mut memory, 10).unwrap();
        let second = post(&mut receives, &mut memory, 11).unwrap();
        assert_eq!(post(&mut receives, &mut memory, 12), Err(PostError::Full));
        assert_eq!(receives.complete(&mut memory, second).map(|(id, _)| id), Some(11));
        assert_eq!(receives.complete(&mut memory, second), None);
        receives.discard(&mut memory);
        let again = post(&mut receives, &mut memory, 13).unwrap();
        assert_eq!(receives.complete(&mut memory, first), None, "a late completion of a discarded receive");
        assert_eq!(receives.complete(&mut memory, again).map(|(id, _)| id), Some(13));
    }
}
