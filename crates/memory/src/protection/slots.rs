//! Slots of registrations, which local keys index.

use super::handles::{RegistrationCounters, SLOT_SHIFT};
use super::keys::KeySet;
use super::range::Range;
use crate::RegionId;
use std::collections::VecDeque;

/// Minimum number of free slots before one is reused, so that a local key repeats only after `MIN_FREE` × 256 uses.
const MIN_FREE: usize = 64;
const MAX_SLOTS: usize = 1 << (32 - SLOT_SHIFT);

#[derive(Debug)]
pub(super) struct Entry {
    /// Low 8 bits of the local key, incremented for the next registration in this slot.
    generation: u8,
    /// `None` if deregistered or the slot is free.
    pub(super) live: Option<Range>,
    /// Number of pending work requests that use the memory. It outlives its keys until they complete.
    pub(super) pins: u32,
    pub(super) region: RegionId,
    pub(super) rkey: u32,
    pub(super) windows: KeySet,
    pub(super) counters: RegistrationCounters,
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    entries: Vec<Entry>,
    /// Free slots, reused in FIFO order, so that old keys repeat as late as possible.
    free: VecDeque<u32>,
}

impl Slots {
    /// Takes a free slot and returns it with its local key.
    pub(super) fn take(&mut self, range: Range, rkey: u32) -> Option<(u32, u32)> {
        let may_reuse = self.free.len() >= MIN_FREE || self.entries.len() >= MAX_SLOTS;
        let reused = if may_reuse { self.free.pop_front() } else { None };
        let generation = reused.map_or(0, |slot| self.entries[slot as usize].generation);
        let entry = Entry {
            generation,
            live: Some(range),
            pins: 0,
            region: range.region,
            rkey,
            windows: KeySet::default(),
            counters: RegistrationCounters::default(),
        };
        let slot = match reused {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None if self.entries.len() < MAX_SLOTS => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
            None => return None,
        };
        Some((slot, slot << SLOT_SHIFT | u32::from(generation)))
    }

    /// Frees a slot that is neither registered nor pinned.
    pub(super) fn free(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push_back(slot);
    }

    /// Returns the slot of a live registration.
    #[inline]
    pub(super) fn find(&self, lkey: u32) -> Option<u32> {
        let slot = lkey >> SLOT_SHIFT;
        let entry = self.entries.get(slot as usize)?;
        (entry.live.is_some() && entry.generation == lkey as u8).then_some(slot)
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot as usize)
    }

    /// Returns the entry of a slot that [`Self::take`] or [`Self::find`] returned.
    #[inline]
    pub(super) fn entry(&mut self, slot: u32) -> &mut Entry {
        &mut self.entries[slot as usize]
    }
}
