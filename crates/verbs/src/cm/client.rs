//! Initiator side of a control connection.

use super::Token;
use super::control::{ControlAddress, keep_alive};
use super::endpoint::Endpoint;
use super::exports::{NOWHERE, PeerAttributes, bring_up};
use super::message::{
    Accept, Answer, Bits24, Disconnect, Hello, Kind, LinksFrom, MAX_MESSAGE_BYTES, Malformed, Offer, PathMtu, Receives,
    Refusal, Regions, Request, RoleAssignment, Statistics, TargetRole, VERSION, Welcome, framed, parse, unframed,
};
use crate::api::{Mtu, Qp, QpConfig, QpType, Status, VerbsError};
use crate::dial;
use crate::shm::ShmEndpoint;
use crate::spacefibre::LinksStatus;
use rustix::fd::OwnedFd;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType, sendmsg};
use shotline_memory::Access;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Error of a control connection.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The target cannot be reached.
    #[error("cannot reach the target at {to}: {source}")]
    Unreachable {
        /// Address of the target.
        to: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the connection to the target broke: {0}")]
    Disconnected(io::Error),
    /// The target refused the request.
    #[error("the target refused the request: {0}")]
    Refused(Refusal),
    /// The target's answer is malformed.
    #[error("the target's answer is invalid: {0}")]
    Malformed(#[from] Malformed),
    /// The answer does not match the request.
    #[error("the target's answer does not match the request")]
    UnexpectedAnswer,
    /// The local provider failed.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// The random source failed.
    #[error("the operating system's random source cannot be read")]
    Random,
}

/// Why an operation at a target has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetFailure {
    /// The target has ended, or has closed the connection.
    #[error("the target closed the connection")]
    Closed,
    /// The target did not acknowledge.
    #[error("the target does not respond")]
    Unresponsive,
    /// The target refused key, range or rights.
    #[error("the target refused the access: key, range or rights")]
    Access,
    /// The operation ended with another status.
    #[error("an operation failed: {0:?}")]
    Other(Status),
}

/// Timeout for connecting and for an answer. It is long because a target may sleep and answers a wrong token late.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of links that [`Client::links`] returns.
pub const MAX_WATCHED_LINKS: usize = 64;

/// Initiator side of a control connection to a target.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    input: Vec<u8>,
    welcome: Welcome,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Parameters of a queue pair to connect.
#[derive(Clone, Copy, Debug)]
pub struct QpRequest {
    /// Configuration of the local queue pair.
    pub config: QpConfig,
    /// Access rights of the target to this side's memory.
    pub access: Access,
    /// Receives that the target keeps posted.
    pub receives: Receives,
    /// Send queue depth of the target's queue pair.
    pub sends: u16,
    /// Maximum path MTU.
    pub mtu: Mtu,
    /// Maximum outstanding READs and atomic operations.
    pub max_rd_atomic: u8,
    /// Acknowledgement timeout before retransmission.
    pub timeout: Duration,
    /// Maximum retransmissions, 0 to 7.
    pub retry_cnt: u8,
}

impl QpRequest {
    /// Returns parameters for a queue pair with this configuration, without receives at the target.
    pub fn new(config: QpConfig) -> Self {
        Self {
            config,
            access: Access::NONE,
            receives: Receives::default(),
            sends: 0,
            mtu: Mtu::MAX,
            max_rd_atomic: 16,
            timeout: Duration::from_millis(67),
            retry_cnt: 7,
        }
    }
}

/// A local queue pair that waits for the target's: the parts of [`Client::open`], for a provider that others use while the
/// target answers.
#[derive(Debug)]
pub struct Opening {
    qp: Qp,
    offer: Offer,
    request: QpRequest,
}

impl Opening {
    /// Creates the local queue pair.
    ///
    /// # Errors
    /// [`ClientError::Verbs`] if it cannot be created, [`ClientError::Random`] if the random source fails.
    pub fn begin<P: Endpoint + ?Sized>(provider: &mut P, request: &QpRequest) -> Result<Self, ClientError> {
        let psn = Bits24::random().ok_or(ClientError::Random)?;
        let qp = provider.create_qp(&request.config)?;
        let Some(number) = Bits24::new(qp.0) else {
            let _ = provider.destroy_qp(qp);
            return Err(VerbsError::NoSuch("queue pair number").into());
        };
        let offer = Offer {
            kind: match request.config.kind {
                QpType::Rc => Kind::Rc,
                QpType::Uc => Kind::Uc,
                QpType::Ud => Kind::Ud,
            },
            address: provider.address(),
            qp: number,
            psn,
            mtu: PathMtu(request.mtu.min(provider.mtu())),
            max_dest_rd_atomic: request.max_rd_atomic,
            max_rd_atomic: request.max_rd_atomic,
            service_level: request.config.service_level,
            receives: request.receives,
            sends: request.sends,
        };
        Ok(Self { qp, offer, request: *request })
    }

