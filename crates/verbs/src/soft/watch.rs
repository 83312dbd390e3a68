//! One-sided operations of peers, told to who asked.

use crate::api::Accessed;
use std::collections::{HashSet, VecDeque};

/// Notices that wait to be taken, at most.
const NOTICES: usize = 4096;

/// Remote keys whose use is told.
#[derive(Debug, Default)]
pub(super) struct Watch {
    keys: HashSet<u32>,
    notices: VecDeque<Accessed>,
    /// Notices that found no room.
    pub(super) lost: u64,
}

impl Watch {
    /// Tells of the use of a key, or no longer.
    pub(super) fn set(&mut self, rkey: u32, notify: bool) {
        if notify {
            self.keys.insert(rkey);
        } else {
            self.keys.remove(&rkey);
        }
    }

    pub(super) fn next(&mut self) -> Option<Accessed> {
        self.notices.pop_front()
    }

    /// A peer's operation is done.
    pub(super) fn note(&mut self, accessed: Accessed) {
        if self.keys.is_empty() || !self.keys.contains(&accessed.rkey) {
            return;
        }
        if self.notices.len() < NOTICES {
            self.notices.push_back(accessed);
        } else {
            self.lost += 1;
        }
    }
}
