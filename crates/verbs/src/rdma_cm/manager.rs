//! Connections in the making, without I/O: datagrams and the time go in, datagrams and events come out.

use super::MAD_LEN;
use super::message::{Datagram, Message, Reply, Request, reason};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// This side's name of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Connection(u32);

/// What happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody asks for one: accept or reject it within [`Manager::DECISION`].
    Asked(Connection, IpAddr, Box<Request>),
    /// The other side agrees: make the queue pair ready, then say so ([`Manager::ready`]).
    Agreed(Connection, Box<Reply>),
    /// The other side is ready.
    Established(Connection),
    /// The other side refuses, with a [`reason`].
    Refused(Connection, u16),
    /// This side has not decided in time, so that it was refused ([`reason::TIMEOUT`]).
    Lapsed(Connection),
    /// The other side ends it, or has agreed to its end. Nothing more will be said.
    Ended(Connection),
    /// The other side does not answer any more.
    Silent(Connection),
}

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Asked for by this side; a REP is due.
    Asking,
    /// The other side agrees; this one is not ready yet.
    Agreed,
    /// Asked for by the other side; this one has not decided.
    Asked,
    /// This side agrees; an RTU is due.
    Replied,
    Established,
    /// This side ends it; a DREP is due.
    Ending,
    /// Ended; kept for a while, to answer what comes twice.
    Ended,
}

#[derive(Debug)]
struct Entry {
    state: State,
    peer: IpAddr,
    transaction: u64,
    /// The other side's name of it.
    remote: u32,
    /// The other side's queue pair.
    remote_qp: u32,
    /// What was said last, to say it again: until it is answered, or, of an ended connection, if it is asked for once
    /// more. Nothing if there is no reason to.
    last: Option<Message>,
    /// When it is said again, given up or forgotten.
    due: Duration,
    tries: u32,
}

/// A message is said again after so long.
const AGAIN: Duration = Duration::from_millis(400);
/// So often.
const TRIES: u32 = 20;
/// An ended connection is remembered for so long.
const MEMORY: Duration = Duration::from_secs(10);
/// Connections that are kept, and events that wait to be read, when somebody asks for one more.
const MOST: usize = 1024;

/// A connection manager. Times count from any moment, the same for all calls.
#[derive(Debug, Default)]
pub struct Manager {
    connections: HashMap<u32, Entry>,
    services: Vec<u64>,
    out: VecDeque<(IpAddr, [u8; MAD_LEN])>,
    events: VecDeque<Event>,
    last_name: u32,
}

impl Manager {
    /// How long what is asked for waits for [`Self::accept`] or [`Self::reject`]; then it is refused.
    pub const DECISION: Duration = Duration::from_secs(10);

    /// Without connections. `seed` makes names differ from those of an earlier run.
    pub fn new(seed: u32) -> Self {
        Self { last_name: seed, ..Self::default() }
    }

    /// Takes requests for a service ([`super::message::service_id`]).
    pub fn listen(&mut self, service: u64) {
        self.services.push(service);
    }

    /// Asks for a connection.
    pub fn connect(&mut self, now: Duration, peer: IpAddr, request: Request) -> Connection {
        let name = self.name();
        let transaction = u64::from(name);
        let message = Message::Req(Box::new(request));
        self.keep(now, name, State::Asking, peer, (transaction, 0, 0));
        self.say(now, name, message, true);
        Connection(name)
    }

    /// Agrees to what was asked for, unless it has lapsed. The queue pair must be ready to receive.
    pub fn accept(&mut self, now: Duration, connection: Connection, reply: Reply) {
        if self.change(connection, State::Asked, State::Replied) {
            self.say(now, connection.0, Message::Rep(Box::new(reply)), true);
        }
    }

