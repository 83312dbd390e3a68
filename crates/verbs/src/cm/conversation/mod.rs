//! Target side of one control connection, as a state machine without I/O or clock.

#[cfg(test)]
pub(super) mod tests;

use super::Token;
use super::message::{
    self, Accept, Answer, Cause, LinksFrom, MAX_HELLO_BYTES, MAX_MESSAGE_BYTES, Malformed, Offer, Refusal, Regions,
    Request, RoleAssignment, Statistics, VERSION, Welcome, framed, parse, unframed,
};
use crate::engine::Nanos;
use crate::spacefibre::LinksStatus;
use rustix::fd::OwnedFd;
use shotline_transport::fd_passing;
use std::net::IpAddr;

/// Identifies a control connection; never reused.
pub type SessionId = u64;

/// Resources that control connections operate on. No method has a default, so that a wrapper of another host forwards
/// each one.
pub trait Host {
    /// Returns the description of the target.
    fn welcome(&mut self) -> Welcome;
    /// Returns the exported regions.
    fn regions(&mut self) -> Regions;
    /// Connects a queue pair for an initiator at `peer` (`None`: on this machine, not by IP).
    ///
    /// # Errors
    /// [`Cause::Unsupported`] if the target does not support the offer, [`Cause::Limit`] if it would exceed a limit,
    /// [`Cause::Failed`] if the provider fails.
    fn connect(&mut self, session: SessionId, peer: Option<IpAddr>, offer: &Offer) -> Result<Accept, Refusal>;
    /// Establishes a shared-memory link with an initiator's process over a socket that it has passed.
    ///
    /// # Errors
    /// [`Cause::Unsupported`] if the target does not support shared memory.
    fn link(&mut self, session: SessionId, socket: OwnedFd) -> Result<(), Refusal>;
    /// Starts a role in a measurement.
    ///
    /// # Errors
    /// [`Cause::Unsupported`] if the target serves memory only.
    fn start_role(&mut self, session: SessionId, assignment: &RoleAssignment) -> Result<(), Refusal>;
    /// Destroys the queue pair with this number, if it belongs to the session.
    ///
    /// # Errors
    /// [`Cause::Unknown`] if the session has no such queue pair.
    fn disconnect(&mut self, session: SessionId, qp: u32) -> Result<(), Refusal>;
    /// Returns the state of the target and of the session's queue pairs.
    fn statistics(&mut self, session: SessionId) -> Statistics;
    /// Returns the status of the target's SpaceFibre links from the one with index `first` on, at most
    /// [`MAX_LINKS`](message::MAX_LINKS).
    ///
    /// # Errors
    /// [`Cause::Unsupported`] if the target's provider has no links.
    fn links(&mut self, first: u32) -> Result<LinksStatus, Refusal>;
    /// Destroys the resources of an initiator that has disconnected. Called once for every session that was welcomed.
    fn session_ended(&mut self, session: SessionId);
}

/// Counters of control connections. Every accepted connection ends up welcomed, refused or lost, exactly once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ControlCounters {
    /// Connections accepted.
    pub accepted: u64,
    /// Initiators that presented the token.
    pub welcomed: u64,
    /// Connections refused for a wrong token.
    pub wrong_token: u64,
    /// Connections refused for a different protocol version.
    pub wrong_version: u64,
    /// Connections whose first message was not a valid hello.
    pub malformed: u64,
    /// Unauthenticated connections that sent nothing in time, or too slowly.
    pub slow: u64,
    /// Unauthenticated connections displaced by newer ones.
    pub displaced: u64,
    /// Unauthenticated connections closed by the peer.
    pub closed_by_peer: u64,
    /// Connections closed immediately because the limit was reached.
    pub full: u64,
}

/// Timeouts and delays of a control connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// Timeout for the first message, for a whole message once it has begun, and for reading an answer.
    pub message: Nanos,
    /// Delay before a wrong token is answered.
    pub wrong_token: Nanos,
}

/// Average time between two answers about links on one connection, and the number that may be early.
const LINKS_INTERVAL: Nanos = 10_000_000;
const LINKS_BURST: Nanos = 100;

/// State of the connection after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It stays open.
    Open,
    /// It must be closed.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The token has not been presented.
    Unauthenticated,
    /// The token has been presented.
    Authenticated,
    /// A refusal is sent at this time; then the connection is closed.
    Refused { send_at: Nanos },
    /// The remaining output is sent before the connection is closed.
    Ending,
    /// The connection must be closed.
    Over,
}

/// Target side of a control connection.
#[derive(Debug)]
pub struct Conversation {
    id: SessionId,
    peer: Option<IpAddr>,
    state: State,
    welcomed: bool,
    input: Vec<u8>,
    output: Vec<u8>,
    /// The last socket that the initiator has passed.
    socket: Option<OwnedFd>,
    /// Time up to which answers about links are accounted for, each with [`LINKS_INTERVAL`].
    links_until: Nanos,
    /// Start of the current timeout: for a message, or for the peer to read an answer.
    since: Nanos,
}

