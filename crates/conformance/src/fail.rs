//! How a check fails.

use super::Failure;
use std::fmt::Display;

/// Turns the error of what a check does on its way into its failure: `cannot open the recording: ...`.
pub fn failed<E: Display>(what: &str) -> impl FnOnce(E) -> Failure {
    move |error| format!("cannot {what}: {error}")
}

/// Fails a check with a formatted reason unless a condition holds.
#[macro_export]
macro_rules! ensure {
    ($is_so:expr, $($why:tt)+) => {
        if !$is_so {
            return Err(format!($($why)+));
        }
    };
}

/// Fails a check unless what was found equals what was expected; the rest says, formatted, what they are of.
#[macro_export]
macro_rules! same {
    ($found:expr, $expected:expr, $($what:tt)+) => {{
        let (found, expected) = (&$found, &$expected);
        if found != expected {
            return Err(format!("{}: {found:?}, not {expected:?}", format_args!($($what)+)));
        }
    }};
}
