//! How a check fails.

/// Why a check failed, for a person.
pub type Failure = String;

/// Fails a check with a reason if something is not so.
macro_rules! ensure {
    ($is_so:expr, $($why:tt)+) => {
        if !$is_so {
            return Err(format!($($why)+));
        }
    };
}

/// Fails a check if two things are not equal.
macro_rules! same {
    ($found:expr, $expected:expr, $($what:tt)+) => {{
        let (found, expected) = (&$found, &$expected);
        if found != expected {
            return Err(format!("{}: {found:?}, not {expected:?}", format_args!($($what)+)));
        }
    }};
}

pub(super) use {ensure, same};
