//! Sockets of control connections: one listener and one epoll instance, no thread.

use super::Token;
use super::conversation::{ControlCounters, Conversation, Host, Progress, SessionId, Timeouts};
use crate::engine::Nanos;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use shotline_transport::fd_passing;
use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Limits and timeouts of control connections.
#[derive(Clone, Copy, Debug)]
pub struct ControlLimits {
    /// Maximum concurrent initiators; further connections are closed immediately.
    pub sessions: usize,
    /// Maximum connections that have not presented the token; a newer one displaces the oldest.
    pub max_unauthenticated: usize,
    /// Timeout for a whole message once it has begun, and for reading an answer.
    pub message: Duration,
    /// Delay before a wrong token is answered.
    pub wrong_token: Duration,
}

impl Default for ControlLimits {
    fn default() -> Self {
        let (message, wrong_token) = (Duration::from_secs(5), Duration::from_millis(500));
        Self { sessions: 256, max_unauthenticated: 32, message, wrong_token }
    }
}

/// Address of a control socket.
#[derive(Clone, Debug)]
pub enum ControlAddress {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A socket in the file system, for processes of the same user on this machine.
    Unix(PathBuf),
}

impl std::fmt::Display for ControlAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl FromStr for ControlAddress {
    type Err = String;
    /// Parses the address of a host, whose name is looked up, or the path of a socket.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        let expected =
            |why: String| format!("expected HOST:PORT of a target, or a path with a '/' in it, found {text}: {why}");
        let mut found = text.to_socket_addrs().map_err(|error| expected(error.to_string()))?;
        found.next().map(Self::Tcp).ok_or_else(|| expected("it has no address".into()))
    }
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// Control connections of a target.
///
/// No call blocks: [`Self::fd`] is readable when there is work, [`Self::next_timeout`] returns the time until the next
/// timeout, and [`Self::progress`] does the work.
#[derive(Debug)]
pub struct Control {
    listener: Listener,
    /// Accepting is paused until this time because the process has no file descriptor left.
    accept_paused_until: Option<Nanos>,
    epoll: OwnedFd,
    began: Instant,
    token: Token,
    limits: ControlLimits,
    timeouts: Timeouts,
    next_session: SessionId,
    connections: HashMap<SessionId, Connection>,
    counters: ControlCounters,
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    conversation: Conversation,
    interest: EventFlags,
}

#[derive(Debug)]
enum Stream {
    Tcp(std::net::TcpStream),
    Unix(UnixStream),
}

/// epoll data of the listener; session ids start at 1.
const LISTENER: u64 = 0;
/// Backlog of the listener: a SYN beyond it is dropped, and retransmitted only after a second.
const BACKLOG: i32 = 4096;
/// Maximum connections accepted per call, so that other work is not delayed.
const MAX_ACCEPTS: usize = 64;
/// Pause of accepting when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// TCP keep-alive: an initiator whose machine has failed is detected within this time and four times
/// [`KEEPALIVE_EACH`].
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_EACH: Duration = Duration::from_secs(2);

