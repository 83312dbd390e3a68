//! What a recorder that fails leaves behind: shots that were handed to it, and that readers of the file do not see.

use super::error::RunError;
use arrayvec::ArrayVec;
use shotline_store::set::GivenUp;
use shotline_store::shot::{Event, MAX_LINKS};
use shotline_wire::shot::DropCause;
use std::collections::VecDeque;

/// Why a recorder ended, and the shots that are lost with it.
pub(super) struct Failed {
    pub(super) error: RunError,
    pub(super) given_up: Vec<GivenUp>,
}

/// Events that were taken for the file and are not seen there yet: of each link, whether its shot is complete.
#[derive(Default)]
pub(super) struct Unseen {
    events: VecDeque<ArrayVec<Option<bool>, MAX_LINKS>>,
    seen: u64,
}

impl Unseen {
    /// An event is taken.
    pub(super) fn enter(&mut self, event: &Event) {
        let shots = event.shots.iter().take(MAX_LINKS);
        self.events.push_back(shots.map(|shot| shot.as_ref().map(|shot| shot.meta.is_complete())).collect());
    }

    /// Readers see so many rows.
    pub(super) fn see(&mut self, rows: u64) {
        let more = (rows.saturating_sub(self.seen) as usize).min(self.events.len());
        self.events.drain(..more);
        self.seen += more as u64;
    }

    /// Gives up what is not seen.
    pub(super) fn give_up(self) -> Vec<GivenUp> {
        let mut all: Vec<GivenUp> = Vec::new();
        for (link, complete) in self.events.iter().flat_map(|shots| shots.iter().enumerate()) {
            let Some(complete) = complete else { continue };
            let known = all.iter().position(|given| given.link == link).unwrap_or_else(|| {
                all.push(GivenUp { link, cause: DropCause::SinkError, complete: 0, partial: 0 });
                all.len() - 1
            });
            *if *complete { &mut all[known].complete } else { &mut all[known].partial } += 1;
        }
        all
    }
}
