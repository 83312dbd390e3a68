//! Counters of the frames of a run.

use crate::Shown;
use std::time::Duration;

/// Frames by what became of them. Balance: presented = shown + skipped + those that the display still has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounters {
    /// Frames that were passed to the display.
    pub presented: u64,
    /// Frames that became visible.
    pub shown: u64,
    /// Frames that never became visible.
    pub skipped: u64,
    /// Frames that became visible after the refresh at which they were due.
    pub late: u64,
    /// Refreshes at which the frame before was shown again, since the due one was not ready or the display was late.
    pub repeated: u64,
    /// Refreshes until the display began to count from the start, as it may on another screen.
    earlier_refreshes: u64,
    /// Refresh of the first frame, or of the first one since then.
    first_refresh: u64,
    /// Time of the first frame that became visible.
    first_at: Duration,
    /// Refresh and time of the last frame that became visible, and whether it was late.
    last: Option<(u64, Duration, bool)>,
}

impl FrameCounters {
    /// Counts a frame that became visible and was due at a refresh. The first one is never late. One that was replaced at the
    /// same refresh is skipped: it was never visible.
    pub fn add_shown(&mut self, due: u64, shown: &Shown) {
        self.shown += 1;
        let mut is_late = false;
        match self.last {
            None => (self.first_refresh, self.first_at) = (shown.refresh, shown.at),
            Some((last, ..)) if shown.refresh < last => {
                self.earlier_refreshes += last - self.first_refresh;
                self.first_refresh = shown.refresh;
            }
            Some((last, _, was_late)) => {
                if shown.refresh == last {
                    self.shown -= 1;
                    self.skipped += 1;
                    self.late -= u64::from(was_late);
                }
                is_late = shown.refresh > due;
                self.repeated += shown.refresh.saturating_sub(due.max(last + 1));
            }
        }
        self.late += u64::from(is_late);
        self.last = Some((shown.refresh, shown.at, is_late));
    }

    /// Returns the refreshes from the first frame to the last one.
    pub fn refreshes(&self) -> u64 {
        self.earlier_refreshes + self.last.map_or(0, |(last, ..)| last - self.first_refresh)
    }

    /// Returns the time from the refresh of the first frame to that of the last one.
    pub fn elapsed(&self) -> Duration {
        self.last.map_or(Duration::ZERO, |(_, at, _)| at.saturating_sub(self.first_at))
    }

    /// Returns the frames in a second. 0 before the second frame.
    pub fn rate(&self) -> f64 {
        let seconds = self.elapsed().as_secs_f64();
        if seconds > 0.0 { self.shown.saturating_sub(1) as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts frames that were due at the first refresh of each pair and shown at the second one.
    fn counted(frames: &[(u64, u64)]) -> FrameCounters {
        let mut counters = FrameCounters::default();
        for (due, refresh) in frames {
            let at = Duration::from_millis(refresh * 10);
            counters.add_shown(*due, &Shown { buffer: 0, refresh: *refresh, at, crc32: None });
        }
        counters
    }

    #[test]
    fn late_frames_repeat_the_one_before() {
        let counters = counted(&[(0, 100), (102, 102), (104, 107), (109, 109)]);
        assert_eq!((counters.shown, counters.late, counters.repeated), (4, 1, 3));
        assert_eq!((counters.refreshes(), counters.elapsed()), (9, Duration::from_millis(90)));
        assert!((counters.rate() - 3.0 / 0.09).abs() < 1e-9);
        assert_eq!((FrameCounters::default().rate(), FrameCounters::default().refreshes()), (0.0, 0));
    }

    #[test]
    fn frames_replaced_at_a_refresh_are_skipped_and_not_late() {
        let counters = counted(&[(0, 100), (102, 102), (103, 300), (104, 300), (105, 300)]);
        assert_eq!((counters.shown, counters.skipped, counters.late, counters.repeated), (3, 2, 1, 197));
    }

    #[test]
    fn refreshes_that_are_counted_from_the_start_are_added() {
        let counters = counted(&[(0, 1000), (1002, 1002), (1004, 5), (7, 8)]);
        assert_eq!((counters.shown, counters.skipped, counters.late), (4, 0, 1));
        assert_eq!((counters.refreshes(), counters.repeated), (2 + 3, 1));
    }
}
