//! Connection establishment as a state machine without I/O: datagrams and the time are inputs, datagrams and events are
//! outputs.

use super::MAD_LEN;
use super::counters::CmCounters;
use super::message::{Datagram, Message, Reply, Request, reason};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

/// Local communication ID of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Connection(u32);

/// Event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer requests a connection: accept or reject it within [`Manager::DECISION_TIMEOUT`].
    Requested(Connection, IpAddr, Box<Request>),
    /// The peer accepts the connection: bring the queue pair to `ReadyToSend`, then call [`Manager::ready`].
    Accepted(Connection, Box<Reply>),
    /// The peer's queue pair is ready (RTU received).
    Established(Connection),
    /// The peer rejects the connection, with a [`reason`].
    Rejected(Connection, u16),
    /// The application neither accepted nor rejected the request in time, so it was rejected ([`reason::TIMEOUT`]).
    DecisionTimedOut(Connection),
    /// The peer disconnects, or has confirmed the disconnection. No further events follow.
    Disconnected(Connection),
    /// The peer did not answer any retransmission, or a new connection needed the space of one that waits for its DREP.
    /// No further events follow.
    Unreachable(Connection),
    /// A half-open connection was displaced by a newer one. No further events follow.
    Displaced(Connection),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested(_, from, _) => write!(f, "{from} requests a connection"),
            Self::Accepted(..) => f.write_str("the peer has accepted the connection"),
            Self::Established(_) => f.write_str("the connection is established"),
            Self::Rejected(_, reason) => {
                write!(f, "the peer has rejected the connection (reason {reason} of IBTA 12.6.7.2)")
            }
            Self::DecisionTimedOut(_) => {
                f.write_str("the connection request was rejected: the application did not accept it in time")
            }
            Self::Disconnected(_) => f.write_str("the peer has disconnected"),
            Self::Unreachable(_) => f.write_str("the peer does not respond"),
            Self::Displaced(_) => f.write_str("the half-open connection was displaced by a newer one"),
        }
    }
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// REQ sent; waiting for the REP.
    ReqSent,
    /// REP received; the application has not called [`Manager::ready`].
    RepReceived,
    /// REQ received; the application has neither accepted nor rejected it.
    ReqReceived,
    /// REP sent; waiting for the RTU.
    RepSent,
    Established,
    /// DREQ sent; waiting for the DREP.
    DreqSent,
    /// Ended; kept for a while to answer duplicates (IBTA: TimeWait).
    Disconnected,
}

impl State {
    /// Returns `true` if the peer has requested the connection and has not proven, by an RTU, that the source
    /// address is its own.
    fn is_half_open(self) -> bool {
        matches!(self, Self::ReqReceived | Self::RepSent)
    }
}

#[derive(Debug)]
struct Entry {
    state: State,
    peer: IpAddr,
    transaction: u64,
    /// Remote communication ID.
    remote: u32,
    /// Remote queue pair.
    remote_qp: u32,
    /// Last message, for retransmission until it is answered or, if the connection has ended, when the request is
    /// repeated. `None` if it need not be retransmitted.
    last_message: Option<Message>,
    /// Time of the next retransmission, timeout or removal.
    timer: Duration,
    /// Retransmissions of `last_message`.
    retries: u32,
    /// Time of creation.
    created_at: Duration,
}

/// Initial retransmission interval.
const RETRY_INTERVAL: Duration = Duration::from_millis(400);
/// Maximum retransmissions of a REQ.
const MAX_REQ_RETRIES: u32 = 20;
/// Maximum retransmissions of a REP or DREQ, each after twice the previous interval, 12.4 s in all. They go to an
/// address that an attacker may have forged.
const MAX_REP_RETRIES: u32 = 4;
/// Time for which an ended connection is kept, to answer duplicates.
const ENDED_LIFETIME: Duration = Duration::from_secs(10);
/// Default limit of established connections ([`Manager::set_max_established`]).
const DEFAULT_ESTABLISHED: usize = 1024;
/// Limit of connections in other states: half-open ones, and disconnecting and ended ones as far as there is space.
const MAX_OTHERS: usize = 1024;
/// Limit of half-open connections; one more displaces the oldest.
const MAX_HALF_OPEN: usize = 512;
/// Limit of half-open connections per source address.
const MAX_HALF_OPEN_PER_SOURCE: usize = 32;
/// Limit of undecided requests. More are not answered, because they are retransmitted: a caller that reads all
/// datagrams before it decides finds an RTU among thousands of forged REQs before its connection is displaced.
const MAX_UNDECIDED: usize = 64;
/// Minimum lifetime of a half-open connection before it can be displaced, to give the peer time for its RTU. Requests
/// in the meantime are not answered and are retransmitted.
const GRACE: Duration = Duration::from_millis(250);
/// Limit of pending output datagrams; more are dropped and counted.
const MAX_OUT: usize = 512;

