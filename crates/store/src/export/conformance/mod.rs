//! What every export format must do: named checks over any recording, and what each proves.
//!
//! A [`Fixture`] brings recordings of which it knows what is missing, and folders to write to; [`run`] lets every check
//! of [`all`] act on a format, each in a folder of its own.

mod check;
mod contents;
mod names;
mod refusals;
mod stage;

use super::Format;
pub use check::Check;
use shotline_conformance::{Outcome, Report};
pub use stage::{Counts, Fixture, Stage};

/// Every check.
pub fn all() -> impl Iterator<Item = Check> {
    [names::CHECKS, contents::CHECKS, refusals::CHECKS].into_iter().flatten().copied()
}

/// Lets every check whose name contains `filter` act on a format.
pub fn run(fixture: &dyn Fixture, format: Format, filter: &str) -> Report {
    let outcome = |check: Check| {
        let stage = Stage::new(fixture, format);
        (check.name, stage.and_then(|stage| (check.run)(&stage)).unwrap_or_else(Outcome::Failed))
    };
    let outcomes = all().filter(|check| check.name.contains(filter)).map(outcome).collect();
    Report { member: format.name().into(), outcomes }
}
