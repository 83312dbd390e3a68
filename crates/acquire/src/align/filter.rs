//! Offset and drift of one clock against another, from samples of their difference.
//!
//! Samples arrive at any rate and with outliers: a trigger that one source saw late, a packet that waited in a queue.
//! The estimate is a line through at most [`POINTS`] of them, by the median of all pairwise slopes (Theil 1950, Sen
//! 1968). It stays correct if up to 29 % of the points are arbitrary, needs no tuning, and is exact on clean data:
//! least squares, recursive or not, is moved by a single bad point, and a Kalman filter needs noise figures that are
//! unknown here. The cost is 496 slopes for each new point: some hundred points in the first second, then one a second.
//!
//! The points are spread over time: one from each bin, and the bins grow from 100 us to 1 s as the line gets longer. An
//! estimate is therefore available at once, and after half a minute the drift is known to the stability of a
//! free-running crystal.

use arrayvec::ArrayVec;

/// Maximum number of points of a line.
const POINTS: usize = 32;
/// Number of pairs of points.
const PAIRS: usize = POINTS * (POINTS - 1) / 2;
/// Initial and maximum bin width.
const BIN_NS: (u64, u64) = (100_000, 1_000_000_000);
/// Minimum number of points of a reliable line.
const MIN_RELIABLE_POINTS: usize = 8;
/// Number of consecutive points that must lie close to the line before the clock counts as locked.
const STEADY_POINTS: u32 = 8;
/// Minimum time span of the line before the clock counts as locked.
const MIN_STEADY_NS: u64 = 100_000_000;
/// Minimum rise of a significant slope over the line's length, in residuals. A smaller slope may be noise, whose
/// extrapolation error would grow with every pause.
const SIGNIFICANT_RESIDUALS: f64 = 2.0;
/// Maximum drift: no crystal is off by more (the usual bound is 100 ppm). Bounds what a few noisy points extrapolate
/// to.
const MAX_DRIFT: f64 = 200e-6;
/// Minimum distance of an outlier from the line: the bound, plus this many median residuals.
const OUTLIER_RESIDUALS: f64 = 8.0;
/// Number of consecutive outliers that are a jump: if they agree with each other, and in any case.
const JUMP_OUTLIERS: (usize, usize) = (4, 8);
/// Minimum spacing of these outliers, so that one burst of delayed packets is no jump.
const JUMP_SPACING_NS: u64 = 1_000_000;

/// Sample of a bin that becomes the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// The first: the noise is two-sided.
    First,
    /// The largest difference. For stamp minus arrival, that is the packet with the shortest delay (RFC 5905, clock
    /// filter).
    Largest,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    at_ns: u64,
    difference_ns: i64,
}

/// Estimator of one clock's offset and drift against another.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    pick: Pick,
    /// Maximum residual of a locked clock.
    bound_ns: f64,
    bin_ns: u64,
    bin: Option<(u64, Point)>,
    points: ArrayVec<Point, POINTS>,
    outliers: ArrayVec<Point, { JUMP_OUTLIERS.1 }>,
    line: Line,
    steady: u32,
    locked: bool,
    pub(super) jumps: u64,
}

