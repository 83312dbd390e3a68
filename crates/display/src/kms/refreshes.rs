//! Numbers of refreshes, and when a page flip is to be submitted.

use crate::Mode;
use std::time::Duration;

/// Shortest wait for a refresh that is already expected to have begun.
const SHORT: Duration = Duration::from_micros(200);

/// Refreshes of a screen, as its driver counts them, or as time passes if it does not.
///
/// A driver that counts them completes a flip at the next refresh. One that does not (of a virtual machine, for example)
/// completes it at once: its refreshes begin at the intervals of the mode.
#[derive(Debug)]
pub(super) struct Refreshes {
    mode: Mode,
    /// Last known refresh and its time; for a driver that does not count them the first one.
    known: (u64, Duration),
    /// Refresh at which the last frame became visible, and the time.
    shown: Option<(u64, Duration)>,
    is_counted: bool,
}

impl Refreshes {
    /// Refreshes whose driver does not count them, from now on.
    pub(super) const fn timed(mode: Mode, now: Duration) -> Self {
        Self { mode, known: (0, now), shown: None, is_counted: false }
    }

    /// Refreshes whose driver counts them, with the number and time of the last one.
    pub(super) fn counted(mode: Mode, sequence: u32, at: Duration) -> Self {
        Self { mode, known: (sequence.into(), at), shown: None, is_counted: true }
    }

    /// Returns `true` if the driver counts them.
    pub(super) const fn are_counted(&self) -> bool {
        self.is_counted
    }

    /// Notes what the driver has counted.
    pub(super) fn observe(&mut self, sequence: u32, at: Duration) {
        if let Some(refresh) = self.extended(sequence).filter(|_| self.is_counted) {
            self.known = (refresh, at);
        }
    }

    /// Numbers the refresh at which a flip was complete. Numbers ascend strictly.
    pub(super) fn complete(&mut self, sequence: u32, at: Duration) -> u64 {
        let next = self.next();
        let refresh = match self.extended(sequence).filter(|refresh| self.is_counted && *refresh >= next) {
            Some(refresh) => {
                self.known = (refresh, at);
                refresh
            }
            None if self.is_counted => {
                // The driver does not count after all.
                self.is_counted = false;
                self.known = (next.max(self.known.0), at);
                self.known.0
            }
            None => next.max(self.known.0 + self.mode.refresh_at(at.saturating_sub(self.known.1))),
        };
        self.shown = Some((refresh, at));
        refresh
    }

    /// Returns `true` if a flip that is submitted now becomes visible when a frame is due, or later.
    pub(super) fn is_ready(&self, due: u64, now: Duration) -> bool {
        if self.is_counted { due.max(self.next()) <= self.known.0 + 1 } else { now >= self.time_of(due) }
    }

    /// Returns the time until [`Self::is_ready`] is to be asked again.
    pub(super) fn wait(&self, due: u64, now: Duration) -> Duration {
        if self.is_ready(due, now) { Duration::ZERO } else { self.time_of(due).saturating_sub(now).max(SHORT) }
    }

    /// Returns the earliest refresh for the next frame.
    fn next(&self) -> u64 {
        self.shown.map_or(0, |(refresh, _)| refresh + 1)
    }

    /// Returns the time at which the flip of a frame is submitted: the begin of its refresh, or of the one before it.
    fn time_of(&self, due: u64) -> Duration {
        let target = due.max(self.next());
        let begin = if self.is_counted { target.saturating_sub(1) } else { target };
        let begin = self.known.1.saturating_add(self.mode.time_of(begin.saturating_sub(self.known.0)));
        match self.shown {
            Some((_, at)) if !self.is_counted => begin.max(at.saturating_add(self.mode.interval() / 2)),
            _ => begin,
        }
    }

    /// Returns a number of 32 bits as the one of 64 bits that follows the known one, or `None` if it is before that.
    fn extended(&self, sequence: u32) -> Option<u64> {
        let ahead = sequence.wrapping_sub(self.known.0 as u32);
        (ahead <= u32::MAX / 2).then(|| self.known.0 + u64::from(ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODE: Mode = Mode { width: 1, height: 1, refresh_mhz: 100_000 };
    const START: Duration = Duration::from_secs(7);

    fn at(milliseconds: u64) -> Duration {
        START + Duration::from_millis(milliseconds)
    }

    #[test]
    fn counted_flip_is_submitted_after_the_refresh_before_its_own() {
        let mut refreshes = Refreshes::counted(MODE, 1000, at(0));
        assert!(refreshes.is_ready(0, at(0)) && refreshes.is_ready(1001, at(0)));
        // Whatever the time, only the driver's count shows that a refresh has begun.
        assert!(!refreshes.is_ready(1003, at(0)) && !refreshes.is_ready(1003, at(99)));
        assert_eq!(refreshes.wait(1003, at(5)), Duration::from_millis(15));
        assert_eq!(refreshes.wait(1003, at(99)), SHORT);
        refreshes.observe(1002, at(21));
        assert!(refreshes.is_ready(1003, at(21)) && !refreshes.is_ready(1004, at(21)));
        assert_eq!(refreshes.complete(1003, at(30)), 1003);
        // The next one cannot be earlier than the next refresh.
        assert_eq!(refreshes.wait(0, at(30)), Duration::ZERO);
        assert!(refreshes.are_counted());
    }

    #[test]
    fn counts_of_32_bits_continue_when_they_wrap() {
        let mut refreshes = Refreshes::counted(MODE, u32::MAX - 1, at(0));
        assert_eq!(refreshes.complete(u32::MAX, at(10)), u64::from(u32::MAX));
        assert_eq!(refreshes.complete(0, at(20)), 1 << 32);
        refreshes.observe(2, at(40));
        assert!(refreshes.is_ready((1 << 32) + 3, at(40)));
        refreshes.observe(1, at(50));
        assert_eq!(refreshes.complete(5, at(70)), (1 << 32) + 5);
    }

    #[test]
    fn timed_flips_are_submitted_at_the_intervals_of_the_mode() {
        let mut refreshes = Refreshes::timed(MODE, START);
        assert!(refreshes.is_ready(0, at(0)) && !refreshes.is_ready(3, at(29)));
        assert_eq!(refreshes.wait(3, at(12)), Duration::from_millis(18));
        assert!(refreshes.is_ready(3, at(30)));
        assert_eq!(refreshes.complete(0, at(31)), 3);
        // It stays for its time.
        assert!(!refreshes.is_ready(0, at(39)) && refreshes.is_ready(0, at(40)));
        assert_eq!(refreshes.complete(0, at(77)), 7, "late");
        assert!(!refreshes.is_ready(0, at(81)) && refreshes.is_ready(0, at(82)), "half an interval later");
        assert_eq!(refreshes.complete(0, at(78)), 8, "the number ascends although the time is that of 7");
        assert!(!refreshes.is_ready(0, at(89)) && refreshes.is_ready(0, at(90)));
    }

    #[test]
    fn driver_whose_counts_do_not_ascend_is_timed() {
        for sequence in [0, 1000, 999] {
            let mut refreshes = Refreshes::counted(MODE, 1000, at(0));
            assert_eq!(refreshes.complete(1000, at(1)), 1000);
            assert_eq!(refreshes.complete(sequence, at(2)), 1001);
            assert!(!refreshes.are_counted());
            assert!(!refreshes.is_ready(0, at(11)) && refreshes.is_ready(0, at(12)));
            assert_eq!(refreshes.complete(sequence, at(33)), 1004);
        }
    }
}
