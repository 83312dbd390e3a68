//! Mismatches found by a verification.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of mismatches that are described; the others are only counted.
const MAX_DESCRIBED: usize = 20;

/// Mismatches, added by any thread.
#[derive(Debug, Default)]
pub(super) struct Mismatches {
    pub(super) count: AtomicU64,
    pub(super) described: Mutex<Vec<String>>,
}

impl Mismatches {
    pub(super) fn add(&self, text: impl FnOnce() -> String) {
        if self.count.fetch_add(1, Ordering::Relaxed) < MAX_DESCRIBED as u64
            && let Ok(mut described) = self.described.lock()
        {
            described.push(text());
        }
    }
}
