//! How one clock runs against another, from samples of their difference.
//!
//! Samples come at any rate and with outliers: a trigger that one source saw late, a packet that waited in a queue. The
//! estimate is a line through at most [`POINTS`] of them, by the median of all pairwise slopes (Theil 1950, Sen 1968).
//! Up to 29 % of the points may be anything and the line stays where it is, there is nothing to tune, and it is exact
//! on clean data: least squares, recursive or not, gives way to a single bad point, and a Kalman filter wants to be told
//! noise figures that nobody knows. The cost is that of 496 slopes for each new point, of which there are some
//! hundreds in the first second, and then one a second.
//!
//! The points are spread over time: one from each bin, and the bins grow from 100 us to 1 s as the line gets longer. So
//! an estimate is there at once, and after half a minute knows the drift as well as a free-running crystal keeps it.

use arrayvec::ArrayVec;

/// Points of a line.
const POINTS: usize = 32;
/// Pairs of them.
const PAIRS: usize = POINTS * (POINTS - 1) / 2;
/// Bins at first, and at most.
const BIN_NS: (u64, u64) = (100_000, 1_000_000_000);
/// With fewer points a line is not relied on.
const RELIABLE: usize = 8;
/// Points in a row that must lie close to the line before the clock counts as locked.
const STEADY: u32 = 8;
/// And the line must be as long.
const STEADY_NS: u64 = 100_000_000;
/// A slope is believed if it makes so many residuals over the line's length; else it may be noise, which would grow with
/// every pause.
const SIGNIFICANT: f64 = 2.0;
/// No crystal is off by more (the usual bound is 100 ppm): bounds what a few noisy points extrapolate to.
const MOST_DRIFT: f64 = 200e-6;
/// A sample so many times further off than half of the points, and by the bound, is not believed.
const OUTLIER: f64 = 8.0;
/// Outliers in a row that agree with each other are a jump, and so many are one whether they agree or not.
const JUMP: (usize, usize) = (4, 8);
/// They are so long apart, so that one burst of packets that waited is none.
const JUMP_NS: u64 = 1_000_000;

/// Which sample of a bin becomes the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// The first: the noise has two sides.
    First,
    /// The largest difference. For stamp less arrival: the packet that waited least (RFC 5905, clock filter).
    Largest,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    at_ns: u64,
    difference_ns: i64,
}

/// How one clock runs against another.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    pick: Pick,
    /// Residuals below are a lock.
    bound_ns: f64,
    bin_ns: u64,
    bin: Option<(u64, Point)>,
    points: ArrayVec<Point, POINTS>,
    suspects: ArrayVec<Point, { JUMP.1 }>,
    line: Line,
    steady: u32,
    locked: bool,
    pub(super) jumps: u64,
}

/// The estimate: exact at `at_ns`.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    at_ns: u64,
    offset_ns: f64,
    slope: f64,
    residual_ns: f64,
}

impl Filter {
    pub(super) fn new(pick: Pick, bound_ns: u64) -> Self {
        Self {
            pick,
            bound_ns: bound_ns as f64,
            bin_ns: BIN_NS.0,
            bin: None,
            points: ArrayVec::new(),
            suspects: ArrayVec::new(),
            line: Line::default(),
            steady: 0,
            locked: false,
            jumps: 0,
        }
    }

    /// Enters a sample: at this time of the reference the clock was ahead of it by so much. Whether it was a jump.
    pub(super) fn feed(&mut self, at_ns: u64, difference_ns: i64) -> bool {
        let new = Point { at_ns, difference_ns };
        if self.is_reliable() {
            if self.off(new) <= self.tolerance() {
                self.suspects.clear();
            } else if self.pick == Pick::First || difference_ns > self.offset_ns(at_ns) {
                return self.suspect(new);
            }
        }
        let Some((begun_ns, kept)) = &mut self.bin else {
            self.bin = Some((at_ns, new));
            if self.points.is_empty() {
                // Better than nothing, and replaced by the bin's point.
                self.line = Line { at_ns, offset_ns: difference_ns as f64, ..Line::default() };
            }
            return false;
        };
        if at_ns < begun_ns.saturating_add(self.bin_ns) {
            if self.pick == Pick::Largest && difference_ns > kept.difference_ns {
                *kept = new;
            }
            return false;
        }
        let point = *kept;
        self.bin = Some((at_ns, new));
        // Of arrivals a single late one means nothing, but a bin without any in time does.
        if self.is_reliable() && self.off(point) > self.tolerance() {
            return self.suspect(point);
        }
        self.enter(point);
        false
    }

    /// Forgets the line, but not how often it jumped.
    pub(super) fn reset(&mut self) {
        *self = Self { jumps: self.jumps, ..Self::new(self.pick, self.bound_ns as u64) };
    }

