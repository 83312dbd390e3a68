//! The initiator's side of a control connection.

use super::Token;
use super::control::{Listen, keep_alive};
use super::endpoint::Endpoint;
use super::exports::{NOWHERE, To, bring_up};
use super::message::{
    Accept, Answer, Bits24, Disconnect, Hello, Kind, LONGEST, Malformed, Offer, PathMtu, Play, Playing, Receives,
    Refusal, Regions, Request, Statistics, VERSION, Welcome, framed, parse, unframed,
};
use crate::api::{Mtu, Qp, QpConfig, QpType, VerbsError};
use crate::dial;
use crate::shm::ShmEndpoint;
use rustix::fd::OwnedFd;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType, sendmsg};
use shotline_memory::Access;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Why an initiator could not have what it asked for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The target cannot be reached.
    #[error("cannot reach a target at {to}: {source}")]
    Unreachable {
        /// Where.
        to: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the target has gone away: {0}")]
    Gone(io::Error),
    /// The target said no.
    #[error("the target refuses: {0}")]
    Refused(Refusal),
    /// The target's words make no sense.
    #[error("the target's answer cannot be read: {0}")]
    Malformed(#[from] Malformed),
    /// An answer to something else.
    #[error("the target answers something that was not asked")]
    OutOfTurn,
    /// This side failed.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// No random numbers.
    #[error("the operating system's random source cannot be read")]
    Random,
}

/// How long a connection and an answer may take: a target may have to be woken, and a wrong token is answered late.
const PATIENCE: Duration = Duration::from_secs(10);

/// A control connection to a target.
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

/// What kind of queue pair is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The local queue pair.
    pub config: QpConfig,
    /// What the target may do with this side's memory through it.
    pub access: Access,
    /// Receives that the target shall have posted.
    pub receives: Receives,
    /// Room for the target's own work requests.
    pub sends: u16,
    /// The longest payload that the path carries.
    pub mtu: Mtu,
    /// READs and atomic operations that may be unanswered at once.
    pub rd_atomic: u8,
    /// How long an answer may take before it is sent again.
    pub timeout: Duration,
    /// How often it is sent again.
    pub retries: u8,
}

impl Wish {
    /// For a queue pair like this, without messages.
    pub fn new(config: QpConfig) -> Self {
        Self {
            config,
            access: Access::NONE,
            receives: Receives::default(),
            sends: 0,
            mtu: Mtu::B4096,
            rd_atomic: 16,
            timeout: Duration::from_millis(67),
            retries: 7,
        }
    }
}

impl Client {
    /// Says hello to a target. `from` is the local address, that of the queue pairs to come.
    pub fn connect(to: &Listen, from: Option<IpAddr>, token: Token) -> Result<Self, ClientError> {
        let unreachable = |source| ClientError::Unreachable { to: to.to_string(), source };
        let stream = Stream::open(to, from).map_err(unreachable)?;
        let nobody =
            Welcome { version: VERSION, provider: String::new(), max_queue_pairs: 0, max_operation: 0, plays: false };
        let mut client = Self { stream, input: Vec::new(), welcome: nobody };
        match client.ask(&Request::Hello(Hello { version: VERSION, token }))? {
            Answer::Welcome(welcome) => client.welcome = welcome,
            _ => return Err(ClientError::OutOfTurn),
        }
        Ok(client)
    }

    /// Whom it is connected to.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// The target's memory.
    pub fn regions(&mut self) -> Result<Regions, ClientError> {
        match self.ask(&Request::Regions)? {
            Answer::Regions(regions) => Ok(regions),
            _ => Err(ClientError::OutOfTurn),
        }
    }

    /// Links with the target's process by shared memory.
    pub fn link(&mut self) -> Result<ShmEndpoint, ClientError> {
        let Stream::Unix(stream) = &self.stream else {
            return Err(VerbsError::Unsupported("a target is reached by shared memory through a socket's path").into());
        };
        let (ours, theirs) = ShmEndpoint::sockets()?;
        // First: a target does not wait for it.
        let offer = ShmEndpoint::offer(ours)?;
        send_with_socket(stream, &framed(&Request::Link), theirs).map_err(ClientError::Gone)?;
        match self.hear()? {
            Answer::Linked => Ok(offer.join()?),
            _ => Err(ClientError::OutOfTurn),
        }
    }

    /// Makes a queue pair, and one at the target, and connects the two: both are ready to send.
    pub fn open<P: Endpoint>(&mut self, provider: &mut P, wish: &Wish) -> Result<(Qp, Accept), ClientError> {
        let qp = provider.create_qp(&wish.config)?;
        self.bring_up(provider, qp, wish).map(|accept| (qp, accept)).inspect_err(|_| {
            let _ = provider.destroy_qp(qp);
        })
    }

