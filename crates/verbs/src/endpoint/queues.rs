//! Completion queues: arming, events, overruns.

use crate::api::{Completion, Cq, Status};
use crate::engine::Completions;
use crate::slab::Slab;
use std::collections::VecDeque;

/// Completions for which a completion queue raises an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    /// A solicited completion, or an error.
    Solicited,
    /// Any completion.
    Any,
}

#[derive(Debug)]
struct CompletionQueue {
    /// Allocated once with capacity `depth`.
    completions: VecDeque<Completion>,
    depth: usize,
    armed: Armed,
    /// A completion was lost: the queue pairs of this completion queue enter the error state.
    overrun: bool,
}

/// The completion queues of one endpoint.
#[derive(Debug)]
pub(super) struct CompletionQueues {
    queues: Slab<CompletionQueue>,
    /// Queues with an event that was not taken, in order.
    events: VecDeque<Cq>,
    /// Number of armed queues.
    armed: usize,
    /// Overrun queues whose queue pairs have not been moved to the error state.
    overruns: Vec<Cq>,
    /// Completions lost by overruns.
    pub(super) lost: u64,
}

impl CompletionQueues {
    pub(super) fn new() -> Self {
        Self { queues: Slab::new(), events: VecDeque::new(), armed: 0, overruns: Vec::new(), lost: 0 }
    }

    pub(super) fn create(&mut self, depth: u32) -> Option<Cq> {
        let depth = depth as usize;
        let completions = VecDeque::with_capacity(depth);
        self.queues.insert(CompletionQueue { completions, depth, armed: Armed::No, overrun: false }).map(Cq)
    }

    pub(super) fn destroy(&mut self, cq: Cq) -> bool {
        let Some(queue) = self.queues.remove(cq.0) else { return false };
        self.armed -= usize::from(queue.armed != Armed::No);
        self.events.retain(|other| *other != cq);
        true
    }

    pub(super) fn exists(&self, cq: Cq) -> bool {
        self.queues.get(cq.0).is_some()
    }

    /// Takes completions and returns their number, or `None` if there is no such queue.
    pub(super) fn take(&mut self, cq: Cq, out: &mut [Completion]) -> Option<usize> {
        let queue = self.queues.get_mut(cq.0)?;
        let count = queue.completions.len().min(out.len());
        for (to, from) in out.iter_mut().zip(queue.completions.drain(..count)) {
            *to = from;
        }
        Some(count)
    }

    pub(super) fn arm(&mut self, cq: Cq, solicited_only: bool) -> bool {
        let Some(queue) = self.queues.get_mut(cq.0) else { return false };
        self.armed += usize::from(queue.armed == Armed::No);
        // A request for all completions is not narrowed by one for solicited ones (IBTA 11.4.2.2).
        queue.armed = if solicited_only && queue.armed != Armed::Any { Armed::Solicited } else { Armed::Any };
        true
    }

    /// Returns `true` if the application may be asleep until an event.
    pub(super) fn any_armed(&self) -> bool {
        self.armed > 0
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub(super) fn next_event(&mut self) -> Option<Cq> {
        self.events.pop_front()
    }

    /// Returns a queue that overran since the last call.
    pub(super) fn next_overrun(&mut self) -> Option<Cq> {
        self.overruns.pop()
    }
}

impl Completions for CompletionQueues {
    fn push(&mut self, cq: Cq, completion: Completion) {
        let Some(queue) = self.queues.get_mut(cq.0) else { return };
        if queue.completions.len() == queue.depth {
            self.lost += 1;
            if !queue.overrun {
                queue.overrun = true;
                self.overruns.push(cq);
            }
            return;
        }
        queue.completions.push_back(completion);
        let wakes = match queue.armed {
            Armed::No => false,
            Armed::Solicited => completion.solicited || completion.status != Status::Success,
            Armed::Any => true,
        };
        if wakes {
            queue.armed = Armed::No;
            self.armed -= 1;
            if !self.events.contains(&cq) {
                self.events.push_back(cq);
            }
        }
    }
}