    /// Whether a sample has come.
    pub(super) fn is_begun(&self) -> bool {
        self.bin.is_some()
    }
    /// Whether the line can be relied on.
    pub(super) fn is_reliable(&self) -> bool {
        self.points.len() >= RELIABLE
    }
    pub(super) fn is_locked(&self) -> bool {
        self.locked
    }
    /// How far the clock is ahead at this time of the reference.
    pub(super) fn offset_ns(&self, at_ns: u64) -> i64 {
        let elapsed = at_ns.wrapping_sub(self.line.at_ns) as i64;
        (self.line.offset_ns + self.line.slope * elapsed as f64).round() as i64
    }
    /// What the reference reads when the clock reads this.
    pub(super) fn reference_ns(&self, clock_ns: u64) -> u64 {
        let ahead = i128::from(clock_ns) - i128::from(self.line.at_ns) - self.line.offset_ns as i128;
        // Of what has passed since the line's end the clock shows more by the slope.
        let excess = (ahead as f64 * self.line.slope / (1.0 + self.line.slope)).round() as i128;
        (i128::from(self.line.at_ns) + ahead - excess).clamp(0, i128::from(u64::MAX)) as u64
    }
    /// How much faster it runs, in parts per 10^9.
    pub(super) fn drift_ppb(&self) -> i64 {
        (self.line.slope * 1e9).round() as i64
    }
    /// How far half of the points are from the line.
    pub(super) fn residual_ns(&self) -> u64 {
        self.line.residual_ns.round() as u64
    }
    /// Where the line ends.
    pub(super) fn at_ns(&self) -> u64 {
        self.line.at_ns
    }

    /// How far a sample is from the line.
    fn off(&self, point: Point) -> f64 {
        point.difference_ns.saturating_sub(self.offset_ns(point.at_ns)).unsigned_abs() as f64
    }
    fn tolerance(&self) -> f64 {
        self.bound_ns + OUTLIER * self.line.residual_ns
    }

    fn enter(&mut self, point: Point) {
        let off = self.off(point);
        self.add(point);
        self.fit();
        let close = off <= 2.0 * self.bound_ns && self.line.residual_ns <= self.bound_ns;
        self.steady = if close { self.steady.saturating_add(1) } else { 0 };
        self.locked = self.span_ns() >= STEADY_NS
            && self.is_reliable()
            && (self.steady >= STEADY || self.locked && self.line.residual_ns <= 2.0 * self.bound_ns);
    }

    /// A sample that is not believed. Whether it and those before it are a jump: together they lie as close as points do.
    fn suspect(&mut self, new: Point) -> bool {
        if self.suspects.last().is_some_and(|last| new.at_ns < last.at_ns.saturating_add(JUMP_NS)) {
            return false;
        }
        self.suspects.push(new);
        let off = self.suspects.iter().map(|point| point.difference_ns.saturating_sub(self.offset_ns(point.at_ns)));
        let spread = off.clone().max().unwrap_or(0).saturating_sub(off.min().unwrap_or(0));
        let agree = self.suspects.len() >= JUMP.0 && spread as f64 <= self.tolerance();
        (agree || self.suspects.is_full()) && self.jump()
    }

    /// Begins again with the suspects.
    fn jump(&mut self) -> bool {
        self.jumps += 1;
        let suspects = std::mem::take(&mut self.suspects);
        self.reset();
        self.bin = suspects.last().map(|last| (last.at_ns, *last));
        self.points.extend(suspects.iter().copied().take(suspects.len() - 1));
        self.fit();
        true
    }

    fn add(&mut self, point: Point) {
        if self.points.is_full() {
            if self.bin_ns < BIN_NS.1 {
                // Every other point, and from now on half as many.
                let mut keep = false;
                self.points.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.bin_ns = (self.bin_ns * 2).min(BIN_NS.1);
            } else {
                self.points.remove(0);
            }
        }
        self.points.push(point);
    }

    /// The line through the points: the median of the slopes, and then the median of what is left.
    fn fit(&mut self) {
        let Some(last) = self.points.last().copied() else { return };
        let x = |point: &Point| point.at_ns.wrapping_sub(last.at_ns) as i64 as f64;
        let y = |point: &Point| point.difference_ns.wrapping_sub(last.difference_ns) as f64;
        let mut slopes = ArrayVec::<f64, PAIRS>::new();
        for (index, one) in self.points.iter().enumerate() {
            for other in &self.points[..index] {
                let run = x(one) - x(other);
                if run != 0.0 {
                    slopes.push((y(one) - y(other)) / run);
                }
            }
        }
        let through = |slope: f64| {
            let mut rest: ArrayVec<f64, POINTS> = self.points.iter().map(|point| y(point) - slope * x(point)).collect();
            let offset = median(&mut rest);
            rest.iter_mut().for_each(|rest| *rest = (*rest - offset).abs());
            let residual_ns = median(&mut rest);
            Line { at_ns: last.at_ns, offset_ns: last.difference_ns as f64 + offset, slope, residual_ns }
        };
        let line = through(median(&mut slopes).clamp(-MOST_DRIFT, MOST_DRIFT));
        let significant = line.slope.abs() * self.span_ns() as f64 > SIGNIFICANT * line.residual_ns;
        self.line = if significant { line } else { through(0.0) };
    }

