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
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.places.len() < 1 << PLACE_BITS => {
                self.places.push((0, None));
                self.places.len() as u32 - 1
            }
            None => return None,
        };
        let (generation, slot) = &mut self.places[place as usize];
        *slot = Some(thing);
        Some(*generation << PLACE_BITS | place)
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
