//! What the conformance suites of transports, providers, kinds of regions and export formats share: the outcome of a
//! check, the report of one member of a registry, and the macros by which a check fails.
//!
//! Each suite keeps its own checks, and what they act on. The suite of framings is apart: it needs no allocation.

mod fail;

pub use fail::failed;

use std::borrow::Cow;

/// Why a check failed, for a person.
pub type Failure = String;

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The member does what the check states.
    Passed,
    /// The check was not run: the member, or this machine, lacks what it needs.
    Cannot(Cow<'static, str>),
    /// The member does not do it.
    Failed(Failure),
}

impl Outcome {
    /// The outcome of a check that was run.
    pub fn of(result: Result<(), Failure>) -> Self {
        result.map_or_else(Self::Failed, |()| Self::Passed)
    }

    /// The outcome of a check that could not be run, for this reason.
    pub fn cannot(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Cannot(reason.into())
    }
}

/// The outcomes of one member of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Name of the member.
    pub member: String,
    /// The name of each check and its outcome, in the order in which the checks ran.
    pub outcomes: Vec<(&'static str, Outcome)>,
}

impl Report {
    /// The checks that failed, one a line; empty if none did.
    pub fn failures(&self) -> String {
        let line = |(check, why): (&str, &str)| format!("{}: {check}: {why}\n", self.member);
        self.failed().map(line).collect()
    }

    /// The name of each check that failed, and why it did.
    pub fn failed(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.outcomes.iter().filter_map(|(check, outcome)| match outcome {
            Outcome::Failed(why) => Some((*check, why.as_str())),
            Outcome::Passed | Outcome::Cannot(_) => None,
        })
    }

    /// Panics unless checks ran and none of them failed: the last line of a test that holds a member to its suite.
    ///
    /// # Panics
    /// With the checks that failed, one a line.
    #[track_caller]
    pub fn expect_conformance(&self) {
        assert!(!self.outcomes.is_empty(), "{}: no check ran", self.member);
        let failures = self.failures();
        assert!(failures.is_empty(), "\n{failures}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: impl IntoIterator<Item = Outcome>) -> Report {
        let names = ["first", "second", "third"];
        Report { member: "shm".into(), outcomes: names.into_iter().zip(outcomes).collect() }
    }

    fn is_four(number: u32) -> Result<(), Failure> {
        ensure!(number > 2, "{number} is not above 2");
        same!(number, 4, "number {}", 1);
        Ok(())
    }

    #[test]
    fn a_check_fails_with_what_was_found() {
        assert_eq!(Outcome::of(is_four(4)), Outcome::Passed);
        assert_eq!(is_four(1), Err("1 is not above 2".into()));
        assert_eq!(is_four(3), Err("number 1: 3, not 4".into()));
        let refused = "x".parse::<u8>().map_err(failed("read it"));
        assert_eq!(refused, Err("cannot read it: invalid digit found in string".into()));
    }

    #[test]
    fn a_report_names_what_failed_and_nothing_else() {
        let report = report([Outcome::Passed, Outcome::of(is_four(1)), Outcome::cannot("two ends only")]);
        assert_eq!(report.failures(), "shm: second: 1 is not above 2\n");
        assert_eq!(report.failed().collect::<Vec<_>>(), [("second", "1 is not above 2")]);
    }

    #[test]
    #[should_panic(expected = "shm: second: 1 is not above 2")]
    fn a_failed_check_is_no_conformance() {
        report([Outcome::Passed, Outcome::of(is_four(1))]).expect_conformance();
    }

    #[test]
    #[should_panic(expected = "shm: no check ran")]
    fn a_report_without_a_check_is_no_conformance() {
        report([]).expect_conformance();
    }

    #[test]
    fn what_could_not_be_checked_is_no_failure() {
        report([Outcome::cannot("no RC")]).expect_conformance();
    }
}
