//! Endpoints: initiators and targets in the words of the verbs.

pub(crate) mod completions;
pub(crate) mod endpoint;
pub(crate) mod failure;
pub(crate) mod memory;
pub(crate) mod queue_pair;
pub(crate) mod target;
