//! The endpoint: its tables, and what all verbs share.

use super::board::{Board, QUEUES, RING, Word};
use super::control::{Control, Heard, KeyOffer, Message};
use super::failed;
use super::pair::{QueuePair, kind};
use super::queues::{CompletionQueue, Entry, ReceiveQueue};
use super::rights::Rights;
use super::sleep::Sleep;
use crate::api::{AsyncEvent, Completed, Cq, Qp, QpState, Srq, Status, VerbsError};
use crate::slab::{Slab, place};
use shotline_memory::{KeyMap, Pd, Protection, Registrar, RingReader, RingWriter, asleep_after, wanted_after};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// How many fruitless looks pass between two looks at the socket, which cost a system call each.
const IDLE: u32 = 1024;
/// Asynchronous events that are kept.
const TOLD: usize = 4096;

/// What happened at an endpoint, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that were dropped because they were not for a connected queue pair, or came out of turn.
    pub stray: u64,
    /// Messages that were refused: too long for their receive, or with a key to invalidate that may not be.
    pub refused: u64,
    /// Impossible bytes on the peer's board, ring or socket.
    pub nonsense: u64,
    /// Times that the peer was woken.
    pub wakes: u64,
}

/// One end of a link between two processes of a host; see the [module's page](super).
///
/// It is driven by one thread, as every [`Provider`](crate::api::Provider).
#[derive(Debug)]
pub struct ShmEndpoint {
    pub(super) mine: Board,
    pub(super) theirs: Board,
    pub(super) control: Control,
    pub(super) sleep: Sleep,
    pub(super) writer: RingWriter,
    pub(super) reader: RingReader,
    pub(super) protection: Protection,
    /// Protection domains, by the numbers that the peer knows them by.
    pub(super) domains: Vec<Pd>,
    pub(super) rights: Rights,
    pub(super) cqs: Slab<CompletionQueue>,
    /// Receive queues, own and shared; the board shows them by their places.
    pub(super) receives: Slab<ReceiveQueue>,
    /// Messages that each of our receive queues has taken, and that we have sent to each of the peer's.
    pub(super) taken: Vec<u32>,
    pub(super) sent_to: Vec<u32>,
    /// The queue that the last message was counted against.
    pub(super) counted: u16,
    /// An operation has looked once already whether the peer told of its key.
    pub(super) asked: bool,
    pub(super) pairs: Vec<Option<Box<QueuePair>>>,
    pub(super) numbers: KeyMap<u32>,
    /// Queue pairs with requests that are not complete.
    pub(super) active: Vec<u32>,
    pub(super) events: VecDeque<Cq>,
    pub(super) told: VecDeque<AsyncEvent>,
    /// Elements of the request that is being posted.
    pub(super) scratch: Vec<shotline_memory::Sge>,
    pub(super) counters: Counters,
    /// What we ask the peer for: odd, to be woken.
    wake: u32,
    /// The peer's request that was answered last.
    woken: u32,
    /// Something was shown that the peer may sleep for.
    pub(super) news: bool,
    idle: u32,
    pub(super) gone: bool,
}

impl ShmEndpoint {
    /// Upper bound of the memory of an endpoint without queue pairs.
    pub const MEMORY_BYTES: u64 = 2 << 20;

    pub(super) fn new(control: Control, mine: Board, theirs: Board) -> Result<Self, VerbsError> {
        let sleep = Sleep::new(&control).map_err(failed)?;
        Ok(Self {
            mine,
            theirs,
            control,
            sleep,
            writer: RingWriter::new(RING),
            reader: RingReader::new(RING),
            protection: Protection::new(Registrar::new().finish()),
            domains: Vec::new(),
            rights: Rights::new(),
            cqs: Slab::new(),
            receives: Slab::new(),
            taken: vec![0; QUEUES],
            sent_to: vec![0; QUEUES],
            counted: 0,
            asked: false,
            pairs: Vec::new(),
            numbers: KeyMap::default(),
            active: Vec::new(),
            events: VecDeque::new(),
            told: VecDeque::new(),
            scratch: Vec::new(),
            counters: Counters::default(),
            wake: 0,
            woken: 0,
            news: false,
            idle: 0,
            gone: false,
        })
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }
    /// Whether the peer's process is still there, as far as this side has noticed.
    pub fn is_linked(&self) -> bool {
        !self.gone
    }

    /// Looks at everything that may have come, without the socket. Returns whether anything was done.
    #[inline]
    pub(super) fn look(&mut self) -> bool {
        // Lets memory go that nothing uses any more; there is no transport to be told.
        drop(self.protection.changed());
        let mut done = self.take_records();
        if !self.active.is_empty() {
            done |= self.advance_all();
        }
        if self.news {
            self.tell_news();
        }
        if done {
            self.idle = 0;
            return true;
        }
        self.idle += 1;
        self.idle >= IDLE && self.listen()
    }

