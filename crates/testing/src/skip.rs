//! Skips. libtest knows none at run time, so a test says so in its output, and returns.

use std::fmt::Display;

/// Prints the one line by which `scripts/test.py` knows a skipped test. [`skip!`](crate::skip) does that and returns.
pub fn print_skip(reason: impl Display) {
    // Standard error: libtest may have begun a line of its own on standard output.
    eprintln!("skipped: {}", reason.to_string().split_whitespace().collect::<Vec<_>>().join(" "));
}

/// Ends the test as one that cannot run here: prints `skipped: REASON` and returns.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::print_skip(::std::format_args!($($reason)+));
        return;
    }};
}

/// The value of a `Result`; an error is the reason to [`skip!`] the test.
#[macro_export]
macro_rules! or_skip {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(reason) => $crate::skip!("{reason}"),
        }
    };
}
