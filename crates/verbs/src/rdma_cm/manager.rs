//! Connections in the making, without I/O: datagrams and the time go in, datagrams and events come out.

use super::MAD_LEN;
use super::counts::Counts;
use super::message::{Datagram, Message, Reply, Request, reason};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
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
    /// The other side does not answer any more, or its answer to the end is not waited for any longer.
    Silent(Connection),
    /// A half-open connection has given way to a newer one. Nothing more will be said.
    Displaced(Connection),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked(_, from, _) => write!(f, "{from} asks for a connection"),
            Self::Agreed(..) => f.write_str("the other side agrees to a connection"),
            Self::Established(_) => f.write_str("the connection is made"),
            Self::Refused(_, reason) => write!(f, "the other side refuses it (reason {reason} of IBTA 12.6.7.2)"),
            Self::Lapsed(_) => f.write_str("it was not decided in time"),
            Self::Ended(_) => f.write_str("the other side has ended it"),
            Self::Silent(_) => f.write_str("the other side does not answer any more"),
            Self::Displaced(_) => f.write_str("it has given way to a newer one"),
        }
    }
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

impl State {
    /// Whether somebody has asked for it and has not proven yet, by an RTU, that the source address is theirs.
    fn is_half_open(self) -> bool {
        matches!(self, Self::Asked | Self::Replied)
    }
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
    /// When it began.
    since: Duration,
}

/// Time before a message is repeated.
const AGAIN: Duration = Duration::from_millis(400);
/// Repetitions of a REQ.
const TRIES: u32 = 20;
/// Repetitions of a REP or a DREQ, each after twice the time of the one before, 12.4 s in all. They go to an address
/// that anybody may have forged.
const FEW_TRIES: u32 = 4;
/// An ended connection is remembered for so long.
const MEMORY: Duration = Duration::from_secs(10);
/// Established connections that are kept, unless said otherwise ([`Manager::serve`]).
const ESTABLISHED: usize = 1024;
/// Connections in other states that are kept beside them: half-open ones, and ending and ended ones as far as there is
/// room.
const OTHERS: usize = 1024;
/// Half-open connections; one more displaces the oldest.
const MOST_HALF_OPEN: usize = 512;
/// The same for one source address.
const MOST_HALF_OPEN_OF_ONE: usize = 32;
/// Requests that wait for a decision. More are not answered: they come again, and who reads all datagrams before it
/// decides sees an RTU among thousands of forged REQs before its connection is displaced.
const MOST_UNDECIDED: usize = 64;
/// No half-open connection gives way before: the other side may need so long for its RTU. Who asks meanwhile is not
/// answered, and asks again.
const GRACE: Duration = Duration::from_millis(250);
/// Datagrams that wait to be sent; more are dropped and counted.
const MOST_OUT: usize = 512;

/// A connection manager. Times count from any moment, the same for all calls.
#[derive(Debug)]
pub struct Manager<S = RandomState> {
    connections: HashMap<u32, Entry>,
    /// The same by what a REQ says of them: source, the other side's name, transaction.
    requests: HashMap<(IpAddr, u32, u64), u32>,
    undecided: usize,
    /// Connections that are kept, and events that wait to be read, when somebody asks for one more.
    most: usize,
    services: Vec<u64>,
    out: VecDeque<(IpAddr, [u8; MAD_LEN])>,
    events: VecDeque<Event>,
    /// A secret key: names are its hashes of `begun`, so that nobody can guess another's.
    secret: S,
    /// Names that were tried so far.
    begun: u64,
    counts: Counts,
}

impl Manager {
    /// How long what is asked for waits for [`Self::accept`] or [`Self::reject`]; then it is refused.
    pub const DECISION: Duration = Duration::from_secs(10);

    /// Without connections. Their names (local communication IDs) are random.
    pub fn new() -> Self {
        Self::with_names(RandomState::new())
    }
}

impl Default for Manager {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: BuildHasher> Manager<S> {
    /// Without connections. `secret` makes their names of the numbers from 1 on.
    pub fn with_names(secret: S) -> Self {
        Self {
            connections: HashMap::new(),
            requests: HashMap::new(),
            undecided: 0,
            most: ESTABLISHED + OTHERS,
            services: Vec::new(),
            out: VecDeque::new(),
            events: VecDeque::new(),
            secret,
            begun: 0,
            counts: Counts::default(),
        }
    }

    /// What became of requests for connections so far.
    pub fn counts(&self) -> Counts {
        Counts { half_open: self.half_open().count() as u64, ..self.counts }
    }

