//! Frame buffers of a run, by what they are used for.

use super::schedule::Due;
use shotline_display::{Event, Shown};

/// What a frame buffer is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Nothing.
    Free,
    /// An image is read into it.
    Reading(u64),
    /// It has an image that waits for its refresh to be known.
    Ready(u64),
    /// The display has it.
    Presented {
        /// The image.
        image: u64,
        /// When it is due.
        due: Due,
        /// It was shown or skipped.
        settled: bool,
        /// The display does not read it any more.
        released: bool,
    },
}

/// An image that the display has shown or skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The image.
    pub image: u64,
    /// When it was due.
    pub due: Due,
    /// When it was shown. `None` if it was skipped.
    pub shown: Option<Shown>,
}

/// All frame buffers.
#[derive(Debug)]
pub struct Slots(Vec<Slot>);

impl Slots {
    /// Creates free ones.
    pub fn new(count: usize) -> Self {
        Self(vec![Slot::Free; count])
    }

    /// Returns the index of a free one.
    pub fn free(&self) -> Option<usize> {
        self.0.iter().position(|slot| *slot == Slot::Free)
    }

    /// Returns the one with the earliest image that is ready.
    pub fn ready(&self) -> Option<(usize, u64)> {
        let ready =
            |(index, slot): (usize, &Slot)| if let Slot::Ready(image) = slot { Some((index, *image)) } else { None };
        self.0.iter().enumerate().filter_map(ready).min_by_key(|(_, image)| *image)
    }

    /// Returns the number that a condition holds for.
    pub fn count(&self, is: impl Fn(&Slot) -> bool) -> usize {
        self.0.iter().filter(|slot| is(slot)).count()
    }

    /// Changes the use of one.
    pub fn set(&mut self, index: usize, slot: Slot) {
        self.0[index] = slot;
    }

    /// Returns the use of one.
    pub fn get(&self, index: usize) -> Slot {
        self.0[index]
    }

    /// Notes an event of the display. Returns the image that it settles. A buffer is free again when it was settled and
    /// released, in any order.
    pub fn note(&mut self, event: Event) -> Option<Settled> {
        let (index, shown, is_release) = match event {
            Event::Shown(shown) => (shown.buffer, Some(shown), false),
            Event::Skipped(buffer) => (buffer, None, false),
            Event::Released(buffer) => (buffer, None, true),
            Event::Resized(..) | Event::Closed => return None,
        };
        let slot = self.0.get_mut(index)?;
        let Slot::Presented { image, due, settled, released } = slot else { return None };
        if is_release {
            *released = true
        } else {
            *settled = true
        }
        let (image, due) = (*image, *due);
        if *settled && *released {
            *slot = Slot::Free;
        }
        (!is_release).then_some(Settled { image, due, shown })
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::Schedule;
    use super::*;
    use std::time::Duration;

    #[test]
    fn buffer_is_free_after_it_was_settled_and_released() {
        let due = Schedule::new(60.0, None).next(0).unwrap();
        let shown = Event::Shown(Shown { buffer: 0, refresh: 7, at: Duration::ZERO, crc32: None });
        for events in
            [[shown, Event::Released(0)], [Event::Released(0), shown], [Event::Released(0), Event::Skipped(0)]]
        {
            let mut slots = Slots::new(1);
            slots.set(0, Slot::Presented { image: 3, due, settled: false, released: false });
            let first = slots.note(events[0]);
            assert_eq!(slots.free(), None, "{events:?}");
            let settled = first.or(slots.note(events[1]));
            assert_eq!(slots.free(), Some(0), "{events:?}");
            let settled = settled.or_else(|| slots.note(events[1])).unwrap();
            assert_eq!((settled.image, settled.shown.is_none()), (3, events[1] == Event::Skipped(0)));
        }
    }

    #[test]
    fn earliest_ready_image_is_next() {
        let mut slots = Slots::new(3);
        slots.set(0, Slot::Ready(8));
        slots.set(2, Slot::Ready(7));
        assert_eq!((slots.ready(), slots.free()), (Some((2, 7)), Some(1)));
        assert_eq!(slots.note(Event::Shown(Shown { buffer: 9, refresh: 0, at: Duration::ZERO, crc32: None })), None);
    }
}
