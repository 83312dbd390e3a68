//! Ranges of an accelerator's memory.

use super::completion::Outcome;
use std::ops::Range;

/// Returns a range, if it is inside a memory of this many bytes.
pub(super) fn inside(at: u64, bytes: u64, memory: u64) -> Result<Range<u64>, Outcome> {
    at.checked_add(bytes).filter(|end| *end <= memory).map(|end| at..end).ok_or(Outcome::OutOfRange)
}

/// Returns `true` if two ranges have a byte in common.
pub(super) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}
