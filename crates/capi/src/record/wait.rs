//! Waits with a limit in nanoseconds.

use crate::status::{Failure, shotline_status};
use std::time::{Duration, Instant};

/// As a time limit: none.
pub const SHOTLINE_FOREVER: u64 = u64::MAX;

/// Maximum length of one wait of the library.
const SLICE: Duration = Duration::from_secs(3600);

/// Waits until `slice`, which waits for at most the given time, returns something. `what` is waited for.
pub(crate) fn within<T>(
    timeout_ns: u64,
    what: impl FnOnce() -> String,
    mut slice: impl FnMut(Duration) -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let limit = Duration::from_nanos(timeout_ns);
    let deadline = if timeout_ns == SHOTLINE_FOREVER { None } else { Instant::now().checked_add(limit) };
    let mut left = deadline.map_or(SLICE, |_| limit.min(SLICE));
    loop {
        if let Some(value) = slice(left)? {
            return Ok(value);
        }
        if let Some(deadline) = deadline {
            left = deadline.saturating_duration_since(Instant::now()).min(SLICE);
            if left.is_zero() {
                return Err(Failure::new(shotline_status::SHOTLINE_ERROR_TIMEOUT, what()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_a_value_an_error_or_its_time() {
        let what = || "late".to_owned();
        assert_eq!(within(0, what, |_| Ok(Some(7))).unwrap(), 7);
        assert!(format!("{:?}", within::<()>(0, what, |_| Ok(None)).unwrap_err()).contains("TIMEOUT, errno: 0"));
        let mut calls = 0;
        let third = |_| {
            calls += 1;
            Ok((calls == 3).then_some(calls))
        };
        assert_eq!(within(SHOTLINE_FOREVER, what, third).unwrap(), 3);
        assert!(within::<()>(SHOTLINE_FOREVER, what, |_| Err(Failure::argument("wrong"))).is_err());
    }
}
