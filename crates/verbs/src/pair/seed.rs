//! Seeds of a test, and how to run the one that failed again.

use std::env;
use std::panic::{self, AssertUnwindSafe};

/// Runs a test for `count` seeds, or for the one in the environment variable `SHOTLINE_SEED`. `SHOTLINE_SEEDS` asks
/// for another count.
///
/// # Panics
/// With the test's own panic, after the seed and the command that runs it alone were printed.
pub fn seeds(test: &str, count: u64, run: impl Fn(u64)) {
    let number = |name| env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let (first, count) = match number("SHOTLINE_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("SHOTLINE_SEEDS").unwrap_or(count)),
    };
    for seed in first..first.saturating_add(count) {
        if let Err(cause) = panic::catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("seed {seed} failed; again: SHOTLINE_SEED={seed} cargo test -p shotline-verbs {test}");
            panic::resume_unwind(cause);
        }
    }
}