    /// Keeps up to `established` established connections.
    pub fn serve(&mut self, established: usize) {
        self.most = established.saturating_add(OTHERS);
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
            *self.counts.refused(reason) += 1;
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
            self.counts.withdrawn += u64::from(entry.state == State::Replied);
            entry.state = State::Ending;
            let message = Message::Dreq(entry.remote_qp);
            self.say(now, connection.0, message, true);
        }
    }

    /// A datagram has come.
    pub fn receive(&mut self, now: Duration, from: IpAddr, mad: &[u8; MAD_LEN]) {
        let Some(datagram) = Datagram::parse(mad) else {
            self.counts.malformed += 1;
            return;
        };
        if let Message::Req(request) = datagram.message {
            return self.asked(now, from, datagram.transaction, datagram.local, request);
        }
        // Only the other side itself may say something of a connection.
        let name = datagram.remote;
        let Some(entry) = self.connections.get_mut(&name).filter(|entry| entry.peer == from) else {
            return self.stray(from, &datagram);
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
            (state @ (State::Asking | State::Replied | State::Agreed), Message::Rej(reason)) => {
                self.counts.withdrawn += u64::from(state == State::Replied);
                self.events.push_back(Event::Refused(Connection(name), reason));
                self.end(now, name);
            }
            // It gave way before the RTU came.
            (State::Established, Message::Rej(_)) if known => {
                self.events.push_back(Event::Ended(Connection(name)));
                self.end(now, name);
            }
            (State::Replied, Message::Rtu) if known => {
                (entry.state, entry.last) = (State::Established, None);
                self.counts.established += 1;
                self.events.push_back(Event::Established(Connection(name)));
            }
            (state, Message::Dreq(_)) if known => {
                self.say(now, name, Message::Drep, false);
                if state != State::Ended {
                    self.counts.withdrawn += u64::from(state.is_half_open());
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

    /// Something is said of a connection that is not there, or is another's.
    fn stray(&mut self, from: IpAddr, datagram: &Datagram) {
        self.counts.stray += 1;
        // This side may have forgotten it, or given it up to make room: the other one waits in vain otherwise.
        let answer = match datagram.message {
            Message::Dreq(_) => Message::Drep,
            Message::Rtu => Message::Rej(reason::INVALID_ID),
            _ => return,
        };
        let Datagram { transaction, local: remote, remote: local, .. } = *datagram;
        self.send(from, &Datagram { transaction, local, remote, message: answer });
    }

    /// Does what is due.
    pub fn expire(&mut self, now: Duration) {
        let due: Vec<u32> =
            self.connections.iter().filter(|(_, entry)| entry.due <= now).map(|(name, _)| *name).collect();
        for name in due {
            let Some(entry) = self.connections.get_mut(&name) else { continue };
            let most = if entry.state == State::Asking { TRIES } else { FEW_TRIES };
            match (entry.state, entry.last.take()) {
                (State::Ended, _) => self.remove(name),
                (State::Asked, _) => {
                    self.events.push_back(Event::Lapsed(Connection(name)));
                    self.reject(now, Connection(name), reason::TIMEOUT);
                }
                (_, Some(message)) if entry.tries < most => {
                    entry.tries += 1;
                    self.say(now, name, message, true);
                }
                (state, Some(_)) => {
                    self.counts.unconfirmed += u64::from(state == State::Replied);
                    self.events.push_back(Event::Silent(Connection(name)));
                    self.remove(name);
                }
                (_, None) => entry.due = Duration::MAX,
            }
        }
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<Duration> {
        self.connections.values().map(|entry| entry.due).min().filter(|due| *due != Duration::MAX)
    }

    /// The datagram that [`Self::next_out`] gives next.
    pub fn peek_out(&self) -> Option<&(IpAddr, [u8; MAD_LEN])> {
        self.out.front()
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
        let known = self.requests.get(&(from, remote, transaction)).copied();
        if let Some((name, entry)) = known.and_then(|name| Some((name, self.connections.get(&name)?))) {
            // Once more, because the answer was lost or is not there yet. It extends no timeout: a request that is
            // repeated for ever would keep its connection for ever.
            if let Some(message) = entry.last.clone() {
                self.say(now, name, message, false);
            }
            return;
        }
        self.counts.asked += 1;
        let in_the_way = self.in_the_way(from);
        let is_young =
            in_the_way.and_then(|name| self.connections.get(&name)).is_some_and(|old| now < old.since + GRACE);
        if self.undecided >= MOST_UNDECIDED || is_young {
            self.counts.unanswered += 1;
            return;
        }
        let refused = if !self.services.contains(&request.service) {
            Some(reason::NO_SERVICE)
        } else {
            (!self.make_room(in_the_way)).then_some(reason::NO_RESOURCES)
        };
        if let Some(reason) = refused {
            *self.counts.refused(reason) += 1;
            return self.send(from, &Datagram { transaction, local: 0, remote, message: Message::Rej(reason) });
        }
        let name = self.name();
        self.keep(now, name, State::Asked, from, (transaction, remote, request.qp));
        self.requests.insert((from, remote, transaction), name);
        self.undecided += 1;
        self.events.push_back(Event::Asked(Connection(name), from, request));
    }

    fn half_open(&self) -> impl Iterator<Item = (&u32, &Entry)> + Clone {
        self.connections.iter().filter(|(_, entry)| entry.state.is_half_open())
    }

    /// The half-open connection that gives way to one more of this source: the oldest.
    fn in_the_way(&self, from: IpAddr) -> Option<u32> {
        let of_one = self.half_open().filter(|(_, entry)| entry.peer == from);
        oldest(of_one, MOST_HALF_OPEN_OF_ONE).or_else(|| oldest(self.half_open(), MOST_HALF_OPEN))
    }

    /// Makes room for one more connection; whether there is any. The oldest ended one is forgotten if need be, else the
    /// oldest that this side has said the end of: a DREQ may never be answered, and one that comes later is (`stray`).
    fn make_room(&mut self, in_the_way: Option<u32>) -> bool {
        if let Some(name) = in_the_way {
            self.counts.displaced += 1;
            self.remove(name);
            self.events.push_back(Event::Displaced(Connection(name)));
        }
        if self.connections.len() >= self.most {
            let of = |state| self.connections.iter().filter(move |(_, entry)| entry.state == state);
            if let Some(name) = oldest(of(State::Ended), 1) {
                self.remove(name);
            } else if let Some(name) = oldest(of(State::Ending), 1) {
                self.remove(name);
                self.events.push_back(Event::Silent(Connection(name)));
            } else {
                return false;
            }
        }
        self.events.len() < self.most
    }

    fn remove(&mut self, name: u32) {
        let Some(entry) = self.connections.remove(&name) else { return };
        self.undecided -= usize::from(entry.state == State::Asked);
        let request = (entry.peer, entry.remote, entry.transaction);
        if self.requests.get(&request) == Some(&name) {
            self.requests.remove(&request);
        }
    }

    fn keep(&mut self, now: Duration, name: u32, state: State, peer: IpAddr, of: (u64, u32, u32)) {
        let (transaction, remote, remote_qp) = of;
        let (last, tries) = (None, 0);
        let due = now + if state == State::Asked { Manager::DECISION } else { AGAIN };
        self.connections
            .insert(name, Entry { state, peer, transaction, remote, remote_qp, last, due, tries, since: now });
    }

    /// A name that no connection has; 0 is nobody's.
    fn name(&mut self) -> u32 {
        loop {
            self.begun += 1;
            let name = self.secret.hash_one(self.begun) as u32;
            if name != 0 && !self.connections.contains_key(&name) {
                return name;
            }
        }
    }

    fn change(&mut self, connection: Connection, from: State, to: State) -> bool {
        let entry = self.connections.get_mut(&connection.0).filter(|entry| entry.state == from);
        self.undecided -= usize::from(entry.is_some() && from == State::Asked);
        entry.map(|entry| entry.state = to).is_some()
    }

    /// Says something, and if that wants an answer, again until one comes.
    fn say(&mut self, now: Duration, name: u32, message: Message, until_answered: bool) {
        let Some(entry) = self.connections.get_mut(&name) else { return };
        let (peer, transaction) = (entry.peer, entry.transaction);
        let datagram = Datagram { transaction, local: name, remote: entry.remote, message };
        if until_answered {
            let again = if entry.state == State::Asking { AGAIN } else { AGAIN * (1 << entry.tries) };
            (entry.last, entry.due) = (Some(datagram.message.clone()), now + again);
        }
        self.send(peer, &datagram);
    }

    /// What there is no room for is as good as lost on the way.
    fn send(&mut self, to: IpAddr, datagram: &Datagram) {
        if self.out.len() < MOST_OUT {
            self.out.push_back((to, datagram.emit()));
        } else {
            self.counts.unsent += 1;
        }
    }

    fn end(&mut self, now: Duration, name: u32) {
        if let Some(entry) = self.connections.get_mut(&name) {
            self.undecided -= usize::from(entry.state == State::Asked);
            (entry.state, entry.last, entry.due) = (State::Ended, None, now + MEMORY);
        }
    }
}

/// The oldest of these connections, if there are so many.
fn oldest<'a>(all: impl Iterator<Item = (&'a u32, &'a Entry)> + Clone, most: usize) -> Option<u32> {
    let full = all.clone().count() >= most;
    all.min_by_key(|(_, entry)| entry.since).filter(|_| full).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests;
