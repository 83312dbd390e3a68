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
    /// First frame that became visible: its refresh and time.
    first: Option<(u64, Duration)>,
    /// Last frame that became visible.
    last: Option<(u64, Duration)>,
}

impl FrameCounters {
    /// Counts a frame that became visible and was due at a refresh. The first one is never late. One that was replaced at the
    /// same refresh is skipped: it was never visible.
    pub fn add_shown(&mut self, due: u64, shown: &Shown) {
        self.shown += 1;
        if let Some((last, _)) = self.last {
            let is_replacement = shown.refresh <= last;
            self.shown -= u64::from(is_replacement);
            self.skipped += u64::from(is_replacement);
            self.late += u64::from(shown.refresh > due);
            self.repeated += shown.refresh.saturating_sub(due.max(last + 1));
        }
        let now = (shown.refresh, shown.at);
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    /// Returns the refreshes from the first frame to the last one.
    pub fn refreshes(&self) -> u64 {
        self.span().map_or(0, |((first, _), (last, _))| last.saturating_sub(first))
    }

    /// Returns the time from the refresh of the first frame to that of the last one.
    pub fn elapsed(&self) -> Duration {
        self.span().map_or(Duration::ZERO, |((_, first), (_, last))| last.saturating_sub(first))
    }

    /// Returns the frames in a second. 0 before the second frame.
    pub fn rate(&self) -> f64 {
        let seconds = self.elapsed().as_secs_f64();
        if seconds > 0.0 { self.shown.saturating_sub(1) as f64 / seconds } else { 0.0 }
    }

    fn span(&self) -> Option<((u64, Duration), (u64, Duration))> {
        self.first.zip(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_frames_repeat_the_one_before() {
        let mut counters = FrameCounters::default();
        for (due, refresh) in [(0, 100), (102, 102), (104, 107), (109, 109)] {
            let at = Duration::from_millis(refresh * 10);
            counters.add_shown(due, &Shown { buffer: 0, refresh, at, crc32: None });
        }
        assert_eq!((counters.shown, counters.late, counters.repeated), (4, 1, 3));
        assert_eq!((counters.refreshes(), counters.elapsed()), (9, Duration::from_millis(90)));
        assert!((counters.rate() - 3.0 / 0.09).abs() < 1e-9);
        counters.add_shown(109, &Shown { buffer: 0, refresh: 109, at: Duration::from_millis(1090), crc32: None });
        assert_eq!((counters.shown, counters.skipped, counters.repeated), (4, 1, 3), "replaced at the same refresh");
        assert_eq!((FrameCounters::default().rate(), FrameCounters::default().refreshes()), (0.0, 0));
    }
}