    /// Reads the socket. Returns whether there was anything.
    pub(super) fn listen(&mut self) -> bool {
        self.idle = 0;
        if self.gone {
            return false;
        }
        if self.control.is_waiting() {
            self.control.flush();
        }
        /// Messages that are heard before everything else gets its turn.
        const MESSAGES: usize = 64;
        let mut done = false;
        for _ in 0..MESSAGES {
            match self.control.hear() {
                Heard::Nothing => return done,
                Heard::Gone => {
                    self.lose();
                    return true;
                }
                Heard::Nonsense | Heard::Message(Message::Hello(_)) => self.counters.nonsense += 1,
                // The peer may be asked again from now on, whatever is on the board is looked at after this.
                Heard::Message(Message::Wake) if self.wake % 2 == 1 => self.ask(2),
                Heard::Message(Message::Wake) => {}
                Heard::Message(Message::Key(KeyOffer { slot, .. }, _)) if slot as usize >= super::board::KEYS => {
                    self.counters.nonsense += 1;
                }
                Heard::Message(Message::Key(offer, memory)) => {
                    let taken = self.rights.take(offer, memory);
                    self.counters.nonsense += u64::from(!taken);
                }
                Heard::Message(Message::Ended { slot, rkey }) => self.rights.drop_key(slot, rkey),
                Heard::Message(Message::Named { rkey, name }) => self.rights.name(rkey, name),
                Heard::Message(Message::Fault { qp, from }) => self.blame(qp, from),
            }
            done = true;
        }
        done
    }

    /// The peer is gone: nothing more comes, and nothing that was posted can end well.
    fn lose(&mut self) {
        self.gone = true;
        self.sleep.forget(&self.control);
        for slot in 0..self.pairs.len() {
            if self.pairs[slot].as_ref().is_some_and(|pair| pair.is_connected()) {
                self.fail(slot);
            }
        }
    }

    /// The peer broke the rules of the ring, so it cannot be followed any further.
    #[cold]
    pub(super) fn broken(&mut self) {
        self.counters.nonsense += 1;
        if !self.gone {
            self.lose();
        }
    }

    /// An operation of the peer was wrong, and the queue pair follows the standard's rules.
    fn blame(&mut self, qp: u32, from: u32) {
        let Some(slot) = self.numbers.get(&qp).map(|slot| *slot as usize) else { return };
        let Some(pair) = self.pairs[slot].as_ref() else { return };
        if pair.config.strict && pair.peer == from && pair.is_connected() {
            self.fail(slot);
        }
    }

    /// Whether the peer wants to know of what was shown since it was asked last.
    pub(super) fn tell_news(&mut self) {
        self.news = false;
        let wanted = wanted_after(self.theirs.wake());
        if wanted % 2 == 1 && wanted != self.woken && !self.gone {
            self.woken = wanted;
            self.counters.wakes += 1;
            self.control.wake();
        }
    }

    /// Asks to be woken (`by` 1 if not asked for yet, 2 to be woken once more) or not to be.
    fn ask(&mut self, by: u32) {
        self.wake = self.wake.wrapping_add(by);
        asleep_after(self.mine.wake(), self.wake);
    }
    /// Wants to be woken from now on.
    pub(super) fn want(&mut self) {
        if self.wake.is_multiple_of(2) {
            self.ask(1);
        }
    }
    /// Is awake, unless somebody waits for an event.
    pub(super) fn awake(&mut self) {
        if self.wake % 2 == 1 && !self.cqs.iter().any(|(_, cq)| cq.is_armed()) {
            self.ask(1);
        }
    }

    /// Enters a completion; a full queue takes its queue pairs with it. (Inlined, so that an entry is written where it
    /// stays: written and copied, the copy waits for the writes.)
    #[inline(always)]
    pub(super) fn complete(&mut self, cq: Cq, entry: Entry) {
        let Some(queue) = self.cqs.get_mut(cq.0) else { return };
        let overrun = queue.overrun;
        if queue.push(entry) {
            self.events.push_back(cq);
            self.sleep.raise();
        } else if queue.overrun && !overrun {
            self.overrun(cq);
        }
    }

    #[cold]
    fn overrun(&mut self, cq: Cq) {
        self.tell(AsyncEvent::CqOverrun(cq));
        for slot in 0..self.pairs.len() {
            let uses = |pair: &QueuePair| pair.config.send_cq == cq || pair.config.recv_cq == cq;
            if self.pairs[slot].as_ref().is_some_and(|pair| uses(pair) && pair.state != QpState::Error) {
                self.fail(slot);
            }
        }
    }