    /// Connects the local queue pair with the target's ([`Client::offer`]).
    ///
    /// # Errors
    /// [`ClientError::Verbs`] if it cannot be connected; it is destroyed then.
    pub fn finish<P: Endpoint + ?Sized>(self, provider: &mut P, accept: &Accept) -> Result<Qp, ClientError> {
        let (Self { qp, offer, request }, is_connected) = (&self, self.request.config.kind != QpType::Ud);
        let attributes = PeerAttributes {
            peer: is_connected.then_some((accept.address.unwrap_or(NOWHERE), accept.qp.get())),
            mtu: accept.mtu.0.min(request.mtu).min(provider.mtu()),
            psn_in: accept.psn,
            psn_out: offer.psn,
            rd_atomic: (request.max_rd_atomic, accept.max_rd_atomic.min(request.max_rd_atomic)),
            timeout: request.timeout,
            retry_cnt: request.retry_cnt,
        };
        match bring_up(provider, *qp, request.access, accept.q_key, &attributes) {
            Ok(()) => Ok(*qp),
            Err(error) => {
                self.abandon(provider);
                Err(error.into())
            }
        }
    }

    /// Destroys the local queue pair, because the target's does not exist.
    pub fn abandon<P: Endpoint + ?Sized>(self, provider: &mut P) {
        let _ = provider.destroy_qp(self.qp);
    }
}

impl Client {
    /// Connects to a target. `from` is the local address, also of the queue pairs opened later.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] if there is no connection within 10 s, [`ClientError::Refused`] for a wrong token
    /// or another protocol version; otherwise if the connection breaks or the answer is not valid.
    pub fn connect(to: &ControlAddress, from: Option<IpAddr>, token: Token) -> Result<Self, ClientError> {
        let unreachable = |source| ClientError::Unreachable { to: to.to_string(), source };
        let stream = Stream::open(to, from).map_err(unreachable)?;
        let placeholder = Welcome {
            version: VERSION,
            provider: String::new(),
            max_queue_pairs: 0,
            max_operation: 0,
            supports_roles: false,
            link: None,
        };
        let mut client = Self { stream, input: Vec::new(), welcome: placeholder };
        match client.call(&Request::Hello(Hello { version: VERSION, token }))? {
            Answer::Welcome(welcome) => client.welcome = welcome,
            _ => return Err(ClientError::UnexpectedAnswer),
        }
        Ok(client)
    }

    /// Returns the description of the target.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Returns the regions of the target.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the target refuses; otherwise if the connection breaks or the answer is not valid.
    pub fn regions(&mut self) -> Result<Regions, ClientError> {
        match self.call(&Request::Regions)? {
            Answer::Regions(regions) => Ok(regions),
            _ => Err(ClientError::UnexpectedAnswer),
        }
    }

    /// Passes one end of a new `SOCK_SEQPACKET` socket to the target's process, over a Unix socket only, for a link by
    /// shared memory. `offer` gets the other end and sends its first message; its result is returned once the target
    /// has done so, too.
    ///
    /// # Errors
    /// See [`Self::regions`].
    pub fn link<O>(&mut self, offer: impl FnOnce(OwnedFd) -> Result<O, VerbsError>) -> Result<O, ClientError> {
        let Stream::Unix(stream) = &self.stream else {
            return Err(VerbsError::Unsupported(
                "shared memory needs the path of the target's Unix socket, not an IP address",
            )
            .into());
        };
        let (ours, theirs) = ShmEndpoint::sockets()?;
        // The offer must come first because the target does not wait for it.
        let offer = offer(ours)?;
        send_with_socket(stream, &framed(&Request::Link), theirs).map_err(ClientError::Disconnected)?;
        match self.read_answer(TIMEOUT)? {
            Answer::Linked => Ok(offer),
            _ => Err(ClientError::UnexpectedAnswer),
        }
    }

    /// Creates a local queue pair and one at the target, and connects them: both are ready to send. Returns
    /// the local queue pair, and the target's with its keys.
    ///
    /// # Errors
    /// [`ClientError::Verbs`] if the local queue pair cannot be created or connected; otherwise see [`Self::regions`].
    pub fn open<P: Endpoint + ?Sized>(
        &mut self,
        provider: &mut P,
        request: &QpRequest,
    ) -> Result<(Qp, Accept), ClientError> {
        let opening = Opening::begin(provider, request)?;
        match self.offer(&opening) {
            Ok(accept) => opening.finish(provider, &accept).map(|qp| (qp, accept)),
            Err(error) => {
                opening.abandon(provider);
                Err(error)
            }
        }
    }