    fn span_ns(&self) -> u64 {
        let ends = self.points.first().zip(self.points.last());
        ends.map_or(0, |(first, last)| last.at_ns.saturating_sub(first.at_ns))
    }
}

/// The upper median; 0 of nothing.
fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const BEGIN: u64 = 1_700_000_000_000_000_000;

    fn fed(pick: Pick, samples: impl Iterator<Item = (u64, i64)>) -> Filter {
        let mut filter = Filter::new(pick, 1000);
        for (at, difference) in samples {
            filter.feed(BEGIN + at, difference);
        }
        filter
    }

    proptest! {
        #[test]
        fn offset_and_drift_are_found_although_a_fifth_of_the_samples_is_wrong(
            offset in -1_000_000_000_i64..1_000_000_000,
            drift_ppb in -50_000_i64..50_000,
            noise in prop::collection::vec((-200_i64..200, -10_000_000_i64..10_000_000), 600),
        ) {
            let truth = |at: u64| offset + (at as i128 * i128::from(drift_ppb) / 1_000_000_000) as i64;
            // Every fifth: by chance there may be more of them among the first points than any estimate stands.
            let samples = noise.iter().enumerate().map(|(index, (noise, error))| {
                let at = index as u64 * 5 * MS;
                (at, truth(at) + noise + if index % 5 == 0 { *error } else { 0 })
            });
            let filter = fed(Pick::First, samples);
            let (at, lasted_s) = (600 * 5 * MS, 3.0);
            prop_assert!((filter.offset_ns(BEGIN + at) - truth(at)).abs() < 1000);
            prop_assert!((filter.drift_ppb() - drift_ppb).abs() as f64 <= 900.0 / lasted_s, "{}", filter.drift_ppb());
        }
    }

    #[test]
    fn a_clock_is_locked_when_it_was_steady_for_a_while_and_not_before() {
        let mut filter = Filter::new(Pick::First, 1000);
        let locked: Vec<bool> = (0..20)
            .map(|index| {
                filter.feed(BEGIN + index * 10 * MS, 5 + index as i64);
                filter.is_locked()
            })
            .collect();
        // A bin's point is entered when the next bin begins.
        assert!(!locked[7] && locked[19], "{locked:?}");
        assert_eq!((filter.drift_ppb(), filter.jumps), (100, 0));
        let noisy = fed(Pick::First, (0..200).map(|index| (index * 10 * MS, (index as i64 * 7919) % 100_000)));
        assert!(!noisy.is_locked());
    }

    #[test]
    fn a_jump_unlocks_is_counted_once_and_is_followed() {
        let jump = |index: u64| if index < 100 { 0 } else { 3_000_000 };
        let mut filter = Filter::new(Pick::First, 1000);
        let mut jumped = Vec::new();
        for index in 0..110 {
            if filter.feed(BEGIN + index * 1000 * MS, jump(index)) {
                jumped.push(index);
                assert!(!filter.is_locked());
            }
        }
        assert_eq!((jumped, filter.jumps), (vec![103], 1));
        assert_eq!(filter.offset_ns(BEGIN + 110_000 * MS), 3_000_000);
        for index in 110..130 {
            filter.feed(BEGIN + index * 1000 * MS, jump(index));
        }
        assert!(filter.is_locked());
    }

    #[test]
    fn of_arrivals_the_packet_that_waited_least_counts() {
        // Each tenth packet is not held up, the others by up to a millisecond.
        let samples = (0..3000).map(|index| {
            let waited = if index % 10 == 3 { 0 } else { 100_000 + (index * 7919) % 900_000 };
            (index * MS, 42 - waited as i64)
        });
        let filter = fed(Pick::Largest, samples);
        assert!((filter.offset_ns(BEGIN + 3000 * MS) - 42).abs() < 100, "{filter:?}");
    }

    #[test]
    fn a_reset_forgets_everything_but_the_jumps() {
        let mut filter = fed(Pick::First, (0..40).map(|index| (index * 10 * MS, 7)));
        filter.jumps = 3;
        filter.reset();
        assert!(!filter.is_begun() && !filter.is_reliable() && !filter.is_locked());
        assert_eq!((filter.offset_ns(BEGIN), filter.jumps), (0, 3));
    }
}
