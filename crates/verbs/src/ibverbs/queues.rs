//! What was posted and is not complete: whose id it has, and which memory it names.
//!
//! A device has room for at least what a queue was made for, says of a failed request neither what it was nor whose,
//! and of an unsignalled one nothing. So both queues are kept here, too, and a request's number in them is what the
//! device gives back.

use super::memory::Memory;
use super::sys::abi::ibv_sge;
use super::sys::{Ah, RecvList};
use super::words;
use crate::api::{Completed, Data, PostError, QpConfig, QpType, RecvWr, SendWr};
use shotline_memory::{Access, Pd, Refused};
use std::sync::Arc;

/// Bits of a work request's identifier: the handle of its queue in the upper half, then which one, then its number.
const KIND_SHIFT: u32 = 30;
/// A number in a queue.
const NUMBER: u32 = (1 << KIND_SHIFT) - 1;

/// Which queue a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A queue pair's send queue.
    Sends,
    /// Its receive queue.
    Receives,
    /// A shared receive queue.
    Shared,
}

/// What the device is told as a request's identifier.
#[inline]
pub(super) fn identifier(handle: u32, origin: Origin, number: u32) -> u64 {
    u64::from(handle) << 32 | u64::from((origin as u32) << KIND_SHIFT | number)
}

/// The parts of an identifier.
#[inline]
pub(super) fn parts(identifier: u64) -> (u32, Origin, u32) {
    let origin = match identifier as u32 >> KIND_SHIFT {
        0 => Origin::Sends,
        1 => Origin::Receives,
        _ => Origin::Shared,
    };
    ((identifier >> 32) as u32, origin, identifier as u32 & NUMBER)
}

/// A send request that is posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) id: u64,
    pub(super) completed: Completed,
    /// Bytes that come in for it.
    pub(super) bytes: u32,
    count: u32,
}

/// A queue pair's send queue.
pub(super) struct Sends {
    datagrams: bool,
    pd: Pd,
    depth: u32,
    max_sge: u32,
    max_inline: u32,
    /// The longest operation.
    pub(super) most: u64,
    requests: Box<[Sent]>,
    /// `max_sge` for each request.
    places: Box<[u32]>,
    ways: Box<[Option<Arc<Ah>>]>,
    first: u32,
    len: u32,
}

impl Sends {
    pub(super) fn new(config: &QpConfig, most: u64) -> Self {
        let depth = config.max_send_wr.next_power_of_two() as usize;
        let none = Sent { id: 0, completed: Completed::Send, bytes: 0, count: 0 };
        let datagrams = config.kind == QpType::Ud;
        Self {
            datagrams,
            pd: config.pd,
            depth: config.max_send_wr,
            max_sge: config.max_sge,
            max_inline: config.max_inline,
            most,
            requests: vec![none; depth].into(),
            places: vec![0; depth * config.max_sge as usize].into(),
            ways: vec![None; if datagrams { depth } else { 0 }].into(),
            first: 0,
            len: 0,
        }
    }

    /// Enters a request whose elements in the device's words are put into `elements`. Returns its number.
    #[inline]
    pub(super) fn post(
        &mut self,
        memory: &mut Memory,
        wr: &SendWr<'_>,
        way: Option<&Arc<Ah>>,
        elements: &mut Vec<ibv_sge>,
    ) -> Result<u32, PostError> {
        if self.len >= self.depth {
            return Err(PostError::Full);
        }
        if wr.destination.is_some() != self.datagrams {
            return Err(PostError::Destination);
        }
        let completed = words::completed(&wr.operation);
        let atomic = matches!(completed, Completed::CompareSwap | Completed::FetchAdd);
        let comes_in = atomic || completed == Completed::Read;
        let total = match wr.data {
            Data::Elements(elements) => elements.iter().map(|element| u64::from(element.len)).sum(),
            Data::Inline(bytes) => bytes.len() as u64,
        };
        let (least, most) = if atomic { (8, 8) } else { (0, self.most) };
        if !(least..=most).contains(&total) {
            return Err(PostError::Length { most, found: total });
        }
        if atomic && !words::remote(&wr.operation).is_multiple_of(8) {
            return Err(PostError::Element { index: 0, refused: Refused::Misaligned });
        }
        let number = self.first.wrapping_add(self.len) & NUMBER;
        let at = self.at(number);
        elements.clear();
        let count = match wr.data {
            Data::Elements(list) => {
                let needed = if comes_in { Access::LOCAL_WRITE } else { Access::NONE };
                let places = &mut self.places[at * self.max_sge as usize..][..self.max_sge as usize];
                hold(memory, self.pd, list, needed, places, elements)?
            }
            Data::Inline(bytes) => {
                let most = if comes_in { 0 } else { self.max_inline };
                if bytes.len() > most as usize {
                    return Err(PostError::Inline { most, found: bytes.len() });
                }
                0
            }
        };
        if let Some(kept) = self.ways.get_mut(at) {
            *kept = way.cloned();
        }
        self.requests[at] = Sent { id: wr.id, completed, bytes: if comes_in { total as u32 } else { 0 }, count };
        self.len += 1;
        Ok(number)
    }