    fn bring_up<P: Endpoint>(&mut self, provider: &mut P, qp: Qp, wish: &Wish) -> Result<Accept, ClientError> {
        let psn = Bits24::random().ok_or(ClientError::Random)?;
        let offer = Offer {
            kind: match wish.config.kind {
                QpType::Rc => Kind::Rc,
                QpType::Uc => Kind::Uc,
                QpType::Ud => Kind::Ud,
            },
            address: provider.address(),
            qp: Bits24::new(qp.0).ok_or(VerbsError::NoSuch("queue pair number"))?,
            psn,
            mtu: PathMtu(wish.mtu.min(provider.mtu())),
            max_dest_rd_atomic: wish.rd_atomic,
            max_rd_atomic: wish.rd_atomic,
            receives: wish.receives,
            sends: wish.sends,
        };
        let accept = match self.ask(&Request::Connect(offer))? {
            Answer::Accept(accept) => accept,
            _ => return Err(ClientError::OutOfTurn),
        };
        let connected = wish.config.kind != QpType::Ud;
        let to = To {
            peer: connected.then_some((accept.address.unwrap_or(NOWHERE), accept.qp.get())),
            mtu: accept.mtu.0.min(wish.mtu).min(provider.mtu()),
            psn_in: accept.psn,
            psn_out: psn,
            rd_atomic: (wish.rd_atomic, accept.max_rd_atomic.min(wish.rd_atomic)),
            timeout: wish.timeout,
            retries: wish.retries,
        };
        bring_up(provider, qp, wish.access, accept.q_key, &to)?;
        Ok(accept)
    }

    /// Has the target's queue pair play a part.
    pub fn play(&mut self, qp: Bits24, part: Play) -> Result<(), ClientError> {
        match self.ask(&Request::Play(Playing { qp, part }))? {
            Answer::Playing => Ok(()),
            _ => Err(ClientError::OutOfTurn),
        }
    }

    /// Has the target destroy its queue pair of this number.
    pub fn disconnect(&mut self, qp: Bits24) -> Result<(), ClientError> {
        match self.ask(&Request::Disconnect(Disconnect { qp }))? {
            Answer::Disconnected => Ok(()),
            _ => Err(ClientError::OutOfTurn),
        }
    }

    /// How the target is.
    pub fn statistics(&mut self) -> Result<Statistics, ClientError> {
        match self.ask(&Request::Statistics)? {
            Answer::Statistics(statistics) => Ok(statistics),
            _ => Err(ClientError::OutOfTurn),
        }
    }

    /// Ends it in order: the target has destroyed its queue pairs when this returns.
    pub fn goodbye(mut self) -> Result<(), ClientError> {
        match self.ask(&Request::Goodbye)? {
            Answer::Goodbye => Ok(()),
            _ => Err(ClientError::OutOfTurn),
        }
    }

    /// Whether the target is still there, without waiting. A target says nothing unasked, so anything that can be read
    /// is the end of the connection.
    pub fn is_there(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let fd = match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        };
        let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        !matches!(poll(&mut fds, Some(&none)), Ok(1..))
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, ClientError> {
        self.stream.write_all(&framed(request)).map_err(ClientError::Gone)?;
        self.hear()
    }

    fn hear(&mut self) -> Result<Answer, ClientError> {
        let message = loop {
            if let Some(message) = unframed(&mut self.input, LONGEST)? {
                break message;
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ClientError::Gone(io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => self.input.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ClientError::Gone(error)),
            }
        };
        match parse(&message)? {
            Answer::Refused(refusal) => Err(ClientError::Refused(printable(refusal))),
            answer => Ok(answer),
        }
    }
}

/// Another program's words may not move the cursor of a terminal.
fn printable(refusal: Refusal) -> Refusal {
    let words = refusal.words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(1000).collect();
    Refusal { words, ..refusal }
}

impl Stream {
    fn open(to: &Listen, from: Option<IpAddr>) -> io::Result<Self> {
        match to {
            Listen::Tcp(address) => {
                let stream = dial::tcp(*address, from.filter(|from| from.is_ipv4() == address.is_ipv4()), PATIENCE)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                keep_alive(stream.as_fd())?;
                Ok(Self::Tcp(stream))
            }
            Listen::Unix(path) => {
                let stream = UnixStream::from(dial::unix(path, SocketType::STREAM, PATIENCE)?);
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Self::Unix(stream))
            }
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

/// Sends a message and a socket with it.
fn send_with_socket(stream: &UnixStream, message: &[u8], socket: OwnedFd) -> io::Result<()> {
    let fds = [socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let sent = sendmsg(stream, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)?;
    (&*stream).write_all(&message[sent..])
}
