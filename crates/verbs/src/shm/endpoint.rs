//! The endpoint: its tables, and operations that several verbs share.

use super::board::{Board, MAX_QUEUES, RING_BYTES, Word};
use super::control::{Control, KeyOffer, Message, Received};
use super::failed;
use super::keys::PeerKeys;
use super::pair::{QueuePair, kind};
use super::path::Turn;
use super::queues::{CompletionQueue, Entry, ReceiveQueue};
use super::wakeups::Wakeups;
use crate::api::{AsyncEvent, CompletionKind, Cq, Qp, QpState, Srq, Status, VerbsError};
use crate::slab::{Slab, slot_of};
use shotline_memory::{KeyMap, Pd, Protection, Registrar, RingReader, RingWriter, request_wakeup, requested_wakeup};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Number of polls without work between two reads of the socket, which cost a system call each.
const SOCKET_POLL_INTERVAL: u32 = 1024;
/// Maximum number of queued asynchronous events; later ones are dropped.
const MAX_ASYNC_EVENTS: usize = 4096;

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShmCounters {
    /// Messages dropped because they were not for a connected queue pair.
    pub stray: u64,
    /// Messages refused: longer than the receive, with a key that they may not invalidate, out of sequence, or without
    /// a posted receive.
    pub refused: u64,
    /// Invalid data on the peer's board, ring or socket.
    pub malformed: u64,
    /// Wake-up messages sent to the peer.
    pub wakes: u64,
}

/// One end of a link between two processes on a host; see the [module documentation](super).
///
/// Like every [`Provider`](crate::api::Provider), it is driven by one thread.
#[derive(Debug)]
pub struct ShmEndpoint {
    /// Board of this side, and of the peer.
    pub(super) mine: Board,
    pub(super) theirs: Board,
    pub(super) control: Control,
    pub(super) wakeups: Wakeups,
    /// Writer of this side's ring, and reader of the peer's.
    pub(super) writer: RingWriter,
    pub(super) reader: RingReader,
    pub(super) protection: Protection,
    /// Protection domains; the index is the number on the board.
    pub(super) domains: Vec<Pd>,
    pub(super) keys: PeerKeys,
    pub(super) cqs: Slab<CompletionQueue>,
    /// Receive queues of queue pairs, and shared ones; the board has them by index.
    pub(super) receives: Slab<ReceiveQueue>,
    /// Messages counted against each receive queue of this side, dropped ones included, and messages that this side has
    /// sent to each receive queue of the peer, modulo 2^32, by slot.
    pub(super) taken: Vec<u32>,
    pub(super) sent_to: Vec<u32>,
    /// The peer's receive queue that the last message was counted against.
    pub(super) last_queue: u16,
    /// Time on emulated paths that is left to the current call.
    pub(super) turn: Turn,
    /// The current operation has already polled the socket for an unknown key.
    pub(super) rechecked: bool,
    /// Queue pairs by slot, and slots by queue pair number.
    pub(super) pairs: Vec<Option<Box<QueuePair>>>,
    pub(super) numbers: KeyMap<u32>,
    /// Slots of queue pairs with incomplete requests.
    pub(super) active: Vec<u32>,
    /// Completion queues whose event was not returned.
    pub(super) events: VecDeque<Cq>,
    pub(super) async_events: VecDeque<AsyncEvent>,
    /// Elements of the request that is being posted.
    pub(super) scratch: Vec<shotline_memory::Sge>,
    pub(super) counters: ShmCounters,
    /// Wake-up word on our board: odd while this side requests a wake-up.
    wake: u32,
    /// Value of the peer's wake-up word that was answered last.
    answered_wake: u32,
    /// Something was published that the peer may be sleeping for.
    pub(super) must_notify: bool,
    /// Number of polls without work since the socket was read.
    idle: u32,
    pub(super) is_disconnected: bool,
}

impl ShmEndpoint {
    /// Upper bound of the memory of an endpoint without queue pairs.
    pub const MEMORY_BYTES: u64 = 2 << 20;