    /// Lets the target create the other end of a queue pair. This waits for its answer, and needs no provider meanwhile.
    ///
    /// # Errors
    /// See [`Self::regions`].
    pub fn offer(&mut self, opening: &Opening) -> Result<Accept, ClientError> {
        let mut accept = match self.call(&Request::Connect(opening.offer.clone()))? {
            Answer::Accept(accept) => accept,
            _ => return Err(ClientError::UnexpectedAnswer),
        };
        accept.address = accept.address.map(|address| self.reached(address));
        Ok(accept)
    }

    /// Returns the address by which the target's endpoint is reached. One that is bound to any address of its host is
    /// reached by that of the control connection.
    fn reached(&self, address: SocketAddr) -> SocketAddr {
        match self.stream.peer().filter(|_| address.ip().is_unspecified() && address != NOWHERE) {
            Some(ip) => SocketAddr::new(ip, address.port()),
            None => address,
        }
    }

    /// Assigns the target's queue pair a role in a measurement.
    ///
    /// # Errors
    /// See [`Self::regions`].
    pub fn start_role(&mut self, qp: Bits24, role: TargetRole) -> Result<(), ClientError> {
        match self.call(&Request::StartRole(RoleAssignment { qp, role }))? {
            Answer::RoleStarted => Ok(()),
            _ => Err(ClientError::UnexpectedAnswer),
        }
    }

    /// Destroys the target's queue pair with this number.
    ///
    /// # Errors
    /// See [`Self::regions`].
    pub fn disconnect(&mut self, qp: Bits24) -> Result<(), ClientError> {
        match self.call(&Request::Disconnect(Disconnect { qp }))? {
            Answer::Disconnected => Ok(()),
            _ => Err(ClientError::UnexpectedAnswer),
        }
    }

    /// Returns the processor time of the target and the counters of this connection's queue pairs.
    ///
    /// # Errors
    /// See [`Self::regions`].
    pub fn statistics(&mut self) -> Result<Statistics, ClientError> {
        match self.call(&Request::Statistics)? {
            Answer::Statistics(statistics) => Ok(statistics),
            _ => Err(ClientError::UnexpectedAnswer),
        }
    }

    /// Returns the status of the target's SpaceFibre links, at most [`MAX_WATCHED_LINKS`].
    ///
    /// # Errors
    /// [`ClientError::Refused`] if it has no links, or was asked too often; otherwise see [`Self::regions`].
    pub fn links(&mut self) -> Result<LinksStatus, ClientError> {
        let mut all = Vec::new();
        loop {
            let request = Request::Links(LinksFrom { first: all.len() as u32 });
            let Answer::Links(mut part) = self.call(&request)? else { return Err(ClientError::UnexpectedAnswer) };
            let is_last = part.links.is_empty();
            all.append(&mut part.links);
            if is_last || all.len() >= MAX_WATCHED_LINKS.min(part.open as usize) {
                return Ok(LinksStatus { links: all, ..*part });
            }
        }
    }

    /// Closes the connection in order: the target has destroyed its queue pairs when this returns.
    ///
    /// # Errors
    /// See [`Self::regions`].
    pub fn goodbye(self) -> Result<(), ClientError> {
        self.goodbye_within(TIMEOUT)
    }

    /// Like [`Self::goodbye`], with a limit of the time to wait for the target.
    ///
    /// # Errors
    /// See [`Self::regions`].
    pub fn goodbye_within(mut self, timeout: Duration) -> Result<(), ClientError> {
        match self.call_within(&Request::Goodbye, timeout)? {
            Answer::Goodbye => Ok(()),
            _ => Err(ClientError::UnexpectedAnswer),
        }
    }

