//! Helpers with which a check fails.

use super::Failure;
use std::fmt::Display;

/// Returns a function for `map_err` that turns an error into a failure: `cannot open the recording: ...`.
pub fn failed<E: Display>(what: &str) -> impl FnOnce(E) -> Failure {
    move |error| format!("cannot {what}: {error}")
}

/// Fails a check with a formatted reason unless a condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err(format!($($why)+));
        }
    };
}

/// Fails a check unless `found` equals `expected`. The formatted remaining arguments describe what is compared.
#[macro_export]
macro_rules! ensure_eq {
    ($found:expr, $expected:expr, $($what:tt)+) => {{
        let (found, expected) = (&$found, &$expected);
        if found != expected {
            return Err(format!("{}: {found:?}, not {expected:?}", format_args!($($what)+)));
        }
    }};
}
