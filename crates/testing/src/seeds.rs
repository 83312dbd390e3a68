//! Spans of random runs: few for a commit, as many as one likes in a campaign, and one to repeat a failure.

use std::env;
use std::ops::Range;

/// The seeds of a test: `commit`, or those of the environment variable `SHOTLINE_SEEDS`.
///
/// A test whose loop over them panics prints the seed and the command that runs it alone.
///
/// ```
/// for seed in shotline_testing::seeds(0..8) {
///     assert!(seed < 8);
/// }
/// ```
///
/// # Panics
/// If `SHOTLINE_SEEDS` is not `FIRST..LAST`.
pub fn seeds(commit: Range<u64>) -> Seeds {
    let all = match env::var("SHOTLINE_SEEDS") {
        Ok(text) => span(&text).unwrap_or_else(|| panic!("SHOTLINE_SEEDS: expected FIRST..LAST, found {text}")),
        Err(_) => commit,
    };
    Seeds { all, current: None }
}

fn span(text: &str) -> Option<Range<u64>> {
    let (first, last) = text.split_once("..")?;
    let span = first.parse().ok()?..last.parse().ok()?;
    (!span.is_empty()).then_some(span)
}

/// The iterator of [`seeds`].
#[derive(Debug)]
pub struct Seeds {
    all: Range<u64>,
    current: Option<u64>,
}

impl Iterator for Seeds {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        self.current = self.all.next();
        self.current
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.all.size_hint()
    }
}

impl Drop for Seeds {
    fn drop(&mut self) {
        if let (true, Some(seed)) = (std::thread::panicking(), self.current) {
            eprintln!("seed {seed} failed; again: SHOTLINE_SEEDS={seed}..{} {}", seed + 1, crate::command());
        }
    }
}

/// Cases of a `proptest!`: `commit`, or the environment variable `PROPTEST_CASES`.
///
/// For `#![proptest_config(ProptestConfig::with_cases(cases(48)))]`; without a configuration proptest has its own number.
///
/// # Panics
/// If `PROPTEST_CASES` is no number.
pub fn cases(commit: u32) -> u32 {
    match env::var("PROPTEST_CASES") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("PROPTEST_CASES: expected a number, found {text}")),
        Err(_) => commit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_others_refused() {
        assert_eq!(span("17..18"), Some(17..18));
        for wrong in ["", "17", "..", "1..", "..1", "1..1", "2..1", "1..=2", "a..b"] {
            assert_eq!(span(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn every_seed_comes_once_and_the_last_one_is_remembered() {
        let mut seeds = Seeds { all: 3..5, current: None };
        assert_eq!((seeds.next(), seeds.current), (Some(3), Some(3)));
        assert_eq!((seeds.next(), seeds.next(), seeds.current), (Some(4), None, None));
    }
}
