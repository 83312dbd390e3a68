//! A check of the suite.

use shotline_conformance::Failure;

/// A named check of one property.
pub struct Check<C> {
    /// Name, in a few words.
    pub name: &'static str,
    /// The property that it proves, as a sentence.
    pub proves: &'static str,
    /// `true` if it is skipped for a carrier that may lose datagrams.
    pub needs_lossless: bool,
    /// Runs the check on both ends of a path.
    pub run: fn(C, C) -> Result<(), Failure>,
}
