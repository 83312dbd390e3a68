//! What every export format must do: named checks over any recording, and what each proves.
//!
//! A [`Fixture`] brings recordings of which it knows what is missing, and folders to write to; [`run`] lets every check
//! of [`all`] act on a format, each in a folder of its own.

mod check;
mod contents;
mod failure;
mod names;
mod refusals;
mod stage;

use super::Format;
pub use check::{Check, Outcome};
pub use failure::Failure;
pub use stage::{Counts, Fixture, Stage};

/// Every check.
pub fn all() -> impl Iterator<Item = Check> {
    [names::CHECKS, contents::CHECKS, refusals::CHECKS].into_iter().flatten().copied()
}

/// The outcomes of one format, in the order of [`all`].
#[derive(Clone, Debug)]
pub struct Report {
    /// The format.
    pub format: Format,
    /// A check's name and what became of it.
    pub outcomes: Vec<(&'static str, Outcome)>,
}

impl Report {
    /// The checks that failed, one a line; empty if none did.
    pub fn failures(&self) -> String {
        let failed = self.outcomes.iter().filter_map(|(check, outcome)| match outcome {
            Outcome::Failed(why) => Some(format!("{}: {check}: {why}\n", self.format.name())),
            Outcome::Passed | Outcome::Cannot(_) => None,
        });
        failed.collect()
    }
}

/// Lets every check whose name contains `filter` act on a format.
pub fn run(fixture: &dyn Fixture, format: Format, filter: &str) -> Report {
    let outcome = |check: Check| {
        let stage = Stage::new(fixture, format);
        (check.name, stage.and_then(|stage| (check.run)(&stage)).unwrap_or_else(Outcome::Failed))
    };
    Report { format, outcomes: all().filter(|check| check.name.contains(filter)).map(outcome).collect() }
}
