//! One thing that a format must do, and what became of it.

use super::failure::Failure;
use super::stage::Stage;

/// One thing that a format must do.
#[derive(Clone, Copy)]
pub struct Check {
    /// A sentence that says what.
    pub name: &'static str,
    /// What it proves.
    pub proves: &'static str,
    /// Does it.
    pub run: fn(&Stage<'_>) -> Result<Outcome, Failure>,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Check({})", self.name)
    }
}

/// What became of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The format does it.
    Passed,
    /// The check has nothing to act on, and why.
    Cannot(String),
    /// It does not.
    Failed(Failure),
}
