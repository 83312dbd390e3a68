//! The endpoint without its datapath: queue pairs, memory, queues, timers, and the send scheduler.

use super::arena::Arena;
use super::pairs::{Pair, Pairs, Schedule};
use super::queues::CompletionQueues;
use super::timers::Timers;
use super::watch::Watch;
use crate::api::{AsyncEvent, Completion, Cq, Modify, Qp, QpState, RemoteAccess, Srq};
use crate::engine::{Burst, Completions, Context, Engine, Nanos, RecvQueue};
use crate::slab::Slab;
use shotline_memory::{Pd, Protection, Regions};
use std::collections::VecDeque;

/// Maximum number of packets that a queue pair sends before the next one is scheduled: about four system calls.
const MAX_TURN_PACKETS: usize = 64;
/// Maximum number of packets in a burst.
pub(crate) const MAX_BURST_PACKETS: usize = 2 * MAX_TURN_PACKETS;
/// Maximum bytes in flight of one connection: 100 Gbit/s over 40 µs. A loss costs retransmitting them.
const MAX_WINDOW_BYTES: u32 = 512 << 10;
/// Length of a packet that is assumed when bytes of a receive buffer are converted to packets in flight.
const PACKET_BYTES: u32 = 4096;
/// Maximum number of queued asynchronous events; later ones are dropped.
const MAX_ASYNC_EVENTS: usize = 4096;

/// Destinations of the engines' completions, notices and events.
#[derive(Debug)]
pub(super) struct Sinks {
    pub(super) queues: CompletionQueues,
    pub(super) watch: Watch,
    pub(super) events: VecDeque<AsyncEvent>,
}

impl Sinks {
    pub(super) fn push_event(&mut self, event: AsyncEvent) {
        if self.events.len() < MAX_ASYNC_EVENTS {
            self.events.push_back(event);
        }
    }
}

