//! When queue pairs are due, at no cost per packet.
//!
//! A queue pair's deadline moves with every packet. Here it stands in a heap at most once, at the earliest time that
//! it ever gave since it was last looked at: later deadlines wait until that time comes, and are entered anew then. So
//! a heap operation costs each busy queue pair once per time-out, not once per packet.

use crate::engine::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Queue pairs' places by the time at which to look at them.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Nanos, u32)>>);

impl Timers {
    /// Sees to it that a place is looked at by `deadline`. `alarm` is what this place keeps for itself: the time of its
    /// earliest entry.
    pub(super) fn set(&mut self, place: u32, alarm: &mut Option<Nanos>, deadline: Option<Nanos>) {
        if let Some(deadline) = deadline
            && alarm.is_none_or(|alarm| deadline < alarm)
        {
            *alarm = Some(deadline);
            self.0.push(Reverse((deadline, place)));
        }
    }

    /// The next time at which something may be due.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// A place to look at, with the time of its entry; if that is not the place's alarm, the entry is out of date.
    pub(super) fn due(&mut self, now: Nanos) -> Option<(Nanos, u32)> {
        let next = self.next()?;
        if next > now {
            return None;
        }
        self.0.pop().map(|Reverse(entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_moves_on_is_not_entered_again() {
        let (mut timers, mut alarm) = (Timers::default(), None);
        for deadline in 100..200 {
            timers.set(7, &mut alarm, Some(deadline));
        }
        assert_eq!((timers.0.len(), timers.next(), alarm), (1, Some(100), Some(100)));
        timers.set(7, &mut alarm, Some(50));
        assert_eq!(timers.due(49), None);
        assert_eq!(timers.due(50), Some((50, 7)));
        assert_eq!((timers.due(99), timers.due(150)), (None, Some((100, 7))), "the old entry is told, and out of date");
    }
}