/// Fitted line, exact at `at_ns`.
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
            outliers: ArrayVec::new(),
            line: Line::default(),
            steady: 0,
            locked: false,
            jumps: 0,
        }
    }

    /// Adds a sample: the clock's lead at `at_ns` of the reference. Returns `true` if the clock has jumped.
    pub(super) fn add_sample(&mut self, at_ns: u64, difference_ns: i64) -> bool {
        let new = Point { at_ns, difference_ns };
        if self.is_reliable() {
            if self.distance(new) <= self.tolerance() {
                self.outliers.clear();
            } else if self.pick == Pick::First || difference_ns > self.offset_ns(at_ns) {
                return self.add_outlier(new);
            }
        }
        let Some((started_ns, kept)) = &mut self.bin else {
            self.bin = Some((at_ns, new));
            if self.points.is_empty() {
                // Provisional, replaced by the bin's point.
                self.line = Line { at_ns, offset_ns: difference_ns as f64, ..Line::default() };
            }
            return false;
        };
        if at_ns < started_ns.saturating_add(self.bin_ns) {
            if self.pick == Pick::Largest && difference_ns > kept.difference_ns {
                *kept = new;
            }
            return false;
        }
        let point = *kept;
        self.bin = Some((at_ns, new));
        // A single late arrival is ignored, but a bin in which all arrivals are late may be a jump.
        if self.is_reliable() && self.distance(point) > self.tolerance() {
            return self.add_outlier(point);
        }
        self.add_point(point);
        false
    }

    /// Discards the line; keeps the number of jumps.
    pub(super) fn reset(&mut self) {
        *self = Self { jumps: self.jumps, ..Self::new(self.pick, self.bound_ns as u64) };
    }

    /// Returns `true` after the first sample.
    pub(super) fn has_samples(&self) -> bool {
        self.bin.is_some()
    }
    /// Returns `true` if the line has enough points.
    pub(super) fn is_reliable(&self) -> bool {
        self.points.len() >= MIN_RELIABLE_POINTS
    }
    pub(super) fn is_locked(&self) -> bool {
        self.locked
    }
    /// Returns the clock's lead at this time of the reference.
    pub(super) fn offset_ns(&self, at_ns: u64) -> i64 {
        let elapsed = at_ns.wrapping_sub(self.line.at_ns) as i64;
        (self.line.offset_ns + self.line.slope * elapsed as f64).round() as i64
    }
    /// Returns the reference's time when the clock shows `clock_ns`.
    pub(super) fn reference_ns(&self, clock_ns: u64) -> u64 {
        let ahead = i128::from(clock_ns) - i128::from(self.line.at_ns) - self.line.offset_ns as i128;
        // The clock has gained `slope` on the time that has passed since the end of the line.
        let excess = (ahead as f64 * self.line.slope / (1.0 + self.line.slope)).round() as i128;
        (i128::from(self.line.at_ns) + ahead - excess).clamp(0, i128::from(u64::MAX)) as u64
    }
    /// Returns the drift in parts per 10^9; positive if the clock runs fast.
    pub(super) fn drift_ppb(&self) -> i64 {
        (self.line.slope * 1e9).round() as i64
    }
    /// Returns the median distance of the points from the line.
    pub(super) fn residual_ns(&self) -> u64 {
        self.line.residual_ns.round() as u64
    }
    /// Returns the time of the line's last point.
    pub(super) fn at_ns(&self) -> u64 {
        self.line.at_ns
    }

    /// Returns the distance of a sample from the line.
    fn distance(&self, point: Point) -> f64 {
        point.difference_ns.saturating_sub(self.offset_ns(point.at_ns)).unsigned_abs() as f64
    }
    fn tolerance(&self) -> f64 {
        self.bound_ns + OUTLIER_RESIDUALS * self.line.residual_ns
    }

    fn add_point(&mut self, point: Point) {
        let distance = self.distance(point);
        self.push_point(point);
        self.fit();
        let close = distance <= 2.0 * self.bound_ns && self.line.residual_ns <= self.bound_ns;
        self.steady = if close { self.steady.saturating_add(1) } else { 0 };
        self.locked = self.span_ns() >= MIN_STEADY_NS
            && self.is_reliable()
            && (self.steady >= STEADY_POINTS || self.locked && self.line.residual_ns <= 2.0 * self.bound_ns);
    }

    /// Adds an outlier. Returns `true` if it and those before it are a jump: together they lie as close as points do.
    fn add_outlier(&mut self, new: Point) -> bool {
        if self.outliers.last().is_some_and(|last| new.at_ns < last.at_ns.saturating_add(JUMP_SPACING_NS)) {
            return false;
        }
        self.outliers.push(new);
        let distance =
            self.outliers.iter().map(|point| point.difference_ns.saturating_sub(self.offset_ns(point.at_ns)));
        let spread = distance.clone().max().unwrap_or(0).saturating_sub(distance.min().unwrap_or(0));
        let agree = self.outliers.len() >= JUMP_OUTLIERS.0 && spread as f64 <= self.tolerance();
        (agree || self.outliers.is_full()) && self.jump()
    }

    /// Starts again with the outliers as points.
    fn jump(&mut self) -> bool {
        self.jumps += 1;
        let outliers = std::mem::take(&mut self.outliers);
        self.reset();
        self.bin = outliers.last().map(|last| (last.at_ns, *last));
        self.points.extend(outliers.iter().copied().take(outliers.len() - 1));
        self.fit();
        true
    }

    fn push_point(&mut self, point: Point) {
        if self.points.is_full() {
            if self.bin_ns < BIN_NS.1 {
                // Keeps every other point, and doubles the bin width.
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

    /// Fits the line through the points: the median of the slopes, then the median of the residuals.
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
        let line = through(median(&mut slopes).clamp(-MAX_DRIFT, MAX_DRIFT));
        let significant = line.slope.abs() * self.span_ns() as f64 > SIGNIFICANT_RESIDUALS * line.residual_ns;
        self.line = if significant { line } else { through(0.0) };
    }

    fn span_ns(&self) -> u64 {
        let ends = self.points.first().zip(self.points.last());
        ends.map_or(0, |(first, last)| last.at_ns.saturating_sub(first.at_ns))
    }
}

/// Returns the upper median; 0 for an empty slice.
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
    const START_NS: u64 = 1_700_000_000_000_000_000;

    fn fed(pick: Pick, samples: impl Iterator<Item = (u64, i64)>) -> Filter {
        let mut filter = Filter::new(pick, 1000);
        for (at, difference) in samples {
            filter.add_sample(START_NS + at, difference);
        }
        filter
    }

    proptest! {
        #[test]
        fn the_line_is_found_with_a_fifth_of_the_samples_wrong(
            offset in -1_000_000_000_i64..1_000_000_000,
            drift_ppb in -50_000_i64..50_000,
            noise in prop::collection::vec((-200_i64..200, -10_000_000_i64..10_000_000), 600),
        ) {
            let truth = |at: u64| offset + (at as i128 * i128::from(drift_ppb) / 1_000_000_000) as i64;
            // Every fifth sample is wrong: a random choice could put more wrong ones among the first points than any
            // estimate tolerates.
            let samples = noise.iter().enumerate().map(|(index, (noise, error))| {
                let at = index as u64 * 5 * MS;
                (at, truth(at) + noise + if index % 5 == 0 { *error } else { 0 })
            });
            let filter = fed(Pick::First, samples);
            let (at, lasted_s) = (600 * 5 * MS, 3.0);
            prop_assert!((filter.offset_ns(START_NS + at) - truth(at)).abs() < 1000);
            prop_assert!((filter.drift_ppb() - drift_ppb).abs() as f64 <= 900.0 / lasted_s, "{}", filter.drift_ppb());
        }
    }

    #[test]
    fn a_clock_locks_only_after_it_was_steady() {
        let mut filter = Filter::new(Pick::First, 1000);
        let locked: Vec<bool> = (0..20)
            .map(|index| {
                filter.add_sample(START_NS + index * 10 * MS, 5 + index as i64);
                filter.is_locked()
            })
            .collect();
        // The point of a bin is entered when the next bin begins.
        assert!(!locked[7] && locked[19], "{locked:?}");
        assert_eq!((filter.drift_ppb(), filter.jumps), (100, 0));
        let noisy = fed(Pick::First, (0..200).map(|index| (index * 10 * MS, (index as i64 * 7919) % 100_000)));
        assert!(!noisy.is_locked());
    }

    #[test]
    fn a_jump_unlocks_counts_once_and_is_followed() {
        let jump = |index: u64| if index < 100 { 0 } else { 3_000_000 };
        let mut filter = Filter::new(Pick::First, 1000);
        let mut jumped = Vec::new();
        for index in 0..110 {
            if filter.add_sample(START_NS + index * 1000 * MS, jump(index)) {
                jumped.push(index);
                assert!(!filter.is_locked());
            }
        }
        assert_eq!((jumped, filter.jumps), (vec![103], 1));
        assert_eq!(filter.offset_ns(START_NS + 110_000 * MS), 3_000_000);
        for index in 110..130 {
            filter.add_sample(START_NS + index * 1000 * MS, jump(index));
        }
        assert!(filter.is_locked());
    }

    #[test]
    fn the_least_delayed_arrival_counts() {
        // Every tenth packet is not delayed, the others by up to a millisecond.
        let samples = (0..3000).map(|index| {
            let waited = if index % 10 == 3 { 0 } else { 100_000 + (index * 7919) % 900_000 };
            (index * MS, 42 - waited as i64)
        });
        let filter = fed(Pick::Largest, samples);
        assert!((filter.offset_ns(START_NS + 3000 * MS) - 42).abs() < 100, "{filter:?}");
    }

    #[test]
    fn a_reset_clears_everything_but_the_jump_count() {
        let mut filter = fed(Pick::First, (0..40).map(|index| (index * 10 * MS, 7)));
        filter.jumps = 3;
        filter.reset();
        assert!(!filter.has_samples() && !filter.is_reliable() && !filter.is_locked());
        assert_eq!((filter.offset_ns(START_NS), filter.jumps), (0, 3));
    }
}
