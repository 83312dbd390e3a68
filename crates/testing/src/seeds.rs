//! Seed ranges of random tests: few in a normal run, many in a campaign, and a single one to reproduce a failure.

use std::env;
use std::ops::Range;

/// Returns the seeds of a test: `default`, or those of the environment variable `SHOTLINE_SEEDS`.
///
/// If the loop over them panics, the seed is printed with the command that runs it alone.
///
/// ```
/// for seed in shotline_testing::seeds(0..8) {
///     assert!(seed < 8);
/// }
/// ```
///
/// # Panics
/// If `SHOTLINE_SEEDS` is not `FIRST..LAST`.
pub fn seeds(default: Range<u64>) -> Seeds {
    let all = match env::var("SHOTLINE_SEEDS") {
        Ok(text) => range(&text).unwrap_or_else(|| panic!("SHOTLINE_SEEDS: expected FIRST..LAST, found {text}")),
        Err(_) => default,
    };
    Seeds { all, current: None }
}

fn range(text: &str) -> Option<Range<u64>> {
    let (first, last) = text.split_once("..")?;
    let range = first.parse().ok()?..last.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

/// Iterator returned by [`seeds`].
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
            eprintln!("seed {seed} failed; to reproduce: SHOTLINE_SEEDS={seed}..{} {}", seed + 1, crate::command());
        }
    }
}

/// Returns the number of cases of a `proptest!`: `default`, or the environment variable `PROPTEST_CASES`.
///
/// For `#![proptest_config(ProptestConfig::with_cases(cases(48)))]`; without a configuration, proptest's default
/// applies.
///
/// # Panics
/// If `PROPTEST_CASES` is not a number.
pub fn cases(default: u32) -> u32 {
    match env::var("PROPTEST_CASES") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("PROPTEST_CASES: expected a number, found {text}")),
        Err(_) => default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_parses_and_rejects_malformed_text() {
        assert_eq!(range("17..18"), Some(17..18));
        for wrong in ["", "17", "..", "1..", "..1", "1..1", "2..1", "1..=2", "a..b"] {
            assert_eq!(range(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn each_seed_is_returned_once_and_the_current_one_is_kept() {
        let mut seeds = Seeds { all: 3..5, current: None };
        assert_eq!((seeds.next(), seeds.current), (Some(3), Some(3)));
        assert_eq!((seeds.next(), seeds.next(), seeds.current), (Some(4), None, None));
    }
}
