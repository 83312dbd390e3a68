//! A slab whose handles become invalid when their entry is removed.

/// Bits of a handle that are the slot index; the others are the generation.
const SLOT_BITS: u32 = 16;

/// Slab of up to 65,536 entries. A handle consists of a slot index and the slot's generation, so the handle of a
/// removed entry does not refer to the next entry in the same slot.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Inserts an entry; `None` if every slot is in use.
    pub(crate) fn insert(&mut self, entry: T) -> Option<u32> {
        let handle = self.next()?;
        self.put(handle, entry);
        Some(handle)
    }

    /// Returns the handle that the next entry will have; `None` if every slot is in use.
    pub(crate) fn next(&mut self) -> Option<u32> {
        if self.free.is_empty() && self.slots.len() < 1 << SLOT_BITS {
            self.free.push(self.slots.len() as u32);
            self.slots.push((0, None));
        }
        let slot = *self.free.last()?;
        Some(self.slots[slot as usize].0 << SLOT_BITS | slot)
    }

    /// Inserts an entry at the handle returned by [`Self::next`].
    pub(crate) fn put(&mut self, handle: u32, entry: T) {
        let slot = self.free.pop();
        debug_assert_eq!(slot.map(|slot| slot as usize), Some(slot_of(handle)));
        self.slots[slot_of(handle)].1 = Some(entry);
    }

    pub(crate) fn get(&self, handle: u32) -> Option<&T> {
        let (generation, entry) = self.slots.get(slot_of(handle))?;
        entry.as_ref().filter(|_| *generation == handle >> SLOT_BITS)
    }

    pub(crate) fn get_mut(&mut self, handle: u32) -> Option<&mut T> {
        let (generation, entry) = self.slots.get_mut(slot_of(handle))?;
        entry.as_mut().filter(|_| *generation == handle >> SLOT_BITS)
    }

    pub(crate) fn remove(&mut self, handle: u32) -> Option<T> {
        self.get(handle)?;
        let (generation, entry) = &mut self.slots[slot_of(handle)];
        *generation = (*generation + 1) & (u32::MAX >> SLOT_BITS);
        self.free.push(slot_of(handle) as u32);
        entry.take()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(slot, (generation, entry))| Some((*generation << SLOT_BITS | slot as u32, entry.as_ref()?)))
    }
}

/// Returns the slot index of a handle.
pub(crate) const fn slot_of(handle: u32) -> usize {
    (handle & ((1 << SLOT_BITS) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_of_a_removed_entry_is_invalid() {
        let mut slab = Slab::new();
        let first = slab.insert('a').unwrap();
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b').unwrap();
        assert_ne!(first, second);
        assert_eq!((slab.get(first), slab.get(second)), (None, Some(&'b')));
        assert_eq!(slab.remove(first), None);
    }
}
