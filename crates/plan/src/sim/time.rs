//! Simulated time.

/// Picoseconds, in seconds.
pub(super) const PICOSECOND: f64 = 1e-12;

/// Longest time that is simulated, in seconds: eleven days.
pub(super) const LONGEST_S: f64 = 1e6;

/// Picoseconds since the beginning.
pub(super) type Time = u64;

/// What is longer than ten times the longest run is as long as that, so that sums of a few do not overflow.
pub(super) fn picoseconds(seconds: f64) -> Time {
    (seconds.min(10.0 * LONGEST_S) / PICOSECOND).round() as Time
}
