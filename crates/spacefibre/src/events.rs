//! Bounded queue of events.

use arrayvec::ArrayVec;

/// Queue of at most `N` events. If it is full, the oldest event is replaced and counted as lost.
#[derive(Clone, Debug)]
pub(crate) struct Events<T, const N: usize> {
    queue: ArrayVec<T, N>,
    lost: u64,
}

impl<T, const N: usize> Events<T, N> {
    /// Creates an empty queue.
    pub(crate) const fn new() -> Self {
        Self { queue: ArrayVec::new_const(), lost: 0 }
    }

    /// Appends an event.
    pub(crate) fn push(&mut self, event: T) {
        if self.queue.is_full() {
            self.queue.remove(0);
            self.lost += 1;
        }
        self.queue.push(event);
    }

    /// Removes and returns the oldest event.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.queue.pop_at(0)
    }

    /// Returns `true` if no event is queued.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the number of events that were replaced before they were taken.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_queues_replace_and_count_the_oldest() {
        let mut events = Events::<u8, 2>::new();
        assert!(events.is_empty() && events.pop().is_none());
        for event in 0..5 {
            events.push(event);
        }
        assert_eq!((events.lost(), events.pop(), events.pop(), events.pop()), (3, Some(3), Some(4), None));
    }
}
