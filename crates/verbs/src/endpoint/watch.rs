//! Notices of peers' one-sided operations on watched keys.

use crate::api::RemoteAccess;
use std::collections::{HashSet, VecDeque};

/// Maximum number of queued notices.
const MAX_NOTICES: usize = 4096;

/// Watched remote keys, and notices of their use.
#[derive(Debug, Default)]
pub(super) struct Watch {
    keys: HashSet<u32>,
    notices: VecDeque<RemoteAccess>,
    /// Notices dropped because the queue was full.
    pub(super) lost: u64,
}

impl Watch {
    /// Starts or stops watching a key.
    pub(super) fn set(&mut self, rkey: u32, notify: bool) {
        if notify {
            self.keys.insert(rkey);
        } else {
            self.keys.remove(&rkey);
        }
    }

    pub(super) fn next(&mut self) -> Option<RemoteAccess> {
        self.notices.pop_front()
    }

    /// Queues a notice if the key of a peer's completed operation is watched.
    pub(super) fn push(&mut self, access: RemoteAccess) {
        if self.keys.is_empty() || !self.keys.contains(&access.rkey) {
            return;
        }
        if self.notices.len() < MAX_NOTICES {
            self.notices.push_back(access);
        } else {
            self.lost += 1;
        }
    }
}
