//! Completion queues: rings, arming, events, overruns.

use super::slab::Slab;
use crate::api::{Completion, Cq, Status};
use crate::engine::Completions;
use std::collections::VecDeque;

/// What a completion queue was asked to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    /// A solicited completion, or an error.
    Solicited,
    /// Any completion.
    Any,
}

#[derive(Debug)]
struct Ring {
    /// Never grows: its capacity is the depth.
    completions: VecDeque<Completion>,
    depth: usize,
    armed: Armed,
    /// A completion was lost: every queue pair that completes here goes to its error state.
    overrun: bool,
}

/// The completion queues of one endpoint.
#[derive(Debug)]
pub(super) struct Queues {
    rings: Slab<Ring>,
    /// Armed queues whose completion has come, in order.
    events: VecDeque<Cq>,
    /// How many queues are armed.
    armed: usize,
    /// Queues that overran and whose queue pairs do not know it yet.
    overruns: Vec<Cq>,
    /// Completions that were lost.
    pub(super) lost: u64,
}

impl Queues {
    pub(super) fn new() -> Self {
        Self { rings: Slab::new(), events: VecDeque::new(), armed: 0, overruns: Vec::new(), lost: 0 }
    }

    pub(super) fn create(&mut self, depth: u32) -> Option<Cq> {
        let depth = depth as usize;
        let completions = VecDeque::with_capacity(depth);
        self.rings.insert(Ring { completions, depth, armed: Armed::No, overrun: false }).map(Cq)
    }

    pub(super) fn destroy(&mut self, cq: Cq) -> bool {
        let Some(ring) = self.rings.remove(cq.0) else { return false };
        self.armed -= usize::from(ring.armed != Armed::No);
        self.events.retain(|other| *other != cq);
        true
    }

    pub(super) fn exists(&self, cq: Cq) -> bool {
        self.rings.get(cq.0).is_some()
    }

    /// Takes completions; none if there is no such queue.
    pub(super) fn take(&mut self, cq: Cq, out: &mut [Completion]) -> Option<usize> {
        let ring = self.rings.get_mut(cq.0)?;
        let count = ring.completions.len().min(out.len());
        for (to, from) in out.iter_mut().zip(ring.completions.drain(..count)) {
            *to = from;
        }
        Some(count)
    }

    pub(super) fn arm(&mut self, cq: Cq, solicited_only: bool) -> bool {
        let Some(ring) = self.rings.get_mut(cq.0) else { return false };
        self.armed += usize::from(ring.armed == Armed::No);
        // Asking for all is not taken back by asking for some (IBTA 11.4.2.2).
        ring.armed = if solicited_only && ring.armed != Armed::Any { Armed::Solicited } else { Armed::Any };
        true
    }

    /// Whether somebody may be asleep until an event comes.
    pub(super) fn any_armed(&self) -> bool {
        self.armed > 0
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub(super) fn next_event(&mut self) -> Option<Cq> {
        self.events.pop_front()
    }

    /// A queue that has overrun since the last call.
    pub(super) fn next_overrun(&mut self) -> Option<Cq> {
        self.overruns.pop()
    }
}

impl Completions for Queues {
    fn push(&mut self, cq: Cq, completion: Completion) {
        let Some(ring) = self.rings.get_mut(cq.0) else { return };
        if ring.completions.len() == ring.depth {
            self.lost += 1;
            if !ring.overrun {
                ring.overrun = true;
                self.overruns.push(cq);
            }
            return;
        }
        ring.completions.push_back(completion);
        let wakes = match ring.armed {
            Armed::No => false,
            Armed::Solicited => completion.solicited || completion.status != Status::Success,
            Armed::Any => true,
        };
        if wakes {
            ring.armed = Armed::No;
            self.armed -= 1;
            if !self.events.contains(&cq) {
                self.events.push_back(cq);
            }
        }
    }
}
