//! Positions of shots on the sender's sample timeline, counted in samples from the beginning of 1970.
//!
//! Timestamps are in nanoseconds, and the time of a sample is rarely a whole number of them. A shot therefore continues
//! the previous one without a gap if its number is the next one and its timestamp is within a sample or two. Any other
//! shot is placed at its timestamp, or directly after the previous shot if its timestamp says that the two overlap. The
//! shot after such a moved shot starts a new segment even if it is contiguous, so that the timestamp of a segment is
//! always that of a shot at its own position.

use crate::rows::Row;

/// Maximum difference of a timestamp from the expected position, in samples.
const MAX_JITTER: u64 = 2;

/// Computes the positions of the shots of a link, in the order of their rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeline {
    /// Sample rate in Hz.
    rate: u64,
    /// TAI - UTC in nanoseconds, subtracted from timestamps.
    tai_minus_utc_ns: i64,
    /// Instants per shot.
    samples: u64,
    /// Number of the previous shot, and index of the sample after its end.
    last: Option<(u64, u64)>,
    /// The previous shot was moved because it overlapped.
    moved: bool,
}

/// Position of a shot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// Index of the first sample.
    pub start: u64,
    /// The shot continues the previous one without a gap.
    pub continues: bool,
    /// The timestamp overlaps the previous shot, so the shot is placed directly after it.
    pub overlaps: bool,
}

impl Timeline {
    /// Creates a timeline for shots of `samples` instants at `rate` Hz. Timestamps are ahead of UTC by
    /// `tai_minus_utc_ns`.
    pub fn new(rate: u32, samples: u32, tai_minus_utc_ns: i64) -> Self {
        Self { rate: rate.into(), tai_minus_utc_ns, samples: samples.into(), last: None, moved: false }
    }

    /// Returns the position of the next shot. A first shot without a timestamp is placed at its arrival time, or else
    /// at the start of the run, `start_tai_ns`.
    pub fn position(&mut self, row: &Row, start_tai_ns: u64) -> Position {
        let stamped = (row.stamp_tai_ns > 0).then(|| self.index(row.stamp_tai_ns));
        let expected = self.last.map(|(number, end)| {
            let between = row.number.saturating_sub(number.saturating_add(1));
            (end.saturating_add(between.saturating_mul(self.samples)), between == 0 && !self.moved)
        });
        let position = match (expected, stamped) {
            (None, stamped) => {
                let arrived = if row.arrived_tai_ns > 0 { row.arrived_tai_ns } else { start_tai_ns };
                let start = stamped.unwrap_or_else(|| self.index(arrived));
                Position { start, continues: false, overlaps: false }
            }
            (Some((start, continues)), None) => Position { start, continues, overlaps: false },
            (Some((start, continues)), Some(stamp)) if stamp.abs_diff(start) <= MAX_JITTER => {
                Position { start, continues, overlaps: false }
            }
            (Some(_), Some(stamp)) => {
                let end = self.last.map_or(0, |(_, end)| end);
                Position { start: stamp.max(end), continues: false, overlaps: stamp < end }
            }
        };
        self.last = Some((row.number, position.start + self.samples));
        self.moved = position.overlaps;
        position
    }

    /// Returns the UTC time of a sample in nanoseconds.
    pub fn utc_ns(&self, sample: u64) -> u64 {
        (u128::from(sample) * 1_000_000_000 / u128::from(self.rate)) as u64
    }

    fn index(&self, stamp: u64) -> u64 {
        let utc = u128::from(stamp.saturating_add_signed(-self.tai_minus_utc_ns));
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
            crc_valid: true,
        }
    }

    #[test]
    fn consecutive_shots_are_contiguous_despite_rounding() {
        // At 3 MS/s a sample lasts 333.3 ns.
        let mut timeline = Timeline::new(3_000_000, 1000, 37_000_000_000);
        let mut end = None;
        for number in 0..5000 {
            let position = timeline.position(&row(number, 1_700_000_037_000_000_000 + number * 1_000_000 / 3), 0);
            assert_eq!(position.continues, number > 0);
            assert_eq!(end.unwrap_or(position.start), position.start);
            end = Some(position.start + 1000);
        }
        assert_eq!(end, Some(1_700_000_000 * 3_000_000 + 5_000_000));
    }

    #[test]
    fn lost_shots_and_pauses_leave_gaps() {
        let mut timeline = Timeline::new(1_000_000, 100, 0);
        assert_eq!(timeline.position(&row(7, 5_000_000), 0).start, 5000);
        assert_eq!(timeline.position(&row(9, 0), 0), Position { start: 5200, continues: false, overlaps: false });
        assert_eq!(timeline.position(&row(10, 0), 0), Position { start: 5300, continues: true, overlaps: false });
        assert_eq!(
            timeline.position(&row(11, 9_000_000), 0),
            Position { start: 9000, continues: false, overlaps: false }
        );
        assert_eq!(
            timeline.position(&row(12, 9_000_000), 0),
            Position { start: 9100, continues: false, overlaps: true }
        );
        assert_eq!(timeline.utc_ns(9100), 9_100_000);
        // Contiguous with the position of the previous shot, but not with its timestamp.
        assert_eq!(
            timeline.position(&row(13, 9_200_000), 0),
            Position { start: 9200, continues: false, overlaps: false }
        );
        assert_eq!(
            timeline.position(&row(14, 9_300_000), 0),
            Position { start: 9300, continues: true, overlaps: false }
        );
    }
}