    /// Takes the newest requests out again: the device did not take them.
    pub(super) fn retract(&mut self, memory: &mut Memory, count: u32) {
        for _ in 0..count.min(self.len) {
            self.len -= 1;
            let at = self.at(self.first.wrapping_add(self.len) & NUMBER);
            memory.release(self.places(at));
        }
    }

    /// A request is complete, and so are all before it: they leave. None if there is no such request (any more).
    #[inline]
    pub(super) fn complete(&mut self, memory: &mut Memory, number: u32) -> Option<Sent> {
        let before = number.wrapping_sub(self.first) & NUMBER;
        if before >= self.len {
            return None;
        }
        for offset in 0..=before {
            let at = self.at(self.first.wrapping_add(offset) & NUMBER);
            memory.release(self.places(at));
        }
        self.first = number.wrapping_add(1) & NUMBER;
        self.len -= before + 1;
        Some(self.requests[self.at(number)])
    }

    /// Takes all requests out.
    pub(super) fn forget(&mut self, memory: &mut Memory) {
        if self.len > 0 {
            self.complete(memory, self.first.wrapping_add(self.len - 1) & NUMBER);
        }
    }

    #[inline]
    fn at(&self, number: u32) -> usize {
        number as usize & (self.requests.len() - 1)
    }
    #[inline]
    fn places(&self, at: usize) -> &[u32] {
        &self.places[at * self.max_sge as usize..][..self.requests[at].count as usize]
    }
}

/// Holds the memory of a request: its places go to `places`, its elements in the device's words to `out`.
#[inline]
fn hold(
    memory: &mut Memory,
    pd: Pd,
    list: &[crate::api::Element],
    needed: Access,
    places: &mut [u32],
    out: &mut Vec<ibv_sge>,
) -> Result<u32, PostError> {
    if list.len() > places.len() {
        return Err(PostError::TooManyElements { most: places.len() as u32, found: list.len() });
    }
    for (index, element) in list.iter().enumerate() {
        match memory.hold(pd, element, needed) {
            Ok((place, sge)) => {
                places[index] = place;
                out.push(sge);
            }
            Err(refused) => {
                memory.release(&places[..index]);
                return Err(PostError::Element { index, refused });
            }
        }
    }
    Ok(list.len() as u32)
}

/// Bits of a receive's number that are its slot; the rest says how often the queue was emptied.
const SLOT_BITS: u32 = 22;
/// Most receives of a queue.
pub(super) const MOST_RECEIVES: u32 = 1 << SLOT_BITS;

/// Receives of a queue pair, or of several.
#[derive(Debug)]
pub(super) struct Receives {
    pub(super) pd: Pd,
    max_sge: u32,
    /// Id and number of elements of what is posted.
    slots: Box<[Option<(u64, u32)>]>,
    places: Box<[u32]>,
    free: Vec<u32>,
    /// What the device still says of receives that were forgotten has another one.
    generation: u32,
}

impl Receives {
    pub(super) fn new(pd: Pd, depth: u32, max_sge: u32) -> Self {
        Self {
            pd,
            max_sge,
            slots: vec![None; depth as usize].into(),
            places: vec![0; depth as usize * max_sge as usize].into(),
            free: (0..depth).rev().collect(),
            generation: 0,
        }
    }

    /// Enters a receive and appends it to a list. `before` is put before its elements, by its slot. Returns its number.
    #[inline]
    pub(super) fn post(
        &mut self,
        memory: &mut Memory,
        wr: &RecvWr<'_>,
        (handle, origin): (u32, Origin),
        before: impl FnOnce(u32) -> Option<ibv_sge>,
        (list, elements): (&mut RecvList, &mut Vec<ibv_sge>),
    ) -> Result<u32, PostError> {
        let &slot = self.free.last().ok_or(PostError::Full)?;
        elements.clear();
        elements.extend(before(slot));
        let places = &mut self.places[slot as usize * self.max_sge as usize..][..self.max_sge as usize];
        let count = hold(memory, self.pd, wr.elements, Access::LOCAL_WRITE, places, elements)?;
        self.free.pop();
        self.slots[slot as usize] = Some((wr.id, count));
        let number = (self.generation << SLOT_BITS | slot) & NUMBER;
        list.push(identifier(handle, origin, number), elements);
        Ok(number)
    }

    /// A receive is complete, or was never taken by the device. Returns its id and its slot; none if there is no such receive (any more).
    #[inline]
    pub(super) fn complete(&mut self, memory: &mut Memory, number: u32) -> Option<(u64, u32)> {
        let slot = number & (MOST_RECEIVES - 1);
        if number != (self.generation << SLOT_BITS | slot) & NUMBER {
            return None;
        }
        let (id, count) = self.slots.get_mut(slot as usize)?.take()?;
        memory.release(&self.places[slot as usize * self.max_sge as usize..][..count as usize]);
        self.free.push(slot);
        Some((id, slot))
    }