/// A connection manager. The origin of all times is arbitrary but must be the same for all calls.
///
/// 1. [`Self::listen`] or [`Self::connect`].
/// 2. [`Self::receive`] for each datagram, and [`Self::expire`] at [`Self::deadline`].
/// 3. After each of these calls, [`Self::next_out`] and [`Self::next_event`] until they return `None`. Answer
///    [`Event::Requested`] by [`Self::accept`] or [`Self::reject`], and [`Event::Accepted`] by [`Self::ready`].
/// 4. [`Self::disconnect`]; continue until [`Event::Disconnected`] or [`Event::Unreachable`].
#[derive(Debug)]
pub struct Manager<S = RandomState> {
    connections: HashMap<u32, Entry>,
    /// Connection of each REQ, by source address, remote communication ID and transaction.
    requests: HashMap<(IpAddr, u32, u64), u32>,
    /// Number of connections in state [`State::ReqReceived`].
    undecided: usize,
    /// Limit of connections, and of unread events, at which new requests are rejected.
    max_connections: usize,
    /// IDs of the services that it listens for.
    services: Vec<u64>,
    out: VecDeque<(IpAddr, [u8; MAD_LEN])>,
    events: VecDeque<Event>,
    /// Secret hash key: IDs are hashes of `ids_tried`, so that they cannot be guessed from each other.
    secret: S,
    /// Number of IDs tried so far.
    ids_tried: u64,
    counters: CmCounters,
}

impl Manager {
    /// Time that a request waits for [`Self::accept`] or [`Self::reject`] before it is rejected.
    pub const DECISION_TIMEOUT: Duration = Duration::from_secs(10);

    /// Creates a manager. Local communication IDs are random.
    pub fn new() -> Self {
        Self::with_hasher(RandomState::new())
    }
}

impl Default for Manager {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: BuildHasher> Manager<S> {
    /// Creates a manager whose local communication IDs are hashes of the numbers from 1 on.
    pub fn with_hasher(secret: S) -> Self {
        Self {
            connections: HashMap::new(),
            requests: HashMap::new(),
            undecided: 0,
            max_connections: DEFAULT_ESTABLISHED + MAX_OTHERS,
            services: Vec::new(),
            out: VecDeque::new(),
            events: VecDeque::new(),
            secret,
            ids_tried: 0,
            counters: CmCounters::default(),
        }
    }

    /// Returns the counters of connection requests.
    pub fn counters(&self) -> CmCounters {
        CmCounters { half_open: self.half_open().count() as u64, ..self.counters }
    }

    /// Sets the maximum number of established connections.
    pub fn set_max_established(&mut self, established: usize) {
        self.max_connections = established.saturating_add(MAX_OTHERS);
    }

    /// Accepts requests for a service ([`super::message::service_id`]).
    pub fn listen(&mut self, service: u64) {
        self.services.push(service);
    }

    /// Requests a connection: sends a REQ until it is answered. [`Event::Accepted`], [`Event::Rejected`] or
    /// [`Event::Unreachable`] follows.
    pub fn connect(&mut self, now: Duration, peer: IpAddr, request: Request) -> Connection {
        let id = self.new_id();
        let transaction = u64::from(id);
        let message = Message::Req(Box::new(request));
        self.insert(now, id, State::ReqSent, peer, (transaction, 0, 0));
        self.send_message(now, id, message, true);
        Connection(id)
    }

    /// Accepts a request, unless it has timed out. The queue pair must be in `ReadyToReceive`. [`Event::Established`]
    /// or an event that ends the connection follows.
    pub fn accept(&mut self, now: Duration, connection: Connection, reply: Reply) {
        if self.change(connection, State::ReqReceived, State::RepSent) {
            self.send_message(now, connection.0, Message::Rep(Box::new(reply)), true);
        }
    }