    /// Refuses what was asked for, for a [`reason`].
    pub fn reject(&mut self, now: Duration, connection: Connection, reason: u16) {
        if self.change(connection, State::Asked, State::Ended) {
            self.say(now, connection.0, Message::Rej(reason), true); // the REJ may get lost: then the REQ comes again
            if let Some(entry) = self.connections.get_mut(&connection.0) {
                entry.due = now + MEMORY;
            }
        }
    }

    /// Says that this side's queue pair is ready, after the other side has agreed.
    pub fn ready(&mut self, now: Duration, connection: Connection) {
        if self.change(connection, State::Agreed, State::Established) {
            self.say(now, connection.0, Message::Rtu, false);
        }
    }

    /// Ends a connection.
    pub fn disconnect(&mut self, now: Duration, connection: Connection) {
        let Some(entry) = self.connections.get_mut(&connection.0) else { return };
        if matches!(entry.state, State::Established | State::Replied) {
            entry.state = State::Ending;
            let message = Message::Dreq(entry.remote_qp);
            self.say(now, connection.0, message, true);
        }
    }

    /// A datagram has come.
    pub fn receive(&mut self, now: Duration, from: IpAddr, mad: &[u8; MAD_LEN]) {
        let Some(datagram) = Datagram::parse(mad) else { return };
        if let Message::Req(request) = datagram.message {
            self.asked(now, from, datagram.transaction, datagram.local, request);
            return;
        }
        // Only the other side itself may say something of a connection.
        let name = datagram.remote;
        let Some(entry) = self.connections.get_mut(&name).filter(|entry| entry.peer == from) else {
            // It may be that this side has forgotten: the other one waits for an answer in vain otherwise.
            if let Message::Dreq(_) = datagram.message {
                let answer = Datagram { local: name, remote: datagram.local, message: Message::Drep, ..datagram };
                self.out.push_back((from, answer.emit()));
            }
            return;
        };
        let known = entry.remote == datagram.local;
        match (entry.state, datagram.message) {
            (State::Asking, Message::Rep(reply)) => {
                (entry.state, entry.remote, entry.remote_qp) = (State::Agreed, datagram.local, reply.qp);
                entry.last = None;
                self.events.push_back(Event::Agreed(Connection(name), reply));
            }
            // The RTU was lost.
            (State::Established, Message::Rep(_)) if known => self.say(now, name, Message::Rtu, false),
            (State::Asking | State::Replied, Message::Mra) => entry.tries = 0,
            (State::Asking | State::Replied | State::Agreed, Message::Rej(reason)) => {
                self.events.push_back(Event::Refused(Connection(name), reason));
                self.end(now, name);
            }
            (State::Replied, Message::Rtu) if known => {
                (entry.state, entry.last) = (State::Established, None);
                self.events.push_back(Event::Established(Connection(name)));
            }
            (state, Message::Dreq(_)) if known => {
                self.say(now, name, Message::Drep, false);
                if state != State::Ended {
                    self.events.push_back(Event::Ended(Connection(name)));
                    self.end(now, name);
                }
            }
            (State::Ending, Message::Drep) if known => {
                self.events.push_back(Event::Ended(Connection(name)));
                self.end(now, name);
            }
            _ => {} // late, or twice
        }
    }