    pub(super) fn new(control: Control, mine: Board, theirs: Board) -> Result<Self, VerbsError> {
        let wakeups = Wakeups::new(&control).map_err(failed)?;
        Ok(Self {
            mine,
            theirs,
            control,
            wakeups,
            writer: RingWriter::new(RING_BYTES),
            reader: RingReader::new(RING_BYTES),
            protection: Protection::new(Registrar::new().finish()),
            domains: Vec::new(),
            keys: PeerKeys::new(),
            cqs: Slab::new(),
            receives: Slab::new(),
            taken: vec![0; MAX_QUEUES],
            sent_to: vec![0; MAX_QUEUES],
            last_queue: 0,
            turn: Turn::new(),
            rechecked: false,
            pairs: Vec::new(),
            numbers: KeyMap::default(),
            active: Vec::new(),
            events: VecDeque::new(),
            async_events: VecDeque::new(),
            scratch: Vec::new(),
            counters: ShmCounters::default(),
            wake: 0,
            answered_wake: 0,
            must_notify: false,
            idle: 0,
            is_disconnected: false,
        })
    }

    /// Returns the counters.
    pub fn counters(&self) -> ShmCounters {
        self.counters
    }
    /// Returns `true` until this side has detected that the peer's process has exited.
    pub fn is_linked(&self) -> bool {
        !self.is_disconnected
    }

    /// Processes everything that may have arrived, except on the socket. Returns `true` if there was anything.
    #[inline]
    pub(super) fn poll_peer(&mut self) -> bool {
        // Releases unused memory; there is no transport to pass the table of regions to.
        drop(self.protection.take_changed());
        let mut done = self.take_records();
        if !self.active.is_empty() {
            done |= self.advance_all();
        }
        if self.must_notify {
            self.notify_peer();
        }
        if done {
            self.idle = 0;
            return true;
        }
        self.idle += 1;
        self.idle >= SOCKET_POLL_INTERVAL && self.poll_socket()
    }

    /// Reads the socket. Returns `true` if there was a message.
    pub(super) fn poll_socket(&mut self) -> bool {
        self.idle = 0;
        if self.is_disconnected {
            return false;
        }
        if self.control.has_queued() {
            self.control.flush();
        }
        /// Maximum number of messages read before other work continues.
        const MAX_MESSAGES: usize = 64;
        let mut done = false;
        for _ in 0..MAX_MESSAGES {
            match self.control.receive() {
                Received::Nothing => return done,
                Received::Disconnected => {
                    self.disconnect();
                    return true;
                }
                Received::Malformed | Received::Message(Message::Hello(_)) => self.counters.malformed += 1,
                // The peer may send another wake-up from now on; the board is read after this.
                Received::Message(Message::Wake) if self.wake % 2 == 1 => self.advance_wake(2),
                Received::Message(Message::Wake) => {}
                Received::Message(Message::Key(KeyOffer { slot, .. }, _))
                    if slot as usize >= super::board::MAX_KEYS =>
                {
                    self.counters.malformed += 1;
                }
                Received::Message(Message::Key(offer, memory)) => {
                    let is_valid = self.keys.insert(offer, memory);
                    self.counters.malformed += u64::from(!is_valid);
                }
                Received::Message(Message::Ended { slot, rkey }) => self.keys.drop_key(slot, rkey),
                Received::Message(Message::Named { rkey, name }) => self.keys.name(rkey, name),
                Received::Message(Message::Fault { qp, from }) => self.peer_fault(qp, from),
            }
            done = true;
        }
        done
    }

    /// Marks the link as disconnected and fails all connected queue pairs: no posted request can complete.
    fn disconnect(&mut self) {
        self.is_disconnected = true;
        self.wakeups.remove_socket(&self.control);
        for slot in 0..self.pairs.len() {
            if self.pairs[slot].as_ref().is_some_and(|pair| pair.is_connected()) {
                self.fail(slot);
            }
        }
    }

