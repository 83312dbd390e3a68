//! Skipped tests. libtest cannot skip at run time, so a skipped test prints a line and returns.

use std::fmt::Display;

/// Prints the line by which `scripts/test.py` recognises a skipped test. [`skip!`](crate::skip) also returns.
pub fn print_skip(reason: impl Display) {
    // Standard error, because libtest may have printed an incomplete line on standard output.
    eprintln!("skipped: {}", reason.to_string().split_whitespace().collect::<Vec<_>>().join(" "));
}

/// Skips a test that cannot run here: prints `skipped: REASON` and returns.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::print_skip(::std::format_args!($($reason)+));
        return;
    }};
}

/// Unwraps a `Result`, or skips the test ([`skip!`]) with the error as the reason.
#[macro_export]
macro_rules! or_skip {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(reason) => $crate::skip!("{reason}"),
        }
    };
}
