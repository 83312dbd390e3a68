//! One thing that a format must do.

use super::stage::Stage;
use shotline_conformance::{Failure, Outcome};

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