    /// Does what is due.
    pub fn expire(&mut self, now: Duration) {
        let due: Vec<u32> =
            self.connections.iter().filter(|(_, entry)| entry.due <= now).map(|(name, _)| *name).collect();
        for name in due {
            let Some(entry) = self.connections.get_mut(&name) else { continue };
            match (entry.state, entry.last.take()) {
                (State::Ended, _) => {
                    self.connections.remove(&name);
                }
                (State::Asked, _) => {
                    self.events.push_back(Event::Lapsed(Connection(name)));
                    self.reject(now, Connection(name), reason::TIMEOUT);
                }
                (_, Some(message)) if entry.tries < TRIES => {
                    entry.tries += 1;
                    self.say(now, name, message, true);
                }
                (_, Some(_)) => {
                    self.events.push_back(Event::Silent(Connection(name)));
                    self.connections.remove(&name);
                }
                (_, None) => entry.due = Duration::MAX,
            }
        }
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<Duration> {
        self.connections.values().map(|entry| entry.due).min().filter(|due| *due != Duration::MAX)
    }

    /// A datagram to send.
    pub fn next_out(&mut self) -> Option<(IpAddr, [u8; MAD_LEN])> {
        self.out.pop_front()
    }

    /// What has happened.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn asked(&mut self, now: Duration, from: IpAddr, transaction: u64, remote: u32, request: Box<Request>) {
        let same = |entry: &Entry| entry.peer == from && entry.remote == remote && entry.transaction == transaction;
        if let Some((name, entry)) = self.connections.iter().find(|(_, entry)| same(entry)) {
            // Once more, because the answer was lost or is not there yet.
            let (name, again, ended) = (*name, entry.last.clone(), entry.state == State::Ended);
            if let Some(message) = again {
                self.say(now, name, message, !ended);
            }
            return;
        }
        let refused = if !self.services.contains(&request.service) {
            Some(reason::NO_SERVICE)
        } else {
            (!self.has_room()).then_some(reason::NO_RESOURCES)
        };
        if let Some(reason) = refused {
            let answer = Datagram { transaction, local: 0, remote, message: Message::Rej(reason) };
            self.out.push_back((from, answer.emit()));
            return;
        }
        let name = self.name();
        self.keep(now, name, State::Asked, from, (transaction, remote, request.qp));
        self.events.push_back(Event::Asked(Connection(name), from, request));
    }

    /// Whether there is room for one more connection, for which the oldest ended one is forgotten if need be.
    fn has_room(&mut self) -> bool {
        if self.connections.len() >= MOST {
            let ended = self.connections.iter().filter(|(_, entry)| entry.state == State::Ended);
            let Some(oldest) = ended.min_by_key(|(_, entry)| entry.due).map(|(name, _)| *name) else { return false };
            self.connections.remove(&oldest);
        }
        self.events.len() < MOST
    }

    fn keep(&mut self, now: Duration, name: u32, state: State, peer: IpAddr, of: (u64, u32, u32)) {
        let (transaction, remote, remote_qp) = of;
        let (last, tries) = (None, 0);
        let due = now + if state == State::Asked { Self::DECISION } else { AGAIN };
        self.connections.insert(name, Entry { state, peer, transaction, remote, remote_qp, last, due, tries });
    }

    /// A name that no connection has; 0 is nobody's.
    fn name(&mut self) -> u32 {
        loop {
            self.last_name = self.last_name.wrapping_add(1);
            if self.last_name != 0 && !self.connections.contains_key(&self.last_name) {
                return self.last_name;
            }
        }
    }

    fn change(&mut self, connection: Connection, from: State, to: State) -> bool {
        let entry = self.connections.get_mut(&connection.0).filter(|entry| entry.state == from);
        entry.map(|entry| entry.state = to).is_some()
    }

    /// Says something, and if that wants an answer, again until one comes.
    fn say(&mut self, now: Duration, name: u32, message: Message, until_answered: bool) {
        let Some(entry) = self.connections.get_mut(&name) else { return };
        let datagram = Datagram { transaction: entry.transaction, local: name, remote: entry.remote, message };
        self.out.push_back((entry.peer, datagram.emit()));
        if until_answered {
            (entry.last, entry.due) = (Some(datagram.message), now + AGAIN);
        }
    }