impl Control {
    /// Starts to listen. A Unix socket gets mode 0600, and replaces one that no process listens on.
    ///
    /// # Errors
    /// If the address is in use or cannot be bound.
    pub fn listen(on: &ControlAddress, token: Token, limits: ControlLimits) -> io::Result<Self> {
        let listener = match on {
            ControlAddress::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                rustix::net::listen(&listener, BACKLOG)?; // std uses 128
                Listener::Tcp(listener)
            }
            ControlAddress::Unix(path) => {
                let listener = bind_unix(path)?;
                listener.set_nonblocking(true)?;
                Listener::Unix(listener, path.clone())
            }
        };
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, listener.as_fd(), EventData::new_u64(LISTENER), EventFlags::IN)?;
        let timeouts = Timeouts { message: nanos(limits.message), wrong_token: nanos(limits.wrong_token) };
        let (began, connections, counters) = (Instant::now(), HashMap::new(), ControlCounters::default());
        Ok(Self {
            listener,
            accept_paused_until: None,
            epoll,
            began,
            token,
            limits,
            timeouts,
            next_session: 1,
            connections,
            counters,
        })
    }

    /// Returns the TCP address that it listens on.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.listener {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(..) => None,
        }
    }
    /// Returns a file descriptor that is readable when [`Self::progress`] has work.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
    /// Returns the counters.
    pub fn counters(&self) -> ControlCounters {
        self.counters
    }
    /// Returns the number of connections that have not presented the token.
    pub fn unauthenticated(&self) -> usize {
        self.connections.values().filter(|connection| connection.conversation.is_unauthenticated()).count()
    }
    /// Returns the number of connected initiators.
    pub fn sessions(&self) -> usize {
        self.connections.values().filter(|connection| connection.conversation.is_welcomed()).count()
    }

    /// Returns the time until [`Self::progress`] must be called even if the descriptor is not readable; `None`: no
    /// limit.
    pub fn next_timeout(&self) -> Option<Duration> {
        let deadline = self
            .connections
            .values()
            .filter_map(|connection| connection.conversation.deadline(&self.timeouts))
            .chain(self.accept_paused_until)
            .min()?;
        Some(Duration::from_nanos(deadline.saturating_sub(self.now())))
    }

    /// Accepts connections, processes requests, sends answers, and closes connections that have ended or timed out.
    ///
    /// # Errors
    /// If epoll fails. The failure of a connection closes that connection and is not an error.
    pub fn progress(&mut self, host: &mut impl Host) -> io::Result<()> {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 32];
        let zero = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = match epoll::wait(&self.epoll, &mut events[..], Some(&zero)) {
            Err(rustix::io::Errno::INTR) => 0,
            other => other?,
        };
        let now = self.now();
        for event in &events[..count] {
            let Event { flags, data } = *event; // packed: no references into it
            match data.u64() {
                LISTENER => {
                    for _ in 0..MAX_ACCEPTS {
                        if !self.accept(now)? {
                            break;
                        }
                    }
                }
                id => {
                    // A broken connection: an answer could not be delivered.
                    let broken = flags.intersects(EventFlags::HUP | EventFlags::ERR);
                    self.serve(id, broken, now, host);
                }
            }
        }
        if self.accept_paused_until.is_some_and(|until| now >= until) {
            self.accept_paused_until = None;
            epoll::add(&self.epoll, self.listener.as_fd(), EventData::new_u64(LISTENER), EventFlags::IN)?;
        }
        self.expire(now, host);
        Ok(())
    }

    /// Closes every connection.
    pub fn close(&mut self, host: &mut impl Host) {
        for (_, mut connection) in self.connections.drain() {
            connection.conversation.close(&mut self.counters, host);
        }
    }

    fn now(&self) -> Nanos {
        nanos(self.began.elapsed())
    }

    /// Accepts the next connection. Returns `true` if there was one.
    fn accept(&mut self, now: Nanos) -> io::Result<bool> {
        let (stream, peer) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                let transient =
                    [io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionAborted, io::ErrorKind::Interrupted];
                if !transient.contains(&error.kind()) {
                    // Out of descriptors or memory. The connection stays in the backlog, so the event would repeat.
                    epoll::delete(&self.epoll, self.listener.as_fd())?;
                    self.accept_paused_until = Some(now + nanos(ACCEPT_PAUSE));
                }
                return Ok(false);
            }
        };
        if self.sessions() >= self.limits.sessions {
            self.counters.full += 1;
            return Ok(true);
        }
        let unauthenticated =
            || self.connections.iter().filter(|(_, connection)| !connection.conversation.is_welcomed());
        if unauthenticated().count() >= self.limits.max_unauthenticated
            && let Some(oldest) = unauthenticated().map(|(id, _)| *id).min()
            && let Some(mut connection) = self.connections.remove(&oldest)
        {
            connection.conversation.displace(&mut self.counters);
        }
        let id = self.next_session;
        self.next_session += 1;
        let interest = EventFlags::IN;
        if epoll::add(&self.epoll, stream.as_fd(), EventData::new_u64(id), interest).is_ok() {
            self.counters.accepted += 1;
            self.connections
                .insert(id, Connection { stream, conversation: Conversation::new(id, peer, now), interest });
        }
        Ok(true)
    }

    fn serve(&mut self, id: SessionId, broken: bool, now: Nanos, host: &mut impl Host) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let auth = Authentication { token: &self.token, timeouts: &self.timeouts };
        let open = !broken
            && connection.write(now)
            && connection.read(now, &auth, &mut self.counters, host)
            && connection.write(now)
            && connection.watch(&self.epoll, now);
        if !open && let Some(mut connection) = self.connections.remove(&id) {
            connection.conversation.close(&mut self.counters, host);
        }
    }

    fn expire(&mut self, now: Nanos, host: &mut impl Host) {
        let timeouts = self.timeouts;
        let has_expired = |connection: &Connection| {
            connection.conversation.deadline(&timeouts).is_some_and(|deadline| deadline <= now)
        };
        let expired: Vec<_> =
            self.connections.iter().filter(|(_, connection)| has_expired(connection)).map(|(id, _)| *id).collect();
        for id in expired {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            let progress = connection.conversation.expire(now, &timeouts, &mut self.counters);
            if progress == Progress::Open && connection.write(now) && connection.watch(&self.epoll, now) {
                continue;
            }
            if let Some(mut connection) = self.connections.remove(&id) {
                connection.conversation.close(&mut self.counters, host);
            }
        }
    }
}

/// Token and timeouts, borrowed for the processing of one connection.
struct Authentication<'a> {
    token: &'a Token,
    timeouts: &'a Timeouts,
}

