//! Events that wait for their sources, and those that were decided last: fixed memory, in the order of their keys.

use super::types::{Here, MAX_SOURCES};
use std::collections::VecDeque;

/// Which sources, one bit each.
pub(super) type Mask = u32;
const _: () = assert!(MAX_SOURCES <= Mask::BITS as usize);

/// An event that waits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting {
    pub key: u64,
    /// When its first item came.
    pub opened_ns: u64,
    pub here: Mask,
}

/// Events that wait. Their parts lie in one block, those of an event side by side.
#[derive(Debug)]
pub(super) struct Ring<T> {
    sources: usize,
    waiting: Box<[Waiting]>,
    parts: Box<[Option<Here<T>>]>,
    free: Vec<u32>,
    /// Key and place, ascending.
    order: VecDeque<(u64, u32)>,
}

impl<T> Ring<T> {
    pub(super) fn new(capacity: usize, sources: usize) -> Self {
        Self {
            sources,
            waiting: vec![Waiting::default(); capacity].into(),
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
    pub(super) fn front(&self) -> Option<&Waiting> {
        self.order.front().map(|(_, place)| &self.waiting[*place as usize])
    }
    /// The event of this rank.
    pub(super) fn get(&self, rank: usize) -> &Waiting {
        &self.waiting[self.order[rank].1 as usize]
    }
    /// What a source has in the event of this rank.
    pub(super) fn part(&self, rank: usize, source: usize) -> Option<&Here<T>> {
        self.parts[self.order[rank].1 as usize * self.sources + source].as_ref()
    }
    /// The rank of the first event whose key is not below this one.
    pub(super) fn rank(&self, key: u64) -> usize {
        // Most items belong to the newest events.
        match self.order.back() {
            Some((newest, _)) if *newest < key => self.order.len(),
            _ => self.order.partition_point(|(other, _)| *other < key),
        }
    }

    /// Puts a source's part into the event of this rank.
    pub(super) fn put(&mut self, rank: usize, source: usize, part: Here<T>) {
        let place = self.order[rank].1 as usize;
        self.waiting[place].here |= 1 << source;
        self.parts[place * self.sources + source] = Some(part);
    }

    /// Opens an event at this rank, unless the ring is full.
    pub(super) fn open(&mut self, rank: usize, key: u64, now_ns: u64) -> bool {
        let Some(place) = self.free.pop() else { return false };
        self.waiting[place as usize] = Waiting { key, opened_ns: now_ns, here: 0 };
        self.order.insert(rank, (key, place));
        true
    }

    /// Takes the oldest event; `each` gets the part of every source.
    pub(super) fn take(&mut self, mut each: impl FnMut(usize, Option<Here<T>>)) -> Option<Waiting> {
        let (_, place) = self.order.pop_front()?;
        let first = place as usize * self.sources;
        for (source, part) in self.parts[first..][..self.sources].iter_mut().enumerate() {
            each(source, part.take());
        }
        self.free.push(place);
        Some(self.waiting[place as usize])
    }
}

/// Keys of the events that were decided last, ascending, and who was in them.
#[derive(Debug)]
pub(super) struct History {
    decided: Box<[(u64, Mask)]>,
    /// Events decided so far.
    count: u64,
}

impl History {
    pub(super) fn new(capacity: usize) -> Self {
        Self { decided: vec![(0, 0); capacity.next_power_of_two()].into(), count: 0 }
    }

    pub(super) fn add(&mut self, key: u64, here: Mask) {
        let at = self.place(self.count);
        self.decided[at] = (key, here);
        self.count += 1;
    }

    /// The event that was decided last.
    pub(super) fn last(&self) -> Option<(u64, Mask)> {
        self.count.checked_sub(1).map(|last| self.decided[self.place(last)])
    }

    /// Whether the source was in an event that was decided with a key within `window` of this one.
    pub(super) fn had(&self, source: usize, key: u64, window: u64) -> bool {
        let (mut from, mut to) = (self.count.saturating_sub(self.decided.len() as u64), self.count);
        let lowest = key.saturating_sub(window);
        while from < to {
            let middle = from + (to - from) / 2;
            if self.decided[self.place(middle)].0 < lowest {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        (from..self.count)
            .map(|index| self.decided[self.place(index)])
            .take_while(|(decided, _)| *decided <= key.saturating_add(window))
            .any(|(_, here)| here & 1 << source != 0)
    }

    fn place(&self, index: u64) -> usize {
        index as usize & (self.decided.len() - 1)
    }
}
