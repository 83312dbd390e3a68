//! Timer heap of queue pairs, at no cost per packet.
//!
//! A queue pair's deadline moves with every packet. The heap holds at most one current entry per queue pair, at the
//! earliest deadline since the queue pair was last examined: later deadlines are ignored until that time and entered
//! again then. So each busy queue pair costs one heap operation per timeout, not one per packet.

use crate::engine::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Indices of queue pairs by the time at which to examine them.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Nanos, u32)>>);

impl Timers {
    /// Ensures that a queue pair is examined by `deadline`. `alarm` is kept by the queue pair: the time of its earliest
    /// entry.
    pub(super) fn set(&mut self, index: u32, alarm: &mut Option<Nanos>, deadline: Option<Nanos>) {
        if let Some(deadline) = deadline
            && alarm.is_none_or(|alarm| deadline < alarm)
        {
            *alarm = Some(deadline);
            self.0.push(Reverse((deadline, index)));
        }
    }

    /// Returns the earliest time of an entry.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes and returns an entry whose time has come, as time and index. If the time is not the queue pair's alarm,
    /// the entry is outdated.
    pub(super) fn pop_expired(&mut self, now: Nanos) -> Option<(Nanos, u32)> {
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
    fn a_later_deadline_adds_no_entry() {
        let (mut timers, mut alarm) = (Timers::default(), None);
        for deadline in 100..200 {
            timers.set(7, &mut alarm, Some(deadline));
        }
        assert_eq!((timers.0.len(), timers.next(), alarm), (1, Some(100), Some(100)));
        timers.set(7, &mut alarm, Some(50));
        assert_eq!(timers.pop_expired(49), None);
        assert_eq!(timers.pop_expired(50), Some((50, 7)));
        assert_eq!(
            (timers.pop_expired(99), timers.pop_expired(150)),
            (None, Some((100, 7))),
            "the old entry is returned, and outdated"
        );
    }
}