impl Conversation {
    /// Creates the state of a new connection from `peer`, whose first message must be hello.
    pub fn new(id: SessionId, peer: Option<IpAddr>, now: Nanos) -> Self {
        let state = State::Unauthenticated;
        Self {
            id,
            peer,
            state,
            welcomed: false,
            input: Vec::new(),
            output: Vec::new(),
            socket: None,
            links_until: 0,
            since: now,
        }
    }

    /// Returns the session id.
    pub fn id(&self) -> SessionId {
        self.id
    }
    /// Returns `true` if the initiator has presented the token and its session has not ended.
    pub fn is_welcomed(&self) -> bool {
        self.welcomed
    }
    /// Returns `true` if the token has not been presented and the connection is not refused.
    pub fn is_unauthenticated(&self) -> bool {
        self.state == State::Unauthenticated
    }
    /// Returns `true` if more input can be processed: not before the last answer has been sent.
    pub fn accepts_input(&self) -> bool {
        self.output.is_empty() && matches!(self.state, State::Unauthenticated | State::Authenticated)
    }
    /// Returns `true` if a whole request is buffered and not processed.
    pub(super) fn has_request(&self) -> bool {
        self.accepts_input() && message::is_whole(&self.input)
    }
    /// Returns the output to send now.
    pub fn output(&self, now: Nanos) -> &[u8] {
        match self.state {
            State::Refused { send_at } if now < send_at => &[],
            _ => &self.output,
        }
    }
    /// Removes sent bytes from the output.
    pub fn sent(&mut self, bytes: usize, now: Nanos) -> Progress {
        self.output.drain(..bytes.min(self.output.len()));
        self.since = now;
        if self.output.is_empty() && matches!(self.state, State::Ending | State::Refused { .. }) {
            self.state = State::Over;
        }
        self.progress()
    }

    /// Returns when [`Self::expire`] must be called. `None`: an authenticated initiator may be idle without limit.
    pub(super) fn deadline(&self, timeouts: &Timeouts) -> Option<Nanos> {
        match self.state {
            State::Refused { send_at } if self.since <= send_at => Some(send_at),
            State::Authenticated if self.input.is_empty() && self.output.is_empty() => None,
            _ => Some(self.since.saturating_add(timeouts.message)),
        }
    }

    /// Closes the connection if a timeout has expired.
    pub(super) fn expire(&mut self, now: Nanos, timeouts: &Timeouts, counters: &mut ControlCounters) -> Progress {
        match self.state {
            // The delay of the refusal is over: the peer must read it now.
            State::Refused { send_at } if self.since <= send_at && now >= send_at => self.since = now.max(send_at + 1),
            _ if self.deadline(timeouts).is_some_and(|deadline| now >= deadline) => {
                if self.state == State::Unauthenticated {
                    counters.slow += 1;
                }
                self.state = State::Over;
            }
            _ => {}
        }
        self.progress()
    }

    /// Stores a socket that was passed with the input.
    pub(super) fn pass_socket(&mut self, socket: OwnedFd) {
        fd_passing::discard(self.socket.replace(socket).into_iter().collect());
    }