    /// Rejects a request, for a [`reason`].
    pub fn reject(&mut self, now: Duration, connection: Connection, reason: u16) {
        if self.change(connection, State::ReqReceived, State::Disconnected) {
            *self.counters.rejections(reason) += 1;
            // If the REJ is lost, the REQ is retransmitted and answered by it again.
            self.send_message(now, connection.0, Message::Rej(reason), true);
            if let Some(entry) = self.connections.get_mut(&connection.0) {
                entry.timer = now + ENDED_LIFETIME;
            }
        }
    }

    /// Confirms an accepted connection by an RTU. The queue pair must be in `ReadyToSend`.
    pub fn ready(&mut self, now: Duration, connection: Connection) {
        if self.change(connection, State::RepReceived, State::Established) {
            self.send_message(now, connection.0, Message::Rtu, false);
        }
    }

    /// Disconnects an established connection, or one whose RTU is outstanding; others are unchanged.
    pub fn disconnect(&mut self, now: Duration, connection: Connection) {
        let Some(entry) = self.connections.get_mut(&connection.0) else { return };
        if matches!(entry.state, State::Established | State::RepSent) {
            self.counters.withdrawn += u64::from(entry.state == State::RepSent);
            entry.state = State::DreqSent;
            let message = Message::Dreq(entry.remote_qp);
            self.send_message(now, connection.0, message, true);
        }
    }

    /// Processes a received datagram.
    pub fn receive(&mut self, now: Duration, source: IpAddr, mad: &[u8; MAD_LEN]) {
        let Some(datagram) = Datagram::parse(mad) else {
            self.counters.malformed += 1;
            return;
        };
        if let Message::Req(request) = datagram.message {
            return self.receive_request(now, source, datagram.transaction, datagram.local, request);
        }
        // Only the peer of the connection may send messages for it.
        let id = datagram.remote;
        let Some(entry) = self.connections.get_mut(&id).filter(|entry| entry.peer == source) else {
            return self.stray(source, &datagram);
        };
        let known = entry.remote == datagram.local;
        match (entry.state, datagram.message) {
            (State::ReqSent, Message::Rep(reply)) => {
                (entry.state, entry.remote, entry.remote_qp) = (State::RepReceived, datagram.local, reply.qp);
                entry.last_message = None;
                self.events.push_back(Event::Accepted(Connection(id), reply));
            }
            // The RTU was lost.
            (State::Established, Message::Rep(_)) if known => self.send_message(now, id, Message::Rtu, false),
            (State::ReqSent | State::RepSent, Message::Mra) => entry.retries = 0,
            (state @ (State::ReqSent | State::RepSent | State::RepReceived), Message::Rej(reason)) => {
                self.counters.withdrawn += u64::from(state == State::RepSent);
                self.events.push_back(Event::Rejected(Connection(id), reason));
                self.end(now, id);
            }
            // The peer displaced it before the RTU arrived.
            (State::Established, Message::Rej(_)) if known => {
                self.events.push_back(Event::Disconnected(Connection(id)));
                self.end(now, id);
            }
            (State::RepSent, Message::Rtu) if known => {
                (entry.state, entry.last_message) = (State::Established, None);
                self.counters.established += 1;
                self.events.push_back(Event::Established(Connection(id)));
            }
            (state, Message::Dreq(_)) if known => {
                self.send_message(now, id, Message::Drep, false);
                if state != State::Disconnected {
                    self.counters.withdrawn += u64::from(state.is_half_open());
                    self.events.push_back(Event::Disconnected(Connection(id)));
                    self.end(now, id);
                }
            }
            (State::DreqSent, Message::Drep) if known => {
                self.events.push_back(Event::Disconnected(Connection(id)));
                self.end(now, id);
            }
            _ => {} // late or duplicate
        }
    }

    /// Handles a message of an unknown connection, or from the wrong address.
    fn stray(&mut self, source: IpAddr, datagram: &Datagram) {
        self.counters.stray += 1;
        // This side may have removed or displaced the connection: without an answer the peer would wait for its
        // timeout.
        let answer = match datagram.message {
            Message::Dreq(_) => Message::Drep,
            Message::Rtu => Message::Rej(reason::INVALID_ID),
            _ => return,
        };
        let Datagram { transaction, local: remote, remote: local, .. } = *datagram;
        self.send(source, &Datagram { transaction, local, remote, message: answer });
    }