    fn end(&mut self, now: Duration, name: u32) {
        if let Some(entry) = self.connections.get_mut(&name) {
            (entry.state, entry.last, entry.due) = (State::Ended, None, now + MEMORY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{REPLY_PRIVATE, REQUEST_PRIVATE, Reads, service_id};
    use super::*;
    use crate::api::Mtu;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn request(port: u16) -> Request {
        Request {
            service: service_id(port),
            qp: 0x11,
            psn: 1,
            reads: Reads::default(),
            mtu: Mtu::B1024,
            retries: 7,
            rnr_retries: 7,
            path: [ip(1), ip(2)],
            private: [0; REQUEST_PRIVATE],
        }
    }

    fn reply() -> Reply {
        Reply { qp: 0x22, psn: 2, reads: Reads::default(), rnr_retries: 7, private: [0; REPLY_PRIVATE] }
    }

    /// An active and a passive side, and a network that loses every datagram whose turn `lost` names.
    struct Both {
        sides: [Manager; 2],
        now: Duration,
        turn: usize,
        lost: fn(usize) -> bool,
        said: Vec<Event>,
    }

    impl Both {
        fn new(lost: fn(usize) -> bool) -> Self {
            let mut sides = [Manager::new(7), Manager::new(u32::MAX)];
            sides[1].listen(service_id(7174));
            Self { sides, now: Duration::ZERO, turn: 0, lost, said: Vec::new() }
        }

        /// Runs until the sides have nothing more to say; each agrees to everything.
        fn run(&mut self, seconds: u64) {
            let end = self.now + Duration::from_secs(seconds);
            while self.now < end {
                for side in 0..2 {
                    self.sides[side].expire(self.now);
                    while let Some((_, mad)) = self.sides[side].next_out() {
                        self.turn += 1;
                        if !(self.lost)(self.turn) {
                            self.sides[1 - side].receive(self.now, ip(side as u8 + 1), &mad);
                        }
                    }
                    while let Some(event) = self.sides[side].next_event() {
                        match &event {
                            Event::Asked(connection, ..) => self.sides[side].accept(self.now, *connection, reply()),
                            Event::Agreed(connection, _) => self.sides[side].ready(self.now, *connection),
                            _ => {}
                        }
                        self.said.push(event);
                    }
                }
                self.now += Duration::from_millis(100);
            }
        }
    }

    #[test]
    fn a_connection_begins_and_ends_whatever_is_lost() {
        let cases: [fn(usize) -> bool; 7] = [
            |_| false,
            |turn| turn == 1,
            |turn| turn == 2,
            |turn| turn == 3,
            |turn| turn == 4,
            |turn| turn == 5,
            |turn| turn < 7,
        ];
        for (nth, lost) in cases.into_iter().enumerate() {
            let mut both = Both::new(lost);
            let active = both.sides[0].connect(both.now, ip(2), request(7174));
            both.run(5);
            let [Event::Asked(passive, from, _), Event::Agreed(agreed, answer), Event::Established(ready)] =
                &both.said[..]
            else {
                panic!("case {nth}: {:?}", both.said)
            };
            assert_eq!((*from, *agreed, answer.qp, ready), (ip(1), active, 0x22, passive));
            let passive = *passive;
            both.sides[0].disconnect(both.now, active);
            both.run(5);
            assert_eq!(both.said[3..], [Event::Ended(passive), Event::Ended(active)], "case {nth}");
        }
    }

    #[test]
    fn who_asks_for_a_service_that_is_not_there_is_refused() {
        let mut both = Both::new(|_| false);
        let active = both.sides[0].connect(both.now, ip(2), request(1));
        both.run(1);
        assert_eq!(both.said, [Event::Refused(active, reason::NO_SERVICE)]);
    }

    /// A passive side that is asked `count` times, by as many strangers.
    fn asked(count: u32) -> Manager {
        let mut passive = Manager::new(0);
        passive.listen(service_id(7174));
        (0..count).for_each(|stranger| ask(&mut passive, Duration::ZERO, stranger));
        passive
    }

    fn ask(passive: &mut Manager, now: Duration, stranger: u32) {
        let message = Message::Req(Box::new(request(7174)));
        let mad = Datagram { transaction: stranger.into(), local: stranger, remote: 0, message }.emit();
        passive.receive(now, ip(1), &mad);
    }

    /// What a side says, to whom.
    fn said(side: &mut Manager) -> Vec<(u32, Message)> {
        let out = std::iter::from_fn(|| side.next_out());
        out.map(|(_, mad)| Datagram::parse(&mad).unwrap()).map(|said| (said.remote, said.message)).collect()
    }

    #[test]
    fn a_refusal_that_was_lost_is_said_again_for_the_same_reason() {
        let mut passive = asked(1);
        let Some(Event::Asked(connection, ..)) = passive.next_event() else { panic!("nobody has asked") };
        passive.reject(Duration::ZERO, connection, 28);
        for seconds in 0..5 {
            assert_eq!(said(&mut passive), [(0, Message::Rej(28))]);
            ask(&mut passive, Duration::from_secs(seconds), 0);
            passive.expire(Duration::from_secs(seconds));
        }
        assert_eq!(passive.next_event(), None, "it is asked for once");
        passive.expire(MEMORY);
        assert_eq!(passive.deadline(), None, "and forgotten");
    }

    #[test]
    fn what_is_not_decided_in_time_is_refused_and_forgotten() {
        let mut passive = asked(1);
        let Some(Event::Asked(connection, ..)) = passive.next_event() else { panic!("nobody has asked") };
        passive.expire(Manager::DECISION - Duration::from_millis(1));
        assert_eq!((passive.next_event(), said(&mut passive)), (None, vec![]));
        passive.expire(Manager::DECISION);
        assert_eq!(passive.next_event(), Some(Event::Lapsed(connection)));
        assert_eq!(said(&mut passive), [(0, Message::Rej(reason::TIMEOUT))]);
        passive.accept(Manager::DECISION, connection, reply());
        assert_eq!(said(&mut passive), [], "it is too late to agree");
        passive.expire(Manager::DECISION + MEMORY);
        assert_eq!(passive.deadline(), None);
    }

    #[test]
    fn strangers_fill_the_table_only_until_they_are_refused() {
        let most = MOST as u32;
        let mut passive = asked(most);
        let events: Vec<_> = std::iter::from_fn(|| passive.next_event()).collect();
        assert_eq!(events.len(), MOST);
        ask(&mut passive, Duration::ZERO, most);
        assert_eq!(said(&mut passive), [(most, Message::Rej(reason::NO_RESOURCES))]);
        passive.expire(Manager::DECISION);
        assert_eq!(said(&mut passive).len(), MOST);
        assert_eq!(std::iter::from_fn(|| passive.next_event()).count(), MOST);
        ask(&mut passive, Manager::DECISION, most);
        assert!(matches!(passive.next_event(), Some(Event::Asked(..))), "ended ones make room");
    }

    #[test]
    fn events_that_nobody_reads_do_not_pile_up() {
        let mut passive = asked(0);
        for round in 0..10 {
            let now = round * Manager::DECISION;
            passive.expire(now);
            (0..MOST as u32).for_each(|stranger| ask(&mut passive, now, (round << 16) + stranger));
        }
        assert!(passive.events.len() <= 2 * MOST);
        assert!(passive.connections.len() <= MOST);
    }

    #[test]
    fn a_side_that_hears_nothing_gives_up_and_forgets() {
        let mut both = Both::new(|_| true);
        let active = both.sides[0].connect(both.now, ip(2), request(7174));
        both.run(20);
        assert_eq!(both.said, [Event::Silent(active)]);
        assert_eq!(both.sides[0].deadline(), None);
    }

    #[test]
    fn a_stranger_can_neither_end_nor_answer_for_a_connection() {
        let mut both = Both::new(|_| false);
        both.sides[0].connect(both.now, ip(2), request(7174));
        both.run(1);
        let said = both.said.len();
        for message in [Message::Dreq(0x11), Message::Drep, Message::Rej(28), Message::Rtu] {
            let mad = Datagram { transaction: 8, local: 0, remote: 8, message }.emit();
            both.sides[0].receive(both.now, ip(3), &mad);
            both.sides[0].receive(both.now, ip(2), &mad); // and the peer itself with a wrong name
        }
        both.run(1);
        assert_eq!(both.said.len(), said);
    }
}