    /// Processes received bytes.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        now: Nanos,
        token: &Token,
        timeouts: &Timeouts,
        counters: &mut ControlCounters,
        host: &mut impl Host,
    ) -> Progress {
        if self.input.is_empty() && self.output.is_empty() && self.state == State::Authenticated {
            self.since = now;
        }
        self.input.extend_from_slice(bytes);
        while self.accepts_input() {
            let max = if self.welcomed { MAX_MESSAGE_BYTES } else { MAX_HELLO_BYTES };
            match unframed(&mut self.input, max) {
                Ok(None) => break,
                Ok(Some(message)) if self.welcomed => {
                    let answer = self.answer(&message, now, host);
                    self.output = framed(&answer);
                    self.since = now;
                }
                Ok(Some(message)) => self.receive_hello(&message, now, token, timeouts, counters, host),
                Err(error) if self.welcomed => self.end(Refusal::new(Cause::Message, error.to_string()), now),
                Err(_) => self.refuse_token(now, timeouts, counters, |counters| &mut counters.malformed),
            }
        }
        self.progress()
    }

    /// Processes the first message. A refused peer learns only that it was refused, and after a delay, which limits the
    /// rate of guesses.
    fn receive_hello(
        &mut self,
        message: &[u8],
        now: Nanos,
        token: &Token,
        timeouts: &Timeouts,
        counters: &mut ControlCounters,
        host: &mut impl Host,
    ) {
        match parse::<Request>(message) {
            Ok(Request::Hello(hello)) if !token.matches(&hello.token) => {
                self.refuse_token(now, timeouts, counters, |counters| &mut counters.wrong_token);
            }
            Ok(Request::Hello(hello)) if hello.version != VERSION => {
                counters.wrong_version += 1;
                let words = format!("this target supports protocol version {VERSION}, not {}", hello.version);
                self.end(Refusal::new(Cause::Version, words), now);
            }
            Ok(Request::Hello(_)) => {
                counters.welcomed += 1;
                (self.welcomed, self.state, self.since) = (true, State::Authenticated, now);
                self.output = framed(&Answer::Welcome(host.welcome()));
            }
            _ => self.refuse_token(now, timeouts, counters, |counters| &mut counters.malformed),
        }
    }

    fn answer(&mut self, message: &[u8], now: Nanos, host: &mut impl Host) -> Answer {
        let request = match parse(message) {
            Ok(request) => request,
            Err(error) => return Answer::Refused(Refusal::new(Cause::Message, error.to_string())),
        };
        let id = self.id;
        let done = match request {
            Request::Hello(_) => Err(Refusal::new(Cause::Message, "hello was already received")),
            Request::Regions => Ok(Answer::Regions(host.regions())),
            Request::Connect(offer) => {
                same_address(self.peer, &offer).and_then(|()| host.connect(id, self.peer, &offer)).map(Answer::Accept)
            }
            Request::Link => {
                let socket = self.socket.take();
                let socket = socket.ok_or_else(|| Refusal::new(Cause::Message, "the message carries no socket"));
                socket.and_then(|socket| host.link(id, socket)).map(|()| Answer::Linked)
            }
            Request::StartRole(assignment) => host.start_role(id, &assignment).map(|()| Answer::RoleStarted),
            Request::Disconnect(what) => host.disconnect(id, what.qp.get()).map(|()| Answer::Disconnected),
            Request::Links(LinksFrom { first }) => {
                self.limit_links(now).and_then(|()| host.links(first)).map(|links| Answer::Links(Box::new(links)))
            }
            Request::Statistics => Ok(Answer::Statistics(host.statistics(id))),
            Request::Goodbye => {
                self.state = State::Ending;
                self.end_session(host);
                Ok(Answer::Goodbye)
            }
        };
        done.unwrap_or_else(Answer::Refused)
    }

    /// Limits the rate of answers about links, which are long: the target's traffic waits for them.
    fn limit_links(&mut self, now: Nanos) -> Result<(), Refusal> {
        if self.links_until > now.saturating_add(LINKS_INTERVAL * LINKS_BURST) {
            let rate = 1_000_000_000 / LINKS_INTERVAL;
            let words = format!("expected at most {rate} requests for links in a second, found more: wait longer");
            return Err(Refusal::new(Cause::Limit, words));
        }
        self.links_until = self.links_until.max(now) + LINKS_INTERVAL;
        Ok(())
    }

    /// Ends the session because the connection is closed or must be closed. Called once.
    pub fn close(&mut self, counters: &mut ControlCounters, host: &mut impl Host) {
        if self.state == State::Unauthenticated {
            counters.closed_by_peer += 1;
        }
        self.state = State::Over;
        self.end_session(host);
    }

    /// Closes an unauthenticated connection in favour of a newer one.
    pub(super) fn displace(&mut self, counters: &mut ControlCounters) {
        if self.state == State::Unauthenticated {
            counters.displaced += 1;
        }
        self.state = State::Over;
    }

    fn end_session(&mut self, host: &mut impl Host) {
        if std::mem::take(&mut self.welcomed) {
            host.session_ended(self.id);
        }
    }

    fn refuse_token(
        &mut self,
        now: Nanos,
        timeouts: &Timeouts,
        counters: &mut ControlCounters,
        count: fn(&mut ControlCounters) -> &mut u64,
    ) {
        *count(counters) += 1;
        self.end(Refusal::new(Cause::Token, "wrong token"), now);
        self.state = State::Refused { send_at: now.saturating_add(timeouts.wrong_token) };
    }

    fn end(&mut self, refusal: Refusal, now: Nanos) {
        self.output = framed(&Answer::Refused(refusal));
        (self.state, self.since) = (State::Ending, now);
    }

    fn progress(&self) -> Progress {
        if self.state == State::Over { Progress::Over } else { Progress::Open }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        fd_passing::discard(self.socket.take().into_iter().collect());
    }
}

/// Checks that the queue pair's address is that of the control connection, so that packets cannot be directed at a
/// third party.
fn same_address(peer: Option<IpAddr>, offer: &Offer) -> Result<(), Refusal> {
    match (peer, offer.address) {
        (Some(peer), Some(address)) if peer.to_canonical() != address.ip().to_canonical() => {
            let words =
                format!("expected a queue pair at the control connection's address {peer}, found {}", address.ip());
            Err(Refusal::new(Cause::Unsupported, words))
        }
        _ => Ok(()),
    }
}

impl From<Malformed> for Refusal {
    fn from(error: Malformed) -> Self {
        Self::new(Cause::Message, error.to_string())
    }
}