    /// Handles expired timers: retransmits messages, and ends connections.
    pub fn expire(&mut self, now: Duration) {
        let expired: Vec<u32> =
            self.connections.iter().filter(|(_, entry)| entry.timer <= now).map(|(id, _)| *id).collect();
        for id in expired {
            let Some(entry) = self.connections.get_mut(&id) else { continue };
            let max_retries = if entry.state == State::ReqSent { MAX_REQ_RETRIES } else { MAX_REP_RETRIES };
            match (entry.state, entry.last_message.take()) {
                (State::Disconnected, _) => self.remove(id),
                (State::ReqReceived, _) => {
                    self.events.push_back(Event::DecisionTimedOut(Connection(id)));
                    self.reject(now, Connection(id), reason::TIMEOUT);
                }
                (_, Some(message)) if entry.retries < max_retries => {
                    entry.retries += 1;
                    self.send_message(now, id, message, true);
                }
                (state, Some(_)) => {
                    self.counters.unconfirmed += u64::from(state == State::RepSent);
                    self.events.push_back(Event::Unreachable(Connection(id)));
                    self.remove(id);
                }
                (_, None) => entry.timer = Duration::MAX,
            }
        }
    }

    /// Returns the time at which [`Self::expire`] must be called; `None` if no timer is running.
    pub fn deadline(&self) -> Option<Duration> {
        self.connections.values().map(|entry| entry.timer).min().filter(|deadline| *deadline != Duration::MAX)
    }

    /// Returns the datagram that [`Self::next_out`] returns next, without removing it.
    pub fn peek_out(&self) -> Option<&(IpAddr, [u8; MAD_LEN])> {
        self.out.front()
    }

    /// Removes and returns the next datagram to send, with its destination.
    pub fn next_out(&mut self) -> Option<(IpAddr, [u8; MAD_LEN])> {
        self.out.pop_front()
    }

    /// Removes and returns the next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn receive_request(&mut self, now: Duration, source: IpAddr, transaction: u64, remote: u32, request: Box<Request>) {
        let known = self.requests.get(&(source, remote, transaction)).copied();
        if let Some((id, entry)) = known.and_then(|id| Some((id, self.connections.get(&id)?))) {
            // A retransmission, because the answer was lost or is still pending. It does not extend a timeout:
            // otherwise a request that is retransmitted forever would keep its connection forever.
            if let Some(message) = entry.last_message.clone() {
                self.send_message(now, id, message, false);
            }
            return;
        }
        self.counters.requests += 1;
        let to_displace = self.to_displace(source);
        let is_young =
            to_displace.and_then(|id| self.connections.get(&id)).is_some_and(|old| now < old.created_at + GRACE);
        if self.undecided >= MAX_UNDECIDED || is_young {
            self.counters.unanswered += 1;
            return;
        }
        let rejection = if !self.services.contains(&request.service) {
            Some(reason::NO_SERVICE)
        } else {
            (!self.make_space(to_displace)).then_some(reason::NO_RESOURCES)
        };
        if let Some(reason) = rejection {
            *self.counters.rejections(reason) += 1;
            return self.send(source, &Datagram { transaction, local: 0, remote, message: Message::Rej(reason) });
        }
        let id = self.new_id();
        self.insert(now, id, State::ReqReceived, source, (transaction, remote, request.qp));
        self.requests.insert((source, remote, transaction), id);
        self.undecided += 1;
        self.events.push_back(Event::Requested(Connection(id), source, request));
    }

    fn half_open(&self) -> impl Iterator<Item = (&u32, &Entry)> + Clone {
        self.connections.iter().filter(|(_, entry)| entry.state.is_half_open())
    }

    /// Returns the half-open connection that a new one from this source displaces: the oldest one of this source, if
    /// the source has reached its limit; else the oldest one of all, if the total limit is reached.
    fn to_displace(&self, source: IpAddr) -> Option<u32> {
        let of_source = self.half_open().filter(|(_, entry)| entry.peer == source);
        oldest(of_source, MAX_HALF_OPEN_PER_SOURCE).or_else(|| oldest(self.half_open(), MAX_HALF_OPEN))
    }