    /// Returns `true` if the connection is open, without blocking. A target only sends answers, so a readable socket
    /// means the end of the connection.
    pub fn is_connected(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let zero = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(self, PollFlags::IN)];
        !matches!(poll(&mut fds, Some(&zero)), Ok(1..))
    }

    /// Returns why an operation has failed: the first one of a queue pair, whose completion has this status.
    pub fn failure(&self, status: Status) -> TargetFailure {
        match status {
            // Without a failed operation before it, a flushed one means that the other end of the queue pair is gone. Its
            // end is not always noticed before that of the connection.
            Status::Flushed => TargetFailure::Closed,
            _ if !self.is_connected() => TargetFailure::Closed,
            Status::RetryExceeded => TargetFailure::Unresponsive,
            Status::RemoteAccess => TargetFailure::Access,
            status => TargetFailure::Other(status),
        }
    }

    /// Sends a request and waits for its answer.
    fn call(&mut self, request: &Request) -> Result<Answer, ClientError> {
        self.call_within(request, TIMEOUT)
    }

    fn call_within(&mut self, request: &Request, timeout: Duration) -> Result<Answer, ClientError> {
        self.stream.write_all(&framed(request)).map_err(ClientError::Disconnected)?;
        self.read_answer(timeout)
    }

    fn read_answer(&mut self, timeout: Duration) -> Result<Answer, ClientError> {
        // A timeout of the socket would begin again with each part, and after each stop of this process.
        let deadline = Instant::now() + timeout;
        // An answer that came while this process was stopped is still read.
        let mut is_late = false;
        let message = loop {
            if let Some(message) = unframed(&mut self.input, MAX_MESSAGE_BYTES)? {
                break message;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() && std::mem::replace(&mut is_late, true) {
                return Err(ClientError::Disconnected(io::ErrorKind::TimedOut.into()));
            }
            let left = left.max(Duration::from_millis(1));
            self.stream.set_read_timeout(left).map_err(ClientError::Disconnected)?;
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ClientError::Disconnected(io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => self.input.extend_from_slice(&bytes[..read]),
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(error) => return Err(ClientError::Disconnected(error)),
            }
        };
        match parse(&message)? {
            Answer::Refused(refusal) => Err(ClientError::Refused(printable(refusal))),
            answer => Ok(answer),
        }
    }
}

/// The socket, which is readable at the end of the connection, or when there is an answer.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Replaces control characters, so that text of the peer cannot control a terminal.
fn printable(refusal: Refusal) -> Refusal {
    let message = refusal.message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(1000).collect();
    Refusal { message, ..refusal }
}

impl Stream {
    fn open(to: &ControlAddress, from: Option<IpAddr>) -> io::Result<Self> {
        match to {
            ControlAddress::Tcp(address) => {
                let stream = dial::tcp(*address, from.filter(|from| from.is_ipv4() == address.is_ipv4()), TIMEOUT)?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                keep_alive(stream.as_fd())?;
                Ok(Self::Tcp(stream))
            }
            ControlAddress::Unix(path) => {
                let stream = UnixStream::from(dial::unix(path, SocketType::STREAM, TIMEOUT)?);
                stream.set_write_timeout(Some(TIMEOUT))?;
                Ok(Self::Unix(stream))
            }
        }
    }

    /// Returns the target's address; `None` over a Unix socket.
    fn peer(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().ok().map(|address| address.ip()),
            Self::Unix(_) => None,
        }
    }

    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Self::Unix(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Unix(stream) => stream.read(bytes),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Unix(stream) => stream.write_all(bytes),
        }
    }
}

/// Sends a message together with a socket.
fn send_with_socket(stream: &UnixStream, message: &[u8], socket: OwnedFd) -> io::Result<()> {
    let fds = [socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let sent = sendmsg(stream, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)?;
    (&*stream).write_all(&message[sent..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> (Client, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        let welcome = Welcome {
            version: VERSION,
            provider: String::new(),
            max_queue_pairs: 0,
            max_operation: 0,
            supports_roles: false,
            link: None,
        };
        (Client { stream: Stream::Unix(near), input: Vec::new(), welcome }, far)
    }

    #[test]
    fn operation_flushed_first_means_that_the_target_is_gone() {
        let (client, far) = client();
        assert_eq!(client.failure(Status::Flushed), TargetFailure::Closed);
        assert_eq!(client.failure(Status::RetryExceeded), TargetFailure::Unresponsive);
        assert_eq!(client.failure(Status::RemoteAccess), TargetFailure::Access);
        assert_eq!(client.failure(Status::BadResponse), TargetFailure::Other(Status::BadResponse));
        drop(far);
        assert_eq!(client.failure(Status::RetryExceeded), TargetFailure::Closed);
    }

    #[test]
    fn answer_in_endless_parts_ends_at_the_timeout() {
        let (mut client, mut far) = client();
        let sender = std::thread::spawn(move || {
            far.write_all(&1000_u32.to_be_bytes()).unwrap();
            while far.write_all(&[0]).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let error = client.read_answer(Duration::from_millis(100)).unwrap_err();
        assert_eq!(error.to_string(), "the connection to the target broke: timed out");
        drop(client);
        sender.join().unwrap();
    }
}