    /// Fails the link because the peer violated the ring protocol, so the ring's state is undefined.
    #[cold]
    pub(super) fn fail_link(&mut self) {
        self.counters.malformed += 1;
        if !self.is_disconnected {
            self.disconnect();
        }
    }

    /// Fails a strict queue pair after an invalid operation of the peer.
    fn peer_fault(&mut self, qp: u32, from: u32) {
        let Some(slot) = self.numbers.get(&qp).map(|slot| *slot as usize) else { return };
        let Some(pair) = self.pairs[slot].as_ref() else { return };
        if pair.config.strict && pair.peer == from && pair.is_connected() {
            self.fail(slot);
        }
    }

    /// Wakes the peer if it has requested a wake-up that was not sent.
    pub(super) fn notify_peer(&mut self) {
        self.must_notify = false;
        let wake = requested_wakeup(self.theirs.wake());
        if wake % 2 == 1 && wake != self.answered_wake && !self.is_disconnected {
            self.answered_wake = wake;
            self.counters.wakes += 1;
            self.control.wake();
        }
    }

    /// Advances the wake-up word: `by` 1 to request a wake-up or to cancel the request, 2 to request another one.
    fn advance_wake(&mut self, by: u32) {
        self.wake = self.wake.wrapping_add(by);
        request_wakeup(self.mine.wake(), self.wake);
    }
    /// Requests wake-ups from the peer from now on.
    pub(super) fn request_wake(&mut self) {
        if self.wake.is_multiple_of(2) {
            self.advance_wake(1);
        }
    }
    /// Cancels the request for wake-ups, unless a completion queue is armed.
    pub(super) fn cancel_wake(&mut self) {
        if self.wake % 2 == 1 && !self.cqs.iter().any(|(_, cq)| cq.is_armed()) {
            self.advance_wake(1);
        }
    }

    /// Adds a completion; if the queue is full, its queue pairs fail. (Inlined, so that the entry is constructed in the
    /// ring: a copy would stall on the stores of its construction.)
    #[inline(always)]
    pub(super) fn complete(&mut self, cq: Cq, entry: Entry) {
        let Some(queue) = self.cqs.get_mut(cq.0) else { return };
        let overrun = queue.overrun;
        if queue.push(entry) {
            self.events.push_back(cq);
            self.wakeups.raise();
        } else if queue.overrun && !overrun {
            self.overrun(cq);
        }
    }

    #[cold]
    fn overrun(&mut self, cq: Cq) {
        self.push_event(AsyncEvent::CqOverrun(cq));
        for slot in 0..self.pairs.len() {
            let uses = |pair: &QueuePair| pair.config.send_cq == cq || pair.config.recv_cq == cq;
            if self.pairs[slot].as_ref().is_some_and(|pair| uses(pair) && pair.state != QpState::Error) {
                self.fail(slot);
            }
        }
    }

    /// Publishes how many messages a receive queue can receive.
    #[inline]
    pub(super) fn publish_receives(&mut self, queue: u32) {
        let posted = self.receives.get(queue).map_or(0, ReceiveQueue::len) as u32;
        let taken = self.taken[slot_of(queue)];
        self.mine.receives(slot_of(queue)).store(taken.wrapping_add(posted), Ordering::Release);
        self.must_notify = true;
    }

    /// Returns the number of a domain on the board.
    pub(super) fn domain(&self, pd: Pd) -> u32 {
        self.domains.iter().position(|known| *known == pd).map_or(u32::MAX, |number| number as u32)
    }

    /// Publishes the current state of a queue pair.
    pub(super) fn publish_pair(&mut self, slot: usize) {
        let Some(pair) = self.pairs[slot].as_ref() else { return };
        let ready = pair.is_connected();
        let words = [
            (Word::State, 0),
            (Word::Peer, if ready { pair.peer } else { 0 }),
            (Word::Access, u32::from(pair.access.bits())),
            (Word::Domain, self.domain(pair.config.pd)),
            (Word::Receives, slot_of(pair.receives) as u32),
            (Word::Strict, u32::from(pair.config.strict)),
            (Word::Expected, pair.expected),
            (Word::RefusalCode, 0),
            (Word::Number, pair.number),
            (Word::State, u32::from(ready)),
        ];
        words.into_iter().for_each(|(word, value)| self.mine.pair(slot, word).store(value, Ordering::Release));
        self.publish_change();
    }
    pub(super) fn publish_change(&mut self) {
        self.mine.changes().fetch_add(1, Ordering::Release);
        self.must_notify = true;
    }