    /// Shows the peer how many messages a receive queue can take.
    #[inline]
    pub(super) fn show_receives(&mut self, queue: u32) {
        let posted = self.receives.get(queue).map_or(0, ReceiveQueue::len) as u32;
        let taken = self.taken[place(queue)];
        self.mine.receives(place(queue)).store(taken.wrapping_add(posted), Ordering::Release);
        self.news = true;
    }

    /// The number of a domain, as the peer knows it.
    pub(super) fn domain(&self, pd: Pd) -> u32 {
        self.domains.iter().position(|known| *known == pd).map_or(u32::MAX, |number| number as u32)
    }

    /// Shows the peer a queue pair as it is now.
    pub(super) fn show_pair(&mut self, slot: usize) {
        let Some(pair) = self.pairs[slot].as_ref() else { return };
        let ready = pair.is_connected();
        let words = [
            (Word::State, 0),
            (Word::Peer, if ready { pair.peer } else { 0 }),
            (Word::Access, u32::from(pair.access.bits())),
            (Word::Domain, self.domain(pair.config.pd)),
            (Word::Receives, place(pair.receives) as u32),
            (Word::Strict, u32::from(pair.config.strict)),
            (Word::Expected, pair.expected),
            (Word::Verdict, 0),
            (Word::Number, pair.number),
            (Word::State, u32::from(ready)),
        ];
        words.into_iter().for_each(|(word, value)| self.mine.pair(slot, word).store(value, Ordering::Release));
        self.changed();
    }
    pub(super) fn changed(&mut self) {
        self.mine.changes().fetch_add(1, Ordering::Release);
        self.news = true;
    }

    /// Puts a queue pair in its error state and flushes it.
    #[cold]
    pub(super) fn fail(&mut self, slot: usize) {
        let Some(pair) = self.pairs[slot].as_mut() else { return };
        if std::mem::replace(&mut pair.state, QpState::Error) != QpState::Error {
            let event = AsyncEvent::QpError(Qp(pair.number));
            self.tell(event);
        }
        // It receives no more; what was said of its last message stays.
        self.mine.pair(slot, Word::State).store(0, Ordering::Release);
        self.changed();
        self.flush(slot);
    }

    /// Notes what happened beside the completions. Nobody may ever ask for it, so there is an end.
    fn tell(&mut self, event: AsyncEvent) {
        if self.told.len() < TOLD {
            self.told.push_back(event);
        }
    }
    /// Tells if a shared receive queue has fewer receives than its limit.
    pub(super) fn check_limit(&mut self, queue: u32) {
        if let Some(receives) = self.receives.get_mut(queue)
            && receives.limit.take_if(|limit| receives.posted.len() < *limit as usize).is_some()
        {
            self.tell(AsyncEvent::SrqLimit(Srq(queue)));
        }
    }

    /// Completes everything that was posted as flushed.
    pub(super) fn flush(&mut self, slot: usize) {
        let Some(pair) = self.pairs[slot].as_mut() else { return };
        let (cqs, number) = ((pair.config.send_cq, pair.config.recv_cq), pair.number);
        (pair.carried, pair.deadline) = (0, None);
        for mut request in std::mem::take(&mut pair.requests) {
            request.held.let_go(&mut self.protection);
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
            let entry = Entry::new(receive.id, Completed::Recv, number, slot).failed(Status::Flushed);
            if let Some(queue) = self.receives.get_mut(queue) {
                queue.give_back(&mut self.protection, receive);
            }
            self.complete(cqs.1, entry);
        }
        self.show_receives(queue);
    }

    /// Forgets everything that was posted.
    pub(super) fn forget(&mut self, slot: usize) {
        let Some(pair) = self.pairs[slot].as_mut() else { return };
        pair.requests.drain(..).for_each(|mut request| request.held.let_go(&mut self.protection));
        (pair.carried, pair.deadline, pair.freed) = (0, None, pair.posted);
        let (queue, incoming) = (pair.receives, pair.incoming.take());
        let Some(receives) = self.receives.get_mut(queue) else { return };
        if let Some(incoming) = incoming {
            if receives.shared {
                receives.put_back(incoming.receive);
            } else {
                receives.give_back(&mut self.protection, incoming.receive);
            }
        }
        while let Some(receive) = (!receives.shared).then(|| receives.take()).flatten() {
            receives.give_back(&mut self.protection, receive);
        }
        self.show_receives(queue);
    }
}
