//! The slots of registrations, which local keys number.

use super::keys::KeySet;
use super::range::Range;
use super::words::{SLOT_SHIFT, Usage};
use crate::RegionId;
use std::collections::VecDeque;

/// Slots that lie idle before one is used again: with them, a local key repeats only after `IDLE` × 256 registrations.
const IDLE: usize = 64;
const MOST: usize = 1 << (32 - SLOT_SHIFT);

#[derive(Debug)]
pub(super) struct Entry {
    /// The low 8 bits of the local key; the next registration here has another.
    generation: u8,
    /// None: deregistered, or the slot is free.
    pub(super) live: Option<Range>,
    /// Work requests that still use the memory; it outlives its keys until they are done.
    pub(super) pins: u32,
    pub(super) region: RegionId,
    pub(super) rkey: u32,
    pub(super) windows: KeySet,
    pub(super) usage: Usage,
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    entries: Vec<Entry>,
    /// Free ones; the one given back first is used first, so that its keys are long forgotten.
    free: VecDeque<u32>,
}

impl Slots {
    /// Takes a free slot. Returns it with its local key.
    pub(super) fn take(&mut self, range: Range, rkey: u32) -> Option<(u32, u32)> {
        let enough = self.free.len() >= IDLE || self.entries.len() >= MOST;
        let reused = if enough { self.free.pop_front() } else { None };
        let generation = reused.map_or(0, |slot| self.entries[slot as usize].generation);
        let entry = Entry {
            generation,
            live: Some(range),
            pins: 0,
            region: range.region,
            rkey,
            windows: KeySet::default(),
            usage: Usage::default(),
        };
        let slot = match reused {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None if self.entries.len() < MOST => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
            None => return None,
        };
        Some((slot, slot << SLOT_SHIFT | u32::from(generation)))
    }

    /// A slot is neither registered nor pinned any more.
    pub(super) fn give_back(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push_back(slot);
    }

    /// The slot of a registration that is still there.
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

    /// A slot's entry, by a number that came from [`Self::take`] or [`Self::find`].
    #[inline]
    pub(super) fn entry(&mut self, slot: u32) -> &mut Entry {
        &mut self.entries[slot as usize]
    }
}
