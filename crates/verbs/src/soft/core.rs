//! An endpoint without its transport: queue pairs, memory, queues, timers.

use super::arena::Arena;
use super::pairs::{Pair, Pairs, Turn};
use super::queues::Queues;
use super::slab::Slab;
use super::statistics::Statistics;
use super::timers::Timers;
use super::watch::Watch;
use crate::api::{Accessed, AsyncEvent, Completion, Cq, Modify, Qp, QpState, Srq};
use crate::engine::{Burst, Completions, Context, Engine, Nanos, RecvQueue};
use shotline_memory::{Pd, Protection, Regions, Sge};
use std::collections::VecDeque;

/// Packets that one queue pair sends before the next has its turn: about four system calls' worth.
const TURN: usize = 64;
/// Packets of one burst.
pub(super) const BURST: usize = 2 * TURN;
/// Bytes that one connection may have under way, at most: 100 Gbit/s over 40 µs. A loss costs sending it again.
const WINDOW: u32 = 512 << 10;
/// Bytes of a packet, for the sum of what is under way.
const PACKET: u32 = 4096;
/// Asynchronous events that wait to be taken, at most.
const ASYNC_EVENTS: usize = 4096;

/// Where engines put what they have to tell.
#[derive(Debug)]
pub(super) struct Sinks {
    pub(super) queues: Queues,
    pub(super) watch: Watch,
    pub(super) events: VecDeque<AsyncEvent>,
}

impl Sinks {
    pub(super) fn tell(&mut self, event: AsyncEvent) {
        if self.events.len() < ASYNC_EVENTS {
            self.events.push_back(event);
        }
    }
}

impl Completions for Sinks {
    fn push(&mut self, cq: Cq, completion: Completion) {
        self.queues.push(cq, completion);
    }
    fn accessed(&mut self, accessed: Accessed) {
        self.watch.note(accessed);
    }
}

/// Receives that several queue pairs share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) pd: Pd,
    pub(super) receives: RecvQueue,
    /// Fewer receives than this are worth an event.
    pub(super) limit: Option<u32>,
}

/// Everything of an endpoint but the transport.
pub(super) struct Core {
    /// The time of the present call; of the last one while nothing was called.
    pub(super) now: Nanos,
    pub(super) protection: Protection,
    /// The table that the transport has: payloads lie in it even if a key was given up since.
    pub(super) regions: Regions,
    pub(super) pairs: Pairs,
    pub(super) arena: Arena,
    pub(super) shared: Slab<Shared>,
    pub(super) sinks: Sinks,
    pub(super) timers: Timers,
    pub(super) statistics: Statistics,
    /// Packets that all reliable connections together may have under way: what a receive buffer holds.
    most_under_way: u32,
    /// And have.
    under_way: u32,
    /// Places of queue pairs that want to send requests when there is room for more under way, each at most once.
    waiting: VecDeque<u32>,
    /// Some memory is a device's, which a transport cannot reach, or may be written by others meanwhile.
    pub(super) foreign: bool,
    /// Where a packet is laid out anew whose header was not as foretold.
    pub(super) again: Sge,
    /// Places of queue pairs that want to send, each at most once.
    ready: VecDeque<u32>,
}

impl Core {
    pub(super) fn new(regions: Regions, again: Sge) -> Self {
        let mut protection = Protection::new(regions.clone());
        let arena = Arena::new(&mut protection);
        Self {
            now: super::wakeups::now(),
            protection,
            regions,
            pairs: Pairs::default(),
            arena,
            shared: Slab::new(),
            sinks: Sinks { queues: Queues::new(), watch: Watch::default(), events: VecDeque::new() },
            timers: Timers::default(),
            statistics: Statistics::default(),
            most_under_way: u32::MAX,
            under_way: 0,
            waiting: VecDeque::new(),
            foreign: false,
            again,
            ready: VecDeque::new(),
        }
    }

