//! The refreshes at which images are due.

/// Refreshes for which the first image is shown longer than the others: it is known that it was shown only when the next
/// refresh is near.
const MARGIN: u64 = 1;

/// Schedule of images at a constant rate. It begins with the refresh at which the first image was shown, and shifts by each
/// delay, so that images are shown one
/// after the other.
pub struct Schedule {
    /// Refreshes of an image.
    per_image: f64,
    /// Images that were scheduled.
    count: u64,
    /// Refresh of the first image with the margin, once it is known.
    first: Option<u64>,
    /// Sum of the delays.
    delay: u64,
}

/// The refresh at which an image is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Number of the refresh at which it should be shown; 0 is as soon as possible.
    pub planned: u64,
    /// The same, or the next refresh if that has passed: the display skips images that are due at the same refresh.
    pub refresh: u64,
    /// Sum of the delays that it includes.
    delay: u64,
}

impl Schedule {
    /// Creates the schedule of a display and of a rate of images, both in hertz. Rates that differ by less than 1 % from a
    /// fraction of the refresh rate are that fraction: 60 images on a display of 59.94 Hz. One image at each refresh is the
    /// most.
    pub fn new(refresh_hz: f64, rate: Option<f64>) -> Self {
        let ratio = rate.map_or(1.0, |rate| refresh_hz / rate).max(1.0);
        let whole = ratio.round();
        let per_image = if (ratio - whole).abs() < 0.01 * whole { whole } else { ratio };
        Self { per_image, count: 0, first: None, delay: 0 }
    }

    /// Returns when the next image is due. `now` is about the number of the last refresh. `None` until the first image was
    /// shown.
    pub fn next(&mut self, now: u64) -> Option<Due> {
        let due = match (self.first, self.count) {
            (None, 0) => Due { planned: 0, refresh: 0, delay: 0 },
            (None, _) => return None,
            (Some(first), count) => {
                let planned = first + self.delay + (count as f64 * self.per_image) as u64;
                let refresh = planned.max(now + 1);
                self.delay += refresh - planned;
                Due { planned, refresh, delay: self.delay }
            }
        };
        self.count += 1;
        Some(due)
    }

    /// Notes the refresh at which an image was shown.
    pub fn shown(&mut self, due: Due, refresh: u64) {
        if self.first.is_none() || refresh < due.refresh {
            // Displays show no image too early: this one has begun to count from the start.
            *self = Self { per_image: self.per_image, count: 1, first: Some(refresh + MARGIN), delay: 0 };
            return;
        }
        // Images that were scheduled before the delay are shown late for the same reason.
        self.delay += refresh.saturating_sub(due.refresh + self.delay.saturating_sub(due.delay));
    }

    /// Notes that an image was not shown.
    pub fn skipped(&mut self) {
        if self.first.is_none() {
            self.count = 0;
        }
    }

    /// Returns the images in a second.
    pub fn rate(&self, refresh_hz: f64) -> f64 {
        refresh_hz / self.per_image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refresh(schedule: &mut Schedule) -> u64 {
        schedule.next(0).unwrap().refresh
    }

    #[test]
    fn images_are_due_at_equal_distances_from_the_first() {
        for (rate, expected) in [(None, [102, 103, 104]), (Some(30.0), [103, 105, 107]), (Some(25.0), [103, 105, 108])]
        {
            let mut schedule = Schedule::new(60.0, rate);
            let due = schedule.next(0).unwrap();
            assert_eq!((due.refresh, schedule.next(0)), (0, None), "before the first is shown");
            schedule.shown(due, 100);
            assert_eq!([(); 3].map(|()| refresh(&mut schedule)), expected);
        }
    }

    #[test]
    fn delay_is_added_once_for_images_in_flight() {
        let mut schedule = Schedule::new(60.0, None);
        let first = schedule.next(0).unwrap();
        schedule.shown(first, 100);
        let [a, b] = [(); 2].map(|()| schedule.next(0).unwrap());
        assert_eq!((a.refresh, b.refresh), (102, 103));
        schedule.shown(a, 105);
        schedule.shown(b, 106);
        assert_eq!(refresh(&mut schedule), 107);
        let in_time = schedule.next(0).unwrap();
        schedule.shown(in_time, 108);
        assert_eq!(refresh(&mut schedule), 109);
    }

    #[test]
    fn images_that_are_ready_too_late_are_due_one_after_the_other() {
        let mut schedule = Schedule::new(60.0, None);
        let first = schedule.next(0).unwrap();
        schedule.shown(first, 100);
        let late = [(); 3].map(|()| schedule.next(150).unwrap());
        assert_eq!(late.map(|due| (due.planned, due.refresh)), [(102, 151), (152, 152), (153, 153)]);
        for due in late {
            schedule.shown(due, due.refresh);
        }
        assert_eq!(refresh(&mut schedule), 154);
    }

    #[test]
    fn schedule_begins_again_when_the_display_counts_again() {
        let mut schedule = Schedule::new(60.0, None);
        let first = schedule.next(0).unwrap();
        schedule.skipped();
        assert_eq!(schedule.next(0), Some(first), "nothing was shown yet");
        schedule.shown(first, 1000);
        let due = schedule.next(0).unwrap();
        schedule.shown(due, 5);
        assert_eq!(refresh(&mut schedule), 7);
    }

    #[test]
    fn rate_is_a_fraction_of_the_refresh_or_at_most_it() {
        for (hz, rate, found) in [(59.94, 60.0, 59.94), (59.94, 30.0, 29.97), (60.0, 75.0, 60.0), (60.0, 24.0, 24.0)] {
            let schedule = Schedule::new(hz, Some(rate));
            assert!((schedule.rate(hz) - found).abs() < 1e-9, "{hz} {rate}");
        }
    }
}