    /// Puts a queue pair in its error state and flushes it.
    #[cold]
    pub(super) fn fail(&mut self, slot: usize) {
        let Some(pair) = self.pairs[slot].as_mut() else { return };
        if std::mem::replace(&mut pair.state, QpState::Error) != QpState::Error {
            let event = AsyncEvent::QpError(Qp(pair.number));
            self.push_event(event);
        }
        // It receives no more messages; the status of the last one stays on the board.
        self.mine.pair(slot, Word::State).store(0, Ordering::Release);
        self.publish_change();
        self.flush(slot);
    }

    /// Queues an asynchronous event. The queue is bounded, because the application may never read it.
    fn push_event(&mut self, event: AsyncEvent) {
        if self.async_events.len() < MAX_ASYNC_EVENTS {
            self.async_events.push_back(event);
        }
    }
    /// Raises an event if a shared receive queue has fewer receives than its armed limit.
    pub(super) fn check_limit(&mut self, queue: u32) {
        if let Some(receives) = self.receives.get_mut(queue)
            && receives.limit.take_if(|limit| receives.posted.len() < *limit as usize).is_some()
        {
            self.push_event(AsyncEvent::SrqLimit(Srq(queue)));
        }
    }

    /// Completes all outstanding requests of a queue pair as flushed.
    pub(super) fn flush(&mut self, slot: usize) {
        let Some(pair) = self.pairs[slot].as_mut() else { return };
        let (cqs, number) = ((pair.config.send_cq, pair.config.recv_cq), pair.number);
        (pair.executed, pair.deadline) = (0, None);
        for mut request in std::mem::take(&mut pair.requests) {
            request.pinned.unpin_all(&mut self.protection);
            let entry = Entry::new(request.id, kind(&request.operation), number, slot).freeing(request.number);
            self.complete(cqs.0, entry.failed(Status::Flushed));
        }
        let Some(pair) = self.pairs[slot].as_mut() else { return };
        let (queue, incoming) = (pair.receives, pair.incoming.take());
        let shared = self.receives.get(queue).is_none_or(|queue| queue.shared);
        let mut next = incoming.map(|incoming| incoming.receive);
        loop {
            let receives = self.receives.get_mut(queue);
            let Some(receive) = next.take().or_else(|| receives.filter(|_| !shared).and_then(ReceiveQueue::take))
            else {
                break;
            };
            let entry = Entry::new(receive.id, CompletionKind::Recv, number, slot).failed(Status::Flushed);
            if let Some(queue) = self.receives.get_mut(queue) {
                queue.recycle(&mut self.protection, receive);
            }
            self.complete(cqs.1, entry);
        }
        self.publish_receives(queue);
    }

    /// Discards all outstanding requests of a queue pair without completions.
    pub(super) fn discard(&mut self, slot: usize) {
        let Some(pair) = self.pairs[slot].as_mut() else { return };
        pair.requests.drain(..).for_each(|mut request| request.pinned.unpin_all(&mut self.protection));
        (pair.executed, pair.deadline, pair.freed) = (0, None, pair.posted);
        let (queue, incoming) = (pair.receives, pair.incoming.take());
        let Some(receives) = self.receives.get_mut(queue) else { return };
        if let Some(incoming) = incoming {
            if receives.shared {
                receives.put_back(incoming.receive);
            } else {
                receives.recycle(&mut self.protection, incoming.receive);
            }
        }
        while let Some(receive) = (!receives.shared).then(|| receives.take()).flatten() {
            receives.recycle(&mut self.protection, receive);
        }
        self.publish_receives(queue);
    }
}
