//! What the threads of a run share.

use crate::live::Live;
use crate::sink::Queue;
use shotline_store::shot::Books;
use std::sync::OnceLock;

/// What the sink's thread shares with others.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub(super) queue: &'a Queue,
    /// The counters of the run, once it is over.
    pub(super) books: &'a OnceLock<Books>,
    pub(super) live: &'a Live,
}
