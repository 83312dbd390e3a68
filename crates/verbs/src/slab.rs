//! Things by handle, where a handle that outlived its thing names nothing.

/// Bits of a handle that are the place; the rest is the generation.
const PLACE_BITS: u32 = 16;

/// Up to 65,536 things. A handle is a place and the place's generation, so that the handle of a thing that was removed
/// does not name the next one in its place.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    /// Puts a thing in; none if every place is taken.
    pub(crate) fn insert(&mut self, thing: T) -> Option<u32> {
        let handle = self.next()?;
        self.put(handle, thing);
        Some(handle)
    }

    /// The handle that the next thing will have; none if every place is taken.
    pub(crate) fn next(&mut self) -> Option<u32> {
        if self.free.is_empty() && self.places.len() < 1 << PLACE_BITS {
            self.free.push(self.places.len() as u32);
            self.places.push((0, None));
        }
        let place = *self.free.last()?;
        Some(self.places[place as usize].0 << PLACE_BITS | place)
    }

    /// Puts a thing in that was made knowing its handle, the one of [`Self::next`].
    pub(crate) fn put(&mut self, handle: u32, thing: T) {
        let taken = self.free.pop();
        debug_assert_eq!(taken.map(|place| place as usize), Some(place(handle)));
        self.places[place(handle)].1 = Some(thing);
    }

    pub(crate) fn get(&self, handle: u32) -> Option<&T> {
        let (generation, thing) = self.places.get(place(handle))?;
        thing.as_ref().filter(|_| *generation == handle >> PLACE_BITS)
    }

    pub(crate) fn get_mut(&mut self, handle: u32) -> Option<&mut T> {
        let (generation, thing) = self.places.get_mut(place(handle))?;
        thing.as_mut().filter(|_| *generation == handle >> PLACE_BITS)
    }

    pub(crate) fn remove(&mut self, handle: u32) -> Option<T> {
        self.get(handle)?;
        let (generation, thing) = &mut self.places[place(handle)];
        *generation = (*generation + 1) & (u32::MAX >> PLACE_BITS);
        self.free.push(place(handle) as u32);
        thing.take()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.places.iter().enumerate().filter_map(|(place, (generation, thing))| {
            Some((*generation << PLACE_BITS | place as u32, thing.as_ref()?))
        })
    }
}

/// The place in a handle.
pub(crate) const fn place(handle: u32) -> usize {
    (handle & ((1 << PLACE_BITS) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_does_not_name_the_successor_of_its_thing() {
        let mut slab = Slab::new();
        let first = slab.insert('a').unwrap();
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b').unwrap();
        assert_ne!(first, second);
        assert_eq!((slab.get(first), slab.get(second)), (None, Some(&'b')));
        assert_eq!(slab.remove(first), None);
    }
}
