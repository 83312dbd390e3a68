//! Simulated time.

/// A picosecond in seconds.
pub(super) const PICOSECOND: f64 = 1e-12;

/// Maximum simulated time in seconds: eleven days.
pub(super) const MAX_SECONDS: f64 = 1e6;

/// Simulated time in picoseconds since the start.
pub(super) type Time = u64;

/// Converts seconds to picoseconds, limited to ten times the longest run, so that adding it to a time within a run
/// does not overflow.
pub(super) fn picoseconds(seconds: f64) -> Time {
    (seconds.min(10.0 * MAX_SECONDS) / PICOSECOND).round() as Time
}