    /// Lends a queue pair's engine what it works with.
    pub(super) fn with<R>(&mut self, place: u32, work: impl FnOnce(&mut Engine, &mut Context<'_>) -> R) -> Option<R> {
        let Pair { engine, books, receives, .. } = self.pairs.get_mut(place)?;
        let receives = match engine.config().srq {
            Some(srq) => &mut self.shared.get_mut(srq.0)?.receives,
            None => receives,
        };
        let mut context =
            Context { now: self.now, protection: &mut self.protection, receives, completions: &mut self.sinks, books };
        Some(work(engine, &mut context))
    }

    /// Says how many bytes a receive buffer holds, one's own as that of any peer.
    ///
    /// However many queue pairs there are, their packets meet in one buffer, and what it does not hold is lost. So the sum
    /// of what is under way has a limit, and whoever wants to begin beyond it waits for its turn. Answers never wait.
    pub(super) fn set_buffer(&mut self, bytes: u32) {
        self.most_under_way = (bytes / PACKET).max(1);
    }

    /// Bytes that one reliable connection may have under way.
    pub(super) fn window(&self) -> u32 {
        self.most_under_way.saturating_mul(PACKET).min(WINDOW)
    }

    /// Takes what a queue pair has under way out of the sum: it goes.
    pub(super) fn leave(&mut self, pair: &Pair) {
        self.under_way -= pair.under_way;
    }

    /// Notes what an engine wants now: after calls to it, once for all of them.
    pub(super) fn touch(&mut self, place: u32) {
        let Some(pair) = self.pairs.get_mut(place) else { return };
        let under_way = pair.engine.under_way();
        self.under_way = self.under_way - pair.under_way + under_way;
        pair.under_way = under_way;
        if pair.turn != Turn::Ready && pair.engine.wants_to_send(self.now) {
            if self.under_way < self.most_under_way || pair.engine.owes(self.now) {
                pair.turn = Turn::Ready;
                self.ready.push_back(place);
            } else if pair.turn == Turn::None {
                pair.turn = Turn::Waiting;
                self.waiting.push_back(place);
            }
        }
        // Not before the next look at the timers, so that one look ends.
        let deadline = pair.engine.deadline().map(|at| at.max(self.now + 1));
        self.timers.set(place, &mut pair.alarm, deadline);
        if !pair.failed && pair.engine.state() == QpState::Error {
            pair.failed = true;
            self.sinks.tell(AsyncEvent::QpError(Qp(pair.engine.number())));
        }
        if let Some(srq) = pair.srq() {
            self.check_limit(srq);
        }
    }

    /// Tells if a shared receive queue has fewer receives than its limit.
    pub(super) fn check_limit(&mut self, srq: Srq) {
        if let Some(shared) = self.shared.get_mut(srq.0)
            && shared.limit.take_if(|limit| shared.receives.len() < *limit as usize).is_some()
        {
            self.sinks.tell(AsyncEvent::SrqLimit(srq));
        }
    }

    /// Lets the queue pairs that are due do what they have to.
    pub(super) fn expire(&mut self) -> bool {
        let mut any = false;
        while let Some((at, place)) = self.timers.due(self.now) {
            let Some(pair) = self.pairs.get_mut(place).filter(|pair| pair.alarm == Some(at)) else { continue };
            pair.alarm = None;
            if pair.engine.deadline().is_some_and(|deadline| deadline <= self.now) {
                self.with(place, |engine, context| engine.expire(context));
                any = true;
            }
            self.touch(place);
        }
        any
    }

    /// Whether a queue pair may send.
    pub(super) fn wants_to_send(&self) -> bool {
        !self.ready.is_empty() || !self.waiting.is_empty() && self.under_way < self.most_under_way
    }

    /// Fills a burst, each queue pair in its turn.
    pub(super) fn fill(&mut self, burst: &mut Burst) {
        while burst.len() + TURN <= BURST {
            let Some(place) = self.next_turn() else { break };
            let Some(pair) = self.pairs.get_mut(place) else { continue };
            pair.turn = Turn::None;
            let before = burst.len();
            self.with(place, |engine, context| engine.transmit(context, burst, TURN));
            if burst.len() > before {
                self.touch(place);
            } else if let Some(pair) = self.pairs.get_mut(place) {
                // It wanted and could not: its deadline says when to ask again.
                let deadline = pair.engine.deadline().map(|at| at.max(self.now + 1));
                self.timers.set(place, &mut pair.alarm, deadline);
            }
        }
    }

    /// The place of the queue pair whose turn it is.
    fn next_turn(&mut self) -> Option<u32> {
        if let Some(place) = self.ready.pop_front() {
            return Some(place);
        }
        while self.under_way < self.most_under_way {
            let place = self.waiting.pop_front()?;
            // One that owed an answer meanwhile has had its turn, or has it to come.
            if self.pairs.get(place).is_some_and(|pair| pair.turn == Turn::Waiting) {
                return Some(place);
            }
        }
        None
    }

    /// Puts the queue pairs in their error state whose completion queue has overrun.
    pub(super) fn settle(&mut self) {
        while let Some(cq) = self.sinks.queues.next_overrun() {
            self.sinks.tell(AsyncEvent::CqOverrun(cq));
            let affected = self.pairs.iter().filter(|(_, pair)| pair.completes_at(cq)).map(|(place, _)| place);
            for place in affected.collect::<Vec<_>>() {
                self.with(place, |engine, context| engine.modify(context, &Modify::Error));
                self.touch(place);
            }
        }
    }
}
