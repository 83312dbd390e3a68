//! Posted receives.

use crate::api::{PostError, RecvWr};
use shotline_memory::{Access, Pd, Pin, Protection, Sge};
use std::collections::VecDeque;

/// Index of a posted receive in its [`RecvQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

/// Posted receives, oldest first, of one queue pair or shared by several.
///
/// Elements are resolved and pinned when they are posted, so packets are only written to memory that was valid then. A
/// receive leaves the queue when a message begins in it ([`Self::take`]), and its slot is free again when the message
/// is complete ([`Self::finish`]): a shared queue can have one message in progress for each of its queue pairs. All
/// memory is allocated at construction.
#[derive(Debug)]
pub struct RecvQueue {
    pd: Pd,
    max_sge: u32,
    receives: Box<[Receive]>,
    /// `max_sge` elements per receive.
    elements: Box<[Sge]>,
    pins: Box<[Option<Pin>]>,
    /// Slots of the receives in which no message has begun.
    posted: VecDeque<u32>,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Receive {
    id: u64,
    count: u32,
    bytes: u64,
}

impl RecvQueue {
    /// Creates an empty queue for `depth` receives of up to `max_sge` elements.
    pub fn new(pd: Pd, depth: u32, max_sge: u32) -> Self {
        let elements = depth as usize * max_sge as usize;
        Self {
            pd,
            max_sge,
            receives: vec![Receive::default(); depth as usize].into(),
            elements: vec![Sge::EMPTY; elements].into(),
            pins: std::iter::repeat_with(|| None).take(elements).collect(),
            posted: VecDeque::with_capacity(depth as usize),
            free: (0..depth).rev().collect(),
        }
    }

    /// Posts a receive: checks its elements for local write access and pins their memory until it is finished.
    ///
    /// # Errors
    /// [`PostError::TooManyElements`], [`PostError::Full`], or [`PostError::Element`] for the first element that is not
    /// valid; the receive is not posted.
    pub fn post(&mut self, protection: &mut Protection, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let found = wr.elements.len();
        if found > self.max_sge as usize {
            return Err(PostError::TooManyElements { max: self.max_sge, found });
        }
        let &slot = self.free.last().ok_or(PostError::Full)?;
        let start = slot as usize * self.max_sge as usize;
        let mut bytes = 0;
        for (index, element) in wr.elements.iter().enumerate() {
            bytes += u64::from(element.len);
            self.elements[start + index] = protection
                .local(self.pd, element.lkey, element.address, element.len, Access::LOCAL_WRITE)
                .map_err(|refused| PostError::Element { index, refused })?;
        }
        for (index, element) in wr.elements.iter().enumerate() {
            self.pins[start + index] = protection.pin(element.lkey);
        }
        self.free.pop();
        self.receives[slot as usize] = Receive { id: wr.id, count: found as u32, bytes };
        self.posted.push_back(slot);
        Ok(())
    }

    /// Returns the number of receives in which no message has begun.
    pub fn len(&self) -> usize {
        self.posted.len()
    }
    /// Returns `true` if there is no such receive.
    pub fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }
    /// Returns the receive that the next message will use, or (`nth` > 0) one of those after it.
    pub fn peek(&self, nth: usize) -> Option<Slot> {
        self.posted.get(nth).copied().map(Slot)
    }
    /// Removes the oldest receive from the queue because a message begins in it. Its slot is in use until
    /// [`Self::finish`].
    pub fn take(&mut self) -> Option<Slot> {
        self.posted.pop_front().map(Slot)
    }
    /// Returns the elements of a receive.
    pub fn elements(&self, slot: Slot) -> &[Sge] {
        let start = slot.0 as usize * self.max_sge as usize;
        &self.elements[start..][..self.receives[slot.0 as usize].count as usize]
    }
    /// Returns the length of a receive: the maximum message length.
    pub fn bytes(&self, slot: Slot) -> u64 {
        self.receives[slot.0 as usize].bytes
    }
    /// Frees the slot of a receive that was taken, unpins its memory, and returns its id for the completion.
    pub fn finish(&mut self, protection: &mut Protection, slot: Slot) -> u64 {
        let start = slot.0 as usize * self.max_sge as usize;
        let receive = self.receives[slot.0 as usize];
        for pin in &mut self.pins[start..][..receive.count as usize] {
            if let Some(pin) = pin.take() {
                protection.unpin(pin);
            }
        }
        self.free.push(slot.0);
        receive.id
    }
    /// Takes and finishes every receive in which no message has begun, in order, and calls `each` with their ids.
    pub fn flush(&mut self, protection: &mut Protection, mut each: impl FnMut(u64)) {
        while let Some(slot) = self.take() {
            each(self.finish(protection, slot));
        }
    }
}
