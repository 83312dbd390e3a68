//! Conformance suite of the export formats: named checks, and what each proves.
//!
//! A [`Fixture`] provides recordings with known losses, and folders for the output. [`run`] applies every check of
//! [`all`] to a format, each in its own folder.

mod check;
mod contents;
mod names;
mod refusals;
mod stage;

use super::Format;
pub use check::Check;
use shotline_conformance::{Outcome, Report};
pub use stage::{Counts, Fixture, Stage};

/// Returns every check.
pub fn all() -> impl Iterator<Item = Check> {
    [names::CHECKS, contents::CHECKS, refusals::CHECKS].into_iter().flatten().copied()
}

/// Runs every check whose name contains `filter` on a format.
pub fn run(fixture: &dyn Fixture, format: Format, filter: &str) -> Report {
    let outcome = |check: Check| {
        let stage = Stage::new(fixture, format);
        (check.name, stage.and_then(|stage| (check.run)(&stage)).unwrap_or_else(Outcome::Failed))
    };
    let outcomes = all().filter(|check| check.name.contains(filter)).map(outcome).collect();
    Report { member: format.name().into(), outcomes }
}
