//! Bounds checks of untrusted numbers and times in a source.

use super::error::ImportError;
use serde_json::Value;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;

/// Maximum time in nanoseconds since 1970, in the year 2262.
const MAX_NS: u64 = i64::MAX as u64;
/// Accepted range of TAI - UTC in seconds. It is 37 since 2017; the range allows for inexactly set clocks.
pub(super) const TAI_MINUS_UTC_S: RangeInclusive<i64> = -1000..=1000;

/// Checks that a number is within its bounds. `None` means that `found` is not a number of this type.
pub(super) fn bounded<N: PartialOrd + Display>(
    path: &Path,
    field: &str,
    found: &impl Display,
    number: Option<N>,
    bounds: RangeInclusive<N>,
) -> Result<N, ImportError> {
    number.filter(|number| bounds.contains(number)).ok_or_else(|| {
        let (min, max) = (bounds.start(), bounds.end());
        ImportError::format(path, format!("{field}: expected an integer from {min} to {max}, found {found}"))
    })
}

/// Reads an optional JSON number with `read` and checks its bounds.
pub(super) fn optional<N: PartialOrd + Display>(
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

/// Checks a time in nanoseconds since 1970.
pub(super) fn time(path: &Path, field: &str, ns: i128) -> Result<u64, ImportError> {
    u64::try_from(ns).ok().filter(|ns| *ns <= MAX_NS).ok_or_else(|| {
        let found = format!("{field}: expected times from 1970 to 2262, found {ns} ns since 1970");
        ImportError::format(path, found)
    })
}
