//! Bounds of a source's numbers. What is beyond them is refused where it is read: no shot has such a number, or such a time.

use super::error::ImportError;
use serde_json::Value;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;

/// Times end here, in nanoseconds since 1970: the year 2262.
const MOST_NS: u64 = i64::MAX as u64;
/// Seconds by which TAI may be ahead of UTC: 37 since 2017, and other clocks are not set so exactly.
pub(super) const AHEAD_S: RangeInclusive<i64> = -1000..=1000;

/// A number, if it is within its bounds; none: what was found is no such number at all.
pub(super) fn bounded<N: PartialOrd + Display>(
    path: &Path,
    field: &str,
    found: &impl Display,
    number: Option<N>,
    bounds: RangeInclusive<N>,
) -> Result<N, ImportError> {
    number.filter(|number| bounds.contains(number)).ok_or_else(|| {
        let (least, most) = (bounds.start(), bounds.end());
        ImportError::format(path, format!("{field}: expected a whole number from {least} to {most}, found {found}"))
    })
}

/// A number of JSON, read by `read`, if it is there.
pub(super) fn told<N: PartialOrd + Display>(
    path: &Path,
    field: &str,
    found: &Value,
    read: impl Fn(&Value) -> Option<N>,
    bounds: RangeInclusive<N>,
) -> Result<Option<N>, ImportError> {
    if found.is_null() {
        return Ok(None);
    }
    bounded(path, field, found, read(found), bounds).map(Some)
}

/// A time in nanoseconds since 1970.
pub(super) fn time(path: &Path, field: &str, ns: i128) -> Result<u64, ImportError> {
    u64::try_from(ns).ok().filter(|ns| *ns <= MOST_NS).ok_or_else(|| {
        let found = format!("{field}: expected times from 1970 to 2262, found {ns} ns since 1970");
        ImportError::format(path, found)
    })
}
