//! The interface of what computes.

use crate::command::{Outcome, TileSteps};

/// Computes the steps of commands in the memory of an accelerator.
pub(crate) trait Executor: Send {
    /// Computes the steps, and stores the sums of the squares. Returns the largest change, if sums are requested. The work
    /// has been checked against the memory.
    fn execute(&mut self, work: &TileSteps) -> (Outcome, f64);
}