    /// Makes space for one more connection. Returns `false` if there is none. If necessary, the oldest ended one is
    /// removed, or else the oldest one with a DREQ sent: the DREQ may never be answered, and a later DREQ of the peer
    /// is answered as a stray.
    fn make_space(&mut self, to_displace: Option<u32>) -> bool {
        if let Some(id) = to_displace {
            self.counters.displaced += 1;
            self.remove(id);
            self.events.push_back(Event::Displaced(Connection(id)));
        }
        if self.connections.len() >= self.max_connections {
            let of = |state| self.connections.iter().filter(move |(_, entry)| entry.state == state);
            if let Some(id) = oldest(of(State::Disconnected), 1) {
                self.remove(id);
            } else if let Some(id) = oldest(of(State::DreqSent), 1) {
                self.remove(id);
                self.events.push_back(Event::Unreachable(Connection(id)));
            } else {
                return false;
            }
        }
        self.events.len() < self.max_connections
    }

    fn remove(&mut self, id: u32) {
        let Some(entry) = self.connections.remove(&id) else { return };
        self.undecided -= usize::from(entry.state == State::ReqReceived);
        let request = (entry.peer, entry.remote, entry.transaction);
        if self.requests.get(&request) == Some(&id) {
            self.requests.remove(&request);
        }
    }

    fn insert(&mut self, now: Duration, id: u32, state: State, peer: IpAddr, ids: (u64, u32, u32)) {
        let (transaction, remote, remote_qp) = ids;
        let (last_message, retries) = (None, 0);
        let timer = now + if state == State::ReqReceived { Manager::DECISION_TIMEOUT } else { RETRY_INTERVAL };
        self.connections.insert(
            id,
            Entry { state, peer, transaction, remote, remote_qp, last_message, timer, retries, created_at: now },
        );
    }

    /// Returns an unused local communication ID, never 0.
    fn new_id(&mut self) -> u32 {
        loop {
            self.ids_tried += 1;
            let id = self.secret.hash_one(self.ids_tried) as u32;
            if id != 0 && !self.connections.contains_key(&id) {
                return id;
            }
        }
    }

    /// Changes the state of a connection that is in state `from`. Returns `false` if it is in another state.
    fn change(&mut self, connection: Connection, from: State, to: State) -> bool {
        let entry = self.connections.get_mut(&connection.0).filter(|entry| entry.state == from);
        self.undecided -= usize::from(entry.is_some() && from == State::ReqReceived);
        entry.map(|entry| entry.state = to).is_some()
    }

    /// Sends a message, and schedules its retransmission if `until_answered`.
    fn send_message(&mut self, now: Duration, id: u32, message: Message, until_answered: bool) {
        let Some(entry) = self.connections.get_mut(&id) else { return };
        let (peer, transaction) = (entry.peer, entry.transaction);
        let datagram = Datagram { transaction, local: id, remote: entry.remote, message };
        if until_answered {
            let interval =
                if entry.state == State::ReqSent { RETRY_INTERVAL } else { RETRY_INTERVAL * (1 << entry.retries) };
            (entry.last_message, entry.timer) = (Some(datagram.message.clone()), now + interval);
        }
        self.send(peer, &datagram);
    }

    /// Queues a datagram. If the queue is full, it counts as lost in the network.
    fn send(&mut self, to: IpAddr, datagram: &Datagram) {
        if self.out.len() < MAX_OUT {
            self.out.push_back((to, datagram.emit()));
        } else {
            self.counters.unsent += 1;
        }
    }

    fn end(&mut self, now: Duration, id: u32) {
        if let Some(entry) = self.connections.get_mut(&id) {
            self.undecided -= usize::from(entry.state == State::ReqReceived);
            (entry.state, entry.last_message, entry.timer) = (State::Disconnected, None, now + ENDED_LIFETIME);
        }
    }
}

/// Returns the oldest of these connections, if there are at least `limit` of them.
fn oldest<'a>(all: impl Iterator<Item = (&'a u32, &'a Entry)> + Clone, limit: usize) -> Option<u32> {
    let full = all.clone().count() >= limit;
    all.min_by_key(|(_, entry)| entry.created_at).filter(|_| full).map(|(id, _)| *id)
}

#[cfg(test)]
mod tests;
