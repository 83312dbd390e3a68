//! Shared parts of the conformance suites of transports, providers, region kinds and export formats: the outcome of a
//! check, the report of one member of a registry, and the macros with which a check fails.
//!
//! Each suite defines its own checks and fixtures. The suite of framings does not use this crate, since it must not
//! allocate.

mod fail;

pub use fail::failed;

use std::borrow::Cow;

/// Human-readable reason why a check failed.
pub type Failure = String;

/// Outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The member meets the requirement.
    Passed,
    /// The check was not run: the member or this machine lacks something that it needs.
    NotRun(Cow<'static, str>),
    /// The member violates the requirement.
    Failed(Failure),
}

impl Outcome {
    /// Returns the outcome of a check that was run.
    pub fn of(result: Result<(), Failure>) -> Self {
        result.map_or_else(Self::Failed, |()| Self::Passed)
    }

    /// Returns the outcome of a check that could not be run, for this reason.
    pub fn not_run(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::NotRun(reason.into())
    }
}

/// Outcomes of one member of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Name of the member.
    pub member: String,
    /// Name and outcome of each check, in the order in which the checks ran.
    pub outcomes: Vec<(&'static str, Outcome)>,
}

impl Report {
    /// Returns the checks that failed, one per line; empty if none did.
    pub fn failures(&self) -> String {
        let line = |(check, why): (&str, &str)| format!("{}: {check}: {why}\n", self.member);
        self.failed().map(line).collect()
    }

    /// Returns the name of each check that failed, with the reason.
    pub fn failed(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.outcomes.iter().filter_map(|(check, outcome)| match outcome {
            Outcome::Failed(why) => Some((*check, why.as_str())),
            Outcome::Passed | Outcome::NotRun(_) => None,
        })
    }

    /// Asserts that at least one check ran and that none failed.
    ///
    /// # Panics
    /// If not, with the checks that failed, one per line.
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
        ensure_eq!(number, 4, "number {}", 1);
        Ok(())
    }

    #[test]
    fn failed_check_reports_the_found_value() {
        assert_eq!(Outcome::of(is_four(4)), Outcome::Passed);
        assert_eq!(is_four(1), Err("1 is not above 2".into()));
        assert_eq!(is_four(3), Err("number 1: 3, not 4".into()));
        let refused = "x".parse::<u8>().map_err(failed("read it"));
        assert_eq!(refused, Err("cannot read it: invalid digit found in string".into()));
    }

    #[test]
    fn failures_list_only_failed_checks() {
        let report = report([Outcome::Passed, Outcome::of(is_four(1)), Outcome::not_run("two ends only")]);
        assert_eq!(report.failures(), "shm: second: 1 is not above 2\n");
        assert_eq!(report.failed().collect::<Vec<_>>(), [("second", "1 is not above 2")]);
    }

    #[test]
    #[should_panic(expected = "shm: second: 1 is not above 2")]
    fn expect_conformance_panics_on_a_failed_check() {
        report([Outcome::Passed, Outcome::of(is_four(1))]).expect_conformance();
    }

    #[test]
    #[should_panic(expected = "shm: no check ran")]
    fn expect_conformance_panics_without_checks() {
        report([]).expect_conformance();
    }

    #[test]
    fn expect_conformance_accepts_checks_that_cannot_run() {
        report([Outcome::not_run("no RC")]).expect_conformance();
    }
}