impl Connection {
    /// Sends pending output. Returns `true` if the connection stays open.
    fn write(&mut self, now: Nanos) -> bool {
        while !self.conversation.output(now).is_empty() {
            let sent = match &mut self.stream {
                Stream::Tcp(stream) => stream.write(self.conversation.output(now)),
                Stream::Unix(stream) => stream.write(self.conversation.output(now)),
            };
            match sent {
                Ok(0) => return false,
                Ok(bytes) if self.conversation.sent(bytes, now) == Progress::Over => return false,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Reads once and processes the input. Returns `true` if the connection stays open.
    fn read(
        &mut self,
        now: Nanos,
        auth: &Authentication<'_>,
        counters: &mut ControlCounters,
        host: &mut impl Host,
    ) -> bool {
        if !self.conversation.accepts_input() {
            return true;
        }
        let mut bytes = [0; 4096];
        let read = match &mut self.stream {
            Stream::Tcp(stream) => stream.read(&mut bytes),
            Stream::Unix(stream) => {
                // Unauthenticated peers may not pass sockets.
                let wanted = |fd: BorrowedFd<'_>| self.conversation.is_welcomed() && fd_passing::is_link(fd);
                fd_passing::receive(stream, &mut bytes, wanted).map_err(io::Error::from).map(|(read, socket)| {
                    socket.into_iter().for_each(|socket| self.conversation.pass_socket(socket));
                    read
                })
            }
        };
        let count = match read {
            Ok(0) => return false,
            Ok(count) => count,
            // Buffered requests after one that had to be answered first are processed below.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(_) => return false,
        };
        self.conversation.receive(&bytes[..count], now, auth.token, auth.timeouts, counters, host) == Progress::Open
    }

    /// Updates the epoll interest.
    fn watch(&mut self, epoll: &OwnedFd, now: Nanos) -> bool {
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, self.conversation.accepts_input());
        // A buffered request is processed when the socket becomes writable, that is, immediately.
        interest.set(EventFlags::OUT, !self.conversation.output(now).is_empty() || self.conversation.has_request());
        if interest == self.interest {
            return true;
        }
        self.interest = interest;
        epoll::modify(epoll, self.stream.as_fd(), EventData::new_u64(self.conversation.id()), interest).is_ok()
    }
}

impl Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }

    fn accept(&self) -> io::Result<(Stream, Option<std::net::IpAddr>)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                keep_alive(stream.as_fd())?;
                Ok((Stream::Tcp(stream), Some(peer.ip())))
            }
            Self::Unix(listener, _) => {
                let stream = Stream::Unix(listener.accept()?.0);
                // The mode of the socket file excludes other users as well, but only once it is set.
                if sockopt::socket_peercred(stream.as_fd())?.uid != rustix::process::geteuid() {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                rustix::io::ioctl_fionbio(stream.as_fd(), true)?;
                Ok((stream, None))
            }
        }
    }
}

impl Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Self::Unix(stream) = self {
            fd_passing::drain(stream);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Enables TCP keep-alive.
pub(super) fn keep_alive(fd: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(fd, KEEPALIVE_EACH)?;
    sockopt::set_tcp_keepcnt(fd, 4)?;
    Ok(())
}

fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket = path.symlink_metadata().is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket && is_orphaned(path)? {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(listener)
}

/// Returns `true` if no process listens on a socket file: it refuses connections. One whose backlog is full has an
/// owner (`EAGAIN`), which a blocking connection would wait for.
fn is_orphaned(path: &Path) -> io::Result<bool> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) == Err(Errno::CONNREFUSED))
}

fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::conversation::tests::TestHost;
    use super::*;
    use shotline_testing::lingering_socket;

    const LINGER_TIME: Duration = Duration::from_secs(20);

    #[test]
    fn unauthenticated_lingering_socket_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let token = Token::random().unwrap();
        let mut control =
            Control::listen(&ControlAddress::Unix(path.clone()), token, ControlLimits::default()).unwrap();
        let began = Instant::now();
        let (mut clients, mut peers) = (Vec::new(), Vec::new());
        for count in 1..=2 {
            let client = UnixStream::connect(&path).unwrap();
            let (fd, peer) = lingering_socket(LINGER_TIME);
            fd_passing::send(&client, b"x", Some(fd.as_fd())).unwrap();
            drop(fd);
            if count == 2 {
                client.shutdown(std::net::Shutdown::Both).unwrap(); // closed unread
            }
            clients.push(client);
            peers.push(peer);
            while control.counters().accepted < count {
                control.progress(&mut TestHost::default()).unwrap();
            }
            control.progress(&mut TestHost::default()).unwrap();
        }
        drop(control);
        assert!(began.elapsed() < LINGER_TIME / 2);
    }

    #[test]
    fn socket_with_a_full_backlog_has_an_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let owner = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&owner, 0).unwrap();
        let _queued = UnixStream::connect(&path).unwrap(); // the next one would block until this one is accepted
        assert_eq!(bind_unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(owner);
        bind_unix(&path).unwrap();
    }
}
