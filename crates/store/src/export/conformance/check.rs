//! A conformance check.

use super::stage::Stage;
use shotline_conformance::{Failure, Outcome};

/// A requirement on every format.
#[derive(Clone, Copy)]
pub struct Check {
    /// The requirement as a sentence.
    pub name: &'static str,
    /// What a pass proves.
    pub proves: &'static str,
    /// Runs the check.
    pub run: fn(&Stage<'_>) -> Result<Outcome, Failure>,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Check({})", self.name)
    }
}
