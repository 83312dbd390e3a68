//! Pending events, and those that were decided last: fixed memory, sorted by key.

use super::types::{MAX_SOURCES, Present};
use std::collections::VecDeque;

/// Set of sources, one bit each.
pub(super) type Mask = u32;
const _: () = assert!(MAX_SOURCES <= Mask::BITS as usize);

/// A pending event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pending {
    pub key: u64,
    /// Arrival time of its first item.
    pub opened_ns: u64,
    pub present: Mask,
}

/// Pending events. Their items are stored in one block, those of an event next to each other.
#[derive(Debug)]
pub(super) struct Ring<T> {
    sources: usize,
    pending: Box<[Pending]>,
    parts: Box<[Option<Present<T>>]>,
    free: Vec<u32>,
    /// Keys and slots, in ascending order of keys.
    order: VecDeque<(u64, u32)>,
}

impl<T> Ring<T> {
    pub(super) fn new(capacity: usize, sources: usize) -> Self {
        Self {
            sources,
            pending: vec![Pending::default(); capacity].into(),
            parts: (0..capacity * sources).map(|_| None).collect(),
            free: (0..capacity as u32).rev().collect(),
            order: VecDeque::with_capacity(capacity),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }
    pub(super) fn front(&self) -> Option<&Pending> {
        self.order.front().map(|(_, slot)| &self.pending[*slot as usize])
    }
    /// Returns the event of this rank.
    pub(super) fn get(&self, rank: usize) -> &Pending {
        &self.pending[self.order[rank].1 as usize]
    }
    /// Returns the item of a source in the event of this rank.
    pub(super) fn part(&self, rank: usize, source: usize) -> Option<&Present<T>> {
        self.parts[self.order[rank].1 as usize * self.sources + source].as_ref()
    }
    /// Returns the rank of the first event whose key is not below `key`.
    pub(super) fn rank(&self, key: u64) -> usize {
        // Most items belong to the newest events.
        match self.order.back() {
            Some((newest, _)) if *newest < key => self.order.len(),
            _ => self.order.partition_point(|(other, _)| *other < key),
        }
    }

    /// Stores a source's item in the event of this rank.
    pub(super) fn put(&mut self, rank: usize, source: usize, part: Present<T>) {
        let slot = self.order[rank].1 as usize;
        self.pending[slot].present |= 1 << source;
        self.parts[slot * self.sources + source] = Some(part);
    }

    /// Opens an event at this rank. Returns `false` if the ring is full.
    pub(super) fn open(&mut self, rank: usize, key: u64, now_ns: u64) -> bool {
        let Some(slot) = self.free.pop() else { return false };
        self.pending[slot as usize] = Pending { key, opened_ns: now_ns, present: 0 };
        self.order.insert(rank, (key, slot));
        true
    }

    /// Removes the oldest event; calls `each` with the item of every source.
    pub(super) fn take(&mut self, mut each: impl FnMut(usize, Option<Present<T>>)) -> Option<Pending> {
        let (_, slot) = self.order.pop_front()?;
        let first = slot as usize * self.sources;
        for (source, part) in self.parts[first..][..self.sources].iter_mut().enumerate() {
            each(source, part.take());
        }
        self.free.push(slot);
        Some(self.pending[slot as usize])
    }
}

/// Keys of the events that were decided last, ascending, and the sources in them.
#[derive(Debug)]
pub(super) struct History {
    decided: Box<[(u64, Mask)]>,
    /// Total number of events decided.
    count: u64,
}

impl History {
    pub(super) fn new(capacity: usize) -> Self {
        Self { decided: vec![(0, 0); capacity.next_power_of_two()].into(), count: 0 }
    }

    pub(super) fn add(&mut self, key: u64, present: Mask) {
        let at = self.slot(self.count);
        self.decided[at] = (key, present);
        self.count += 1;
    }

    /// Returns the event that was decided last.
    pub(super) fn last(&self) -> Option<(u64, Mask)> {
        self.count.checked_sub(1).map(|last| self.decided[self.slot(last)])
    }

    /// Returns `true` if the source was in an event that was decided with a key within `window` of this one.
    pub(super) fn contains(&self, source: usize, key: u64, window: u64) -> bool {
        let (mut low, mut high) = (self.count.saturating_sub(self.decided.len() as u64), self.count);
        let lowest = key.saturating_sub(window);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.decided[self.slot(middle)].0 < lowest {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low..self.count)
            .map(|index| self.decided[self.slot(index)])
            .take_while(|(decided, _)| *decided <= key.saturating_add(window))
            .any(|(_, present)| present & 1 << source != 0)
    }

    fn slot(&self, index: u64) -> usize {
        index as usize & (self.decided.len() - 1)
    }
}