impl Completions for Sinks {
    fn push(&mut self, cq: Cq, completion: Completion) {
        self.queues.push(cq, completion);
    }
    fn on_remote_access(&mut self, access: RemoteAccess) {
        self.watch.push(access);
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub(super) struct SharedReceives {
    pub(super) pd: Pd,
    pub(super) receives: RecvQueue,
    /// Armed limit: an event is raised once fewer receives are posted.
    pub(super) limit: Option<u32>,
}

/// Queue pairs, memory, queues and timers of an endpoint, as its [`Datapath`](super::Datapath) uses them.
pub struct Core {
    /// Time of the current call; between calls, that of the last one.
    pub(super) now: Nanos,
    pub(super) protection: Protection,
    /// The table of regions that the datapath uses: payloads may lie in a region whose key was deregistered since.
    regions: Regions,
    pub(super) pairs: Pairs,
    pub(super) arena: Arena,
    pub(super) shared: Slab<SharedReceives>,
    pub(super) sinks: Sinks,
    pub(super) timers: Timers,
    /// Limit of `in_flight`: the capacity of a peer's receive buffer, in packets.
    max_in_flight: u32,
    /// Packets in flight of all reliable connections.
    in_flight: u32,
    /// `true` if some region is device or shared memory: a transport cannot read device memory, and another process may
    /// write shared memory during transmission.
    has_shared_regions: bool,
    /// Send queues of the datapath, by number; a queue pair belongs to one ([`Pair::queue`]).
    queues: Vec<SendList>,
}

/// Queue pairs of one send queue that have something to send.
#[derive(Debug, Default)]
struct SendList {
    /// Indices of queue pairs that are ready to send, each at most once.
    ready: VecDeque<u32>,
    /// Indices of queue pairs that have requests to send once the packets in flight are below their limit, each at most
    /// once.
    waiting: VecDeque<u32>,
}

impl Core {
    pub(super) fn new(regions: Regions) -> Self {
        let mut protection = Protection::new(regions.clone());
        let arena = Arena::new(&mut protection);
        Self {
            now: super::wakeups::now(),
            protection,
            regions,
            pairs: Pairs::default(),
            arena,
            shared: Slab::new(),
            sinks: Sinks { queues: CompletionQueues::new(), watch: Watch::default(), events: VecDeque::new() },
            timers: Timers::default(),
            max_in_flight: u32::MAX,
            in_flight: 0,
            has_shared_regions: false,
            queues: vec![SendList::default()],
        }
    }

    /// Returns `true` if a completion queue is armed: the application may sleep until its event.
    pub(crate) fn any_armed(&self) -> bool {
        self.sinks.queues.any_armed()
    }

    /// Returns the time of the present call.
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the index of the queue pair with this number. It is valid for the life of the queue pair.
    pub(crate) fn index_of(&self, number: u32) -> Option<u32> {
        self.pairs.index_of(number)
    }

    /// Returns a queue pair by its index.
    pub(crate) fn pair(&self, index: u32) -> Option<&Pair> {
        self.pairs.get(index)
    }

    /// Returns the receive queue of a queue pair: its own or a shared one.
    pub(crate) fn receives<'a>(&'a self, pair: &'a Pair) -> Option<&'a RecvQueue> {
        match pair.srq() {
            Some(srq) => self.shared.get(srq.0).map(|shared| &shared.receives),
            None => Some(&pair.receives),
        }
    }

    /// Returns keys and registered memory.
    pub(crate) fn protection(&self) -> &Protection {
        &self.protection
    }

    /// Returns the table of regions that was last passed to the datapath.
    pub(crate) fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Returns `true` if some region is device or shared memory.
    pub(crate) fn has_shared_regions(&self) -> bool {
        self.has_shared_regions
    }

    /// Returns the number of completions lost because their completion queue was full.
    pub(crate) fn completions_lost(&self) -> u64 {
        self.sinks.queues.lost
    }

    /// Returns the number of notices of one-sided operations lost because the application did not take them.
    pub(crate) fn notices_lost(&self) -> u64 {
        self.sinks.watch.lost
    }

    /// Returns the table of regions if it has changed since the last call.
    pub(super) fn take_changed_regions(&mut self) -> Option<&Regions> {
        let regions = self.protection.take_changed()?;
        self.has_shared_regions = regions.iter().any(|(_, region)| region.is_shared());
        self.regions = regions;
        Some(&self.regions)
    }

    /// Calls `work` with a queue pair's engine and its context. Returns `None` if there is no such queue pair.
    pub(crate) fn with<R>(&mut self, index: u32, work: impl FnOnce(&mut Engine, &mut Context<'_>) -> R) -> Option<R> {
        let Pair { engine, counters, receives, .. } = self.pairs.get_mut(index)?;
        let receives = match engine.config().srq {
            Some(srq) => &mut self.shared.get_mut(srq.0)?.receives,
            None => receives,
        };
        let mut context = Context {
            now: self.now,
            protection: &mut self.protection,
            receives,
            completions: &mut self.sinks,
            counters,
        };
        Some(work(engine, &mut context))
    }

    /// Sets the size of a peer's receive buffer, in bytes.
    ///
    /// The packets of all queue pairs arrive in one buffer, and packets that do not fit are lost. So the sum of packets
    /// in flight is limited, and a queue pair that would exceed it waits for its turn. Responses never wait.
    pub(crate) fn set_peer_buffer(&mut self, bytes: u32) {
        self.max_in_flight = (bytes / PACKET_BYTES).max(1);
    }

    /// Returns the maximum number of bytes that one reliable connection may have in flight.
    pub(super) fn window(&self) -> u32 {
        self.max_in_flight.saturating_mul(PACKET_BYTES).min(MAX_WINDOW_BYTES)
    }

    /// Subtracts a destroyed queue pair's packets from the sum of packets in flight.
    pub(super) fn remove_in_flight(&mut self, pair: &Pair) {
        self.in_flight -= pair.in_flight;
    }

    /// Assigns a queue pair to a send queue of the datapath.
    pub(super) fn assign(&mut self, index: u32, queue: u32) {
        let count = self.queues.len().max(queue as usize + 1);
        self.queues.resize_with(count, SendList::default);
        if let Some(pair) = self.pairs.get_mut(index) {
            pair.queue = Some(queue);
        }
    }

    /// Removes a queue pair from its send queue, and returns that queue.
    pub(super) fn unassign(&mut self, index: u32) -> Option<u32> {
        let pair = self.pairs.get_mut(index)?;
        let queue = pair.queue.take()?;
        pair.schedule = Schedule::Idle;
        let SendList { ready, waiting } = &mut self.queues[queue as usize];
        ready.retain(|other| *other != index);
        waiting.retain(|other| *other != index);
        Some(queue)
    }

    /// Updates a queue pair's schedule and timer. Called once after any number of calls to its engine.
    pub(crate) fn reschedule(&mut self, index: u32) {
        let Some(pair) = self.pairs.get_mut(index) else { return };
        let in_flight = pair.engine.in_flight();
        self.in_flight = self.in_flight - pair.in_flight + in_flight;
        pair.in_flight = in_flight;
        if pair.schedule != Schedule::Ready && pair.engine.has_packets_to_send(self.now) {
            if self.in_flight < self.max_in_flight || pair.engine.has_response_pending(self.now) {
                pair.schedule = Schedule::Ready;
                self.queues[pair.list()].ready.push_back(index);
            } else if pair.schedule == Schedule::Idle {
                pair.schedule = Schedule::Waiting;
                self.queues[pair.list()].waiting.push_back(index);
            }
        }
        // In the future, so that the loop over expired timers ends.
        let deadline = pair.engine.deadline().map(|deadline| deadline.max(self.now + 1));
        self.timers.set(index, &mut pair.alarm, deadline);
        if !pair.failed && pair.engine.state() == QpState::Error {
            pair.failed = true;
            self.sinks.push_event(AsyncEvent::QpError(Qp(pair.engine.number())));
        }
        if let Some(srq) = pair.srq() {
            self.check_limit(srq);
        }
    }

    /// Raises an event if a shared receive queue has fewer receives than its armed limit.
    pub(super) fn check_limit(&mut self, srq: Srq) {
        if let Some(shared) = self.shared.get_mut(srq.0)
            && shared.limit.take_if(|limit| shared.receives.len() < *limit as usize).is_some()
        {
            self.sinks.push_event(AsyncEvent::SrqLimit(srq));
        }
    }

    /// Runs the timers of queue pairs whose deadline has passed. Returns `true` if there was one.
    pub(super) fn expire(&mut self) -> bool {
        let mut any = false;
        while let Some((at, index)) = self.timers.pop_expired(self.now) {
            let Some(pair) = self.pairs.get_mut(index).filter(|pair| pair.alarm == Some(at)) else { continue };
            pair.alarm = None;
            if pair.engine.deadline().is_some_and(|deadline| deadline <= self.now) {
                self.with(index, |engine, context| engine.expire(context));
                any = true;
            }
            self.reschedule(index);
        }
        any
    }

    /// Returns `true` if a queue pair may send now.
    pub(super) fn can_send(&self) -> bool {
        let has_window = self.in_flight < self.max_in_flight;
        self.queues.iter().any(|queue| !queue.ready.is_empty() || has_window && !queue.waiting.is_empty())
    }

    /// Fills a burst with up to `max` packets of the queue pairs of one send queue, in turn.
    pub(crate) fn fill(&mut self, queue: u32, burst: &mut Burst, max: usize) {
        while burst.len() < max {
            let Some(index) = self.next_scheduled(queue) else { break };
            let Some(pair) = self.pairs.get_mut(index) else { continue };
            pair.schedule = Schedule::Idle;
            let before = burst.len();
            let turn = MAX_TURN_PACKETS.min(max - before);
            self.with(index, |engine, context| engine.transmit(context, burst, turn));
            if burst.len() > before {
                self.reschedule(index);
            } else if let Some(pair) = self.pairs.get_mut(index) {
                // It was scheduled but could not send: its deadline is the time of the next attempt.
                let deadline = pair.engine.deadline().map(|deadline| deadline.max(self.now + 1));
                self.timers.set(index, &mut pair.alarm, deadline);
            }
        }
    }

    /// Returns the index of the next queue pair to send.
    fn next_scheduled(&mut self, queue: u32) -> Option<u32> {
        let list = self.queues.get_mut(queue as usize)?;
        if let Some(index) = list.ready.pop_front() {
            return Some(index);
        }
        if self.in_flight < self.max_in_flight {
            while let Some(index) = list.waiting.pop_front() {
                // A queue pair that had a response to send has since moved to `ready`.
                if self.pairs.get(index).is_some_and(|pair| pair.schedule == Schedule::Waiting) {
                    return Some(index);
                }
            }
        }
        None
    }

    /// Moves the queue pairs of overrun completion queues to the error state.
    pub(super) fn fail_overrun_qps(&mut self) {
        while let Some(cq) = self.sinks.queues.next_overrun() {
            self.sinks.push_event(AsyncEvent::CqOverrun(cq));
            let affected = self.pairs.iter().filter(|(_, pair)| pair.completes_at(cq)).map(|(index, _)| index);
            for index in affected.collect::<Vec<_>>() {
                self.with(index, |engine, context| engine.modify(context, &Modify::Error));
                self.reschedule(index);
            }
        }
    }
}
