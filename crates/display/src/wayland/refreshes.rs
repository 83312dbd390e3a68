//! Numbers of refreshes, from what the compositor reports of those at which it presented something.

use std::time::{Duration, Instant};

/// Refreshes by which a number may differ from the one that follows from the time, besides a factor of two for a screen whose
/// refresh rate varies. A larger difference is another counter: the window has moved to another screen.
const TOLERANCE: u64 = 16;

/// A refresh at which something was presented.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    pub number: u64,
    /// Its time, on the clock of the compositor.
    pub at: Duration,
    /// When this process received it, which is later.
    pub received: Instant,
}

/// Numbering of refreshes: by the counter of the screen if the compositor has it, else by time.
#[derive(Debug)]
pub(super) struct Refreshes {
    /// Time between two refreshes, not 0.
    pub interval: Duration,
    pub last: Option<Last>,
    /// Whether numbers are those of a counter.
    pub counted: bool,
    /// What is added to the counter, so that numbers ascend when it changes.
    offset: u64,
}

impl Refreshes {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, last: None, counted: false, offset: 0 }
    }

    /// Returns the number of the refresh at this time with this value of the counter (0 if there is none), and keeps it as the
    /// last one. Without a counter it is at least `least`.
    pub(super) fn add(&mut self, at: Duration, counter: u64, least: u64, received: Instant) -> u64 {
        self.counted = counter != 0;
        let by_time = self.by_time(at);
        let number = match self.last {
            _ if counter == 0 => by_time.max(least),
            None => counter,
            Some(last) => {
                let counted = counter.wrapping_add(self.offset);
                let most = (by_time - last.number).saturating_mul(2).saturating_add(TOLERANCE);
                if counted.abs_diff(last.number) > most || counted.saturating_add(TOLERANCE) < last.number {
                    self.offset = by_time.wrapping_sub(counter);
                    by_time
                } else {
                    counted.max(last.number.saturating_add(1))
                }
            }
        };
        self.last = Some(Last { number, at, received });
        number
    }

    /// Returns the number that follows from a time. It is above the last one.
    fn by_time(&self, at: Duration) -> u64 {
        let rounded = |time: Duration| {
            let number = (time.as_nanos() + self.interval.as_nanos() / 2) / self.interval.as_nanos().max(1);
            u64::try_from(number).unwrap_or(u64::MAX)
        };
        match self.last {
            None => rounded(at),
            Some(last) => last.number.saturating_add(rounded(at.saturating_sub(last.at)).max(1)),
        }
    }

    /// Returns the first refresh that can follow a commit now, as far as time shows: the one after those that have certainly
    /// passed. `None` before the first one is known.
    pub(super) fn after(&self, now: Instant) -> Option<u64> {
        let last = self.last?;
        let elapsed = now.saturating_duration_since(last.received).saturating_sub(self.margin());
        let passed = u64::try_from(elapsed.as_nanos() / self.interval.as_nanos().max(1)).unwrap_or(u64::MAX);
        // A counter and the time diverge.
        let passed = if self.counted { passed.min(TOLERANCE) } else { passed };
        Some(last.number.saturating_add(1).saturating_add(passed))
    }

    /// Returns when [`Self::after`] becomes this refresh. `None` if it does not.
    pub(super) fn time_before(&self, refresh: u64) -> Option<Instant> {
        let last = self.last?;
        let passed = refresh.saturating_sub(last.number).saturating_sub(1);
        if self.counted && passed > TOLERANCE {
            return None;
        }
        last.received.checked_add(self.span(passed).saturating_add(self.margin()))
    }

    /// Returns the time of a number of refreshes.
    pub(super) fn span(&self, refreshes: u64) -> Duration {
        self.interval.saturating_mul(u32::try_from(refreshes).unwrap_or(u32::MAX))
    }

    /// Time after a predicted refresh at which it has certainly passed.
    fn margin(&self) -> Duration {
        self.interval / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(10);

    fn numbers(of: &[(u64, u64)]) -> Vec<u64> {
        let mut refreshes = Refreshes::new(INTERVAL);
        let now = Instant::now();
        of.iter().map(|(ms, counter)| refreshes.add(Duration::from_millis(*ms), *counter, 0, now)).collect()
    }

    #[test]
    fn refreshes_without_a_counter_are_numbered_by_time() {
        assert_eq!(numbers(&[(1000, 0), (1011, 0), (1029, 0), (1030, 0), (1080, 0)]), [100, 101, 103, 104, 109]);
    }

    #[test]
    fn counter_of_the_screen_numbers_refreshes() {
        assert_eq!(numbers(&[(1000, 7), (1010, 8), (1040, 11), (1041, 11)]), [7, 8, 11, 12]);
    }

    #[test]
    fn numbers_ascend_when_the_window_moves_to_another_screen() {
        assert_eq!(numbers(&[(0, 7000), (10, 7001), (20, 3), (30, 4), (40, 900_000)]), [7000, 7001, 7002, 7003, 7004]);
        let extremes = [(0, 1), (0, u64::MAX), (u64::MAX / 2, u64::MAX), (1, 1), (9, 0)];
        assert!(numbers(&extremes).is_sorted());
    }

    #[test]
    fn refresh_after_a_commit_is_never_predicted_too_late() {
        let mut refreshes = Refreshes::new(INTERVAL);
        let now = Instant::now();
        assert_eq!((refreshes.after(now), refreshes.time_before(5)), (None, None));
        refreshes.add(Duration::from_secs(1), 50, 0, now);
        for (ms, after) in [(0, 51), (10, 51), (11, 51), (12, 52), (22, 53), (100_000, 51 + TOLERANCE)] {
            assert_eq!(refreshes.after(now + Duration::from_millis(ms)), Some(after), "{ms}");
        }
        let before = refreshes.time_before(53).unwrap();
        assert_eq!(refreshes.after(before), Some(53));
        assert_eq!(refreshes.time_before(u64::MAX), None);
    }
}
