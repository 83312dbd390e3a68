//! State shared by the threads of a run.

use crate::live::Live;
use crate::sink::Queue;
use shotline_store::shot::RunCounters;
use std::sync::OnceLock;

/// State that the sink's thread shares with the others.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub(super) queue: &'a Queue,
    /// Counters of the run, once it is over.
    pub(super) counters: &'a OnceLock<RunCounters>,
    pub(super) live: &'a Live,
}
