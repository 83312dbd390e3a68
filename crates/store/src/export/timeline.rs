//! Where shots lie on the sender's line of samples, counted from the beginning of 1970.
//!
//! A stamp has nanoseconds, and a sample's time is seldom a whole number of them. So a shot that follows the one
//! before by its number, and by its stamp to within a sample or two, continues it without a gap; any other shot is
//! where its stamp says, or behind the shot before if it says that the two overlap. What follows such a shot continues
//! nothing, however well its stamp fits: else it would be told by the stamp of a shot that is not where its own says.

use crate::rows::Row;

/// Samples by which a stamp may differ from what the shot before it lets expect.
const JITTER: u64 = 2;

/// Places one link's shots, in the order of their rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeline {
    rate: u64,
    /// Nanoseconds to take from a stamp.
    ahead: i64,
    samples: u64,
    /// Number and end of the shot before.
    last: Option<(u64, u64)>,
    /// That one was moved.
    moved: bool,
}

/// Where a shot lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its first sample.
    pub start: u64,
    /// It continues the shot before it.
    pub continues: bool,
    /// Its stamp says that it began before the shot before it had ended: it is put behind that.
    pub overlaps: bool,
}

impl Timeline {
    /// For shots of `samples` instants at `rate` Hz, stamped with a clock that is `ahead` nanoseconds ahead of UTC.
    pub fn new(rate: u32, samples: u32, ahead: i64) -> Self {
        Self { rate: rate.into(), ahead, samples: samples.into(), last: None, moved: false }
    }

    /// Places the next shot. A first one without a stamp lies where it arrived, or else where the run began, at
    /// `begun_tai_ns`.
    pub fn place(&mut self, row: &Row, begun_tai_ns: u64) -> Place {
        let stamped = (row.stamp_tai_ns > 0).then(|| self.index(row.stamp_tai_ns));
        let expected = self.last.map(|(number, end)| {
            let between = row.number.saturating_sub(number.saturating_add(1));
            (end.saturating_add(between.saturating_mul(self.samples)), between == 0 && !self.moved)
        });
        let place = match (expected, stamped) {
            (None, stamped) => {
                let arrived = if row.arrived_tai_ns > 0 { row.arrived_tai_ns } else { begun_tai_ns };
                let start = stamped.unwrap_or_else(|| self.index(arrived));
                Place { start, continues: false, overlaps: false }
            }
            (Some((start, continues)), None) => Place { start, continues, overlaps: false },
            (Some((start, continues)), Some(stamp)) if stamp.abs_diff(start) <= JITTER => {
                Place { start, continues, overlaps: false }
            }
            (Some(_), Some(stamp)) => {
                let end = self.last.map_or(0, |(_, end)| end);
                Place { start: stamp.max(end), continues: false, overlaps: stamp < end }
            }
        };
        self.last = Some((row.number, place.start + self.samples));
        self.moved = place.overlaps;
        place
    }

    /// The UTC nanosecond of a sample.
    pub fn utc_ns(&self, sample: u64) -> u64 {
        (u128::from(sample) * 1_000_000_000 / u128::from(self.rate)) as u64
    }

    fn index(&self, stamp: u64) -> u64 {
        let utc = u128::from(stamp.saturating_add_signed(-self.ahead));
        ((utc * u128::from(self.rate) + 500_000_000) / 1_000_000_000) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::State;
    use shotline_wire::shot::DropCause;

    fn row(number: u64, stamp_tai_ns: u64) -> Row {
        let drops = [0; DropCause::ALL.len()];
        let (presence, state) = (Vec::new(), State::Complete);
        Row {
            number,
            stamp_tai_ns,
            arrived_tai_ns: 0,
            completed_tai_ns: 0,
            valid_bytes: 0,
            packets: 0,
            placed: 0,
            drops,
            state,
            flags: 0,
            record_good: true,
            presence,
            slot_crc32: 0,
            sound: true,
        }
    }

    #[test]
    fn shots_that_follow_each_other_do_so_to_the_sample_whatever_their_stamps_round_to() {
        // 3 MS/s: a sample has 333.3 ns.
        let mut line = Timeline::new(3_000_000, 1000, 37_000_000_000);
        let mut end = None;
        for number in 0..5000 {
            let place = line.place(&row(number, 1_700_000_037_000_000_000 + number * 1_000_000 / 3), 0);
            assert_eq!(place.continues, number > 0);
            assert_eq!(end.unwrap_or(place.start), place.start);
            end = Some(place.start + 1000);
        }
        assert_eq!(end, Some(1_700_000_000 * 3_000_000 + 5_000_000));
    }

    #[test]
    fn a_lost_shot_leaves_its_room_and_a_pause_is_as_long_as_the_stamps_say() {
        let mut line = Timeline::new(1_000_000, 100, 0);
        assert_eq!(line.place(&row(7, 5_000_000), 0).start, 5000);
        assert_eq!(line.place(&row(9, 0), 0), Place { start: 5200, continues: false, overlaps: false });
        assert_eq!(line.place(&row(10, 0), 0), Place { start: 5300, continues: true, overlaps: false });
        assert_eq!(line.place(&row(11, 9_000_000), 0), Place { start: 9000, continues: false, overlaps: false });
        assert_eq!(line.place(&row(12, 9_000_000), 0), Place { start: 9100, continues: false, overlaps: true });
        assert_eq!(line.utc_ns(9100), 9_100_000);
        // It would continue the place of the one before, but not that one's stamp.
        assert_eq!(line.place(&row(13, 9_200_000), 0), Place { start: 9200, continues: false, overlaps: false });
        assert_eq!(line.place(&row(14, 9_300_000), 0), Place { start: 9300, continues: true, overlaps: false });
    }
}