    /// Takes all receives out.
    pub(super) fn forget(&mut self, memory: &mut Memory) {
        for (slot, posted) in self.slots.iter_mut().enumerate() {
            let count = posted.take().map_or(0, |(_, count)| count as usize);
            memory.release(&self.places[slot * self.max_sge as usize..][..count]);
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

    /// Requests without elements need no device.
    fn send(sends: &mut Sends, memory: &mut Memory, id: u64, operation: Operation) -> Result<u32, PostError> {
        sends.post(memory, &SendWr::new(id, operation, Data::Inline(&[1, 2, 3])), None, &mut Vec::new())
    }

    fn queue(depth: u32) -> (Sends, Memory) {
        let mut memory = Memory::new();
        let pd = memory.protection.allocate();
        let config = QpConfig { max_send_wr: depth, ..QpConfig::new(QpType::Rc, pd, Cq(0), Cq(0)) };
        (Sends::new(&config, 1 << 20), memory)
    }

    #[test]
    fn an_identifier_keeps_its_three_parts() {
        for parts_of in [(0, Origin::Sends, 0), (u32::MAX, Origin::Shared, NUMBER), (7 << 16 | 3, Origin::Receives, 9)]
        {
            assert_eq!(parts(identifier(parts_of.0, parts_of.1, parts_of.2)), parts_of);
        }
    }

    #[test]
    fn a_completion_frees_the_room_of_all_requests_before_it_also_where_numbers_wrap() {
        let (mut sends, mut memory) = queue(3);
        sends.first = NUMBER - 1;
        for round in 0..5 {
            let numbers = [0, 1, 2].map(|id| send(&mut sends, &mut memory, id + round, Operation::Send).unwrap());
            assert_eq!(send(&mut sends, &mut memory, 9, Operation::Send), Err(PostError::Full));
            assert_eq!(sends.complete(&mut memory, numbers[1]).map(|sent| sent.id), Some(1 + round));
            assert!(sends.complete(&mut memory, numbers[0]).is_none(), "it is gone already");
            assert_eq!(sends.complete(&mut memory, numbers[2]).map(|sent| sent.id), Some(2 + round));
        }
    }

    #[test]
    fn what_was_retracted_or_forgotten_does_not_complete() {
        let (mut sends, mut memory) = queue(4);
        let numbers = [0, 1, 2].map(|id| send(&mut sends, &mut memory, id, Operation::Send).unwrap());
        sends.retract(&mut memory, 2);
        assert!(sends.complete(&mut memory, numbers[1]).is_none());
        assert_eq!(sends.complete(&mut memory, numbers[0]).map(|sent| sent.id), Some(0));
        let number = send(&mut sends, &mut memory, 3, Operation::Send).unwrap();
        sends.forget(&mut memory);
        assert!(sends.complete(&mut memory, number).is_none());
    }

    #[test]
    fn what_a_request_cannot_be_is_said_before_the_device_sees_it() {
        let (mut sends, mut memory) = queue(4);
        let remote = crate::api::Remote { address: 4, rkey: 1 };
        let read = send(&mut sends, &mut memory, 0, Operation::Read(remote));
        assert_eq!(read, Err(PostError::Inline { most: 0, found: 3 }));
        let add = send(&mut sends, &mut memory, 0, Operation::FetchAdd { remote, add: 1 });
        assert_eq!(add, Err(PostError::Length { most: 8, found: 3 }));
    }

    #[test]
    fn receives_complete_in_any_order_and_only_once() {
        let mut memory = Memory::new();
        let pd = memory.protection.allocate();
        let mut receives = Receives::new(pd, 2, 1);
        let (mut list, mut elements) = (RecvList::new(4, 1), Vec::new());
        let mut post = |receives: &mut Receives, memory: &mut Memory, id| {
            let wr = RecvWr { id, elements: &[] };
            receives.post(memory, &wr, (0, Origin::Shared), |_| None, (&mut list, &mut elements))
        };
        let first = post(&mut receives, &mut memory, 10).unwrap();
        let second = post(&mut receives, &mut memory, 11).unwrap();
        assert_eq!(post(&mut receives, &mut memory, 12), Err(PostError::Full));
        assert_eq!(receives.complete(&mut memory, second).map(|(id, _)| id), Some(11));
        assert_eq!(receives.complete(&mut memory, second), None);
        receives.forget(&mut memory);
        let again = post(&mut receives, &mut memory, 13).unwrap();
        assert_eq!(receives.complete(&mut memory, first), None, "what the device says of what was forgotten");
        assert_eq!(receives.complete(&mut memory, again).map(|(id, _)| id), Some(13));
    }
}
