//! Sockets around conversations: one listener, one epoll instance, no thread of its own.

use super::Token;
use super::conversation::{Conversation, Counts, Host, Progress, SessionId, Times};
use crate::engine::Nanos;
use crate::handed;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Initiators at once; others are closed as soon as they come.
    pub sessions: usize,
    /// Connections that have not shown the token; one more displaces the oldest.
    pub strangers: usize,
    /// For a whole message once it has begun, and for an answer to be taken.
    pub message: Duration,
    /// Before a wrong token is answered.
    pub wrong_token: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let (message, wrong_token) = (Duration::from_secs(5), Duration::from_millis(500));
        Self { sessions: 256, strangers: 32, message, wrong_token }
    }
}

/// Where initiators come to.
#[derive(Clone, Debug)]
pub enum Listen {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A socket in the file system, for processes of this user on this machine.
    Unix(PathBuf),
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// A target's control connections.
///
/// Nothing waits here: [`Self::fd`] is readable when there is something to do, [`Self::deadline`] says when there will
/// be, and [`Self::progress`] does it.
#[derive(Debug)]
pub struct Control {
    listener: Listener,
    /// No accepting until then: the process had no descriptor left.
    rests: Option<Nanos>,
    epoll: OwnedFd,
    began: Instant,
    token: Token,
    limits: Limits,
    times: Times,
    next: SessionId,
    held: HashMap<SessionId, Held>,
    counts: Counts,
}

#[derive(Debug)]
struct Held {
    stream: Stream,
    with: Conversation,
    interest: EventFlags,
}

#[derive(Debug)]
enum Stream {
    Tcp(std::net::TcpStream),
    Unix(UnixStream),
}

/// The listener's name in epoll; sessions count from 1.
const LISTENER: u64 = 0;
/// Connections that the kernel keeps until they are accepted: one more would have to be asked for again after a second.
const BACKLOG: i32 = 4096;
/// Connections that are accepted before everything else has its turn.
const ACCEPTS: usize = 64;
/// A descriptor is missing: how long before the next connection is taken.
const REST: Duration = Duration::from_millis(100);
/// An initiator whose machine is gone is noticed within this and four more times [`KEEPALIVE_EACH`].
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_EACH: Duration = Duration::from_secs(2);

impl Control {
    /// Listens. A Unix socket gets mode 0600, and replaces one whose owner is gone.
    pub fn listen(on: &Listen, token: Token, limits: Limits) -> io::Result<Self> {
        let listener = match on {
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                rustix::net::listen(&listener, BACKLOG)?; // std asks for 128
                Listener::Tcp(listener)
            }
            Listen::Unix(path) => {
                let listener = bind_unix(path)?;
                listener.set_nonblocking(true)?;
                Listener::Unix(listener, path.clone())
            }
        };
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, listener.as_fd(), EventData::new_u64(LISTENER), EventFlags::IN)?;
        let times = Times { message: nanos(limits.message), wrong: nanos(limits.wrong_token) };
        let (began, held, counts) = (Instant::now(), HashMap::new(), Counts::default());
        Ok(Self { listener, rests: None, epoll, began, token, limits, times, next: 1, held, counts })
    }

    /// Where it listens, if by TCP.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.listener {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(..) => None,
        }
    }
    /// Readable when [`Self::progress`] has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
    /// What happened at the door.
    pub fn counts(&self) -> Counts {
        self.counts
    }
    /// Connections that have not said yet who they are.
    pub fn strangers(&self) -> usize {
        self.held.values().filter(|held| held.with.is_stranger()).count()
    }
    /// Initiators that are connected.
    pub fn sessions(&self) -> usize {
        self.held.values().filter(|held| held.with.is_welcome()).count()
    }

    /// How long until [`Self::progress`] has something to do though the descriptor is silent.
    pub fn deadline(&self) -> Option<Duration> {
        let due = self.held.values().filter_map(|held| held.with.deadline(&self.times)).chain(self.rests).min()?;
        Some(Duration::from_nanos(due.saturating_sub(self.now())))
    }

    /// Takes connections, hears, answers, and ends what is over or overdue.
    pub fn progress(&mut self, host: &mut impl Host) -> io::Result<()> {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 32];
        let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = match epoll::wait(&self.epoll, &mut events[..], Some(&none)) {
            Err(rustix::io::Errno::INTR) => 0,
            other => other?,
        };
        let now = self.now();
        for event in &events[..count] {
            let Event { flags, data } = *event; // packed: no references into it
            match data.u64() {
                LISTENER => {
                    for _ in 0..ACCEPTS {
                        if !self.accept(now)? {
                            break;
                        }
                    }
                }
                id => {
                    // A broken connection: nobody would take an answer.
                    let broken = flags.intersects(EventFlags::HUP | EventFlags::ERR);
                    self.serve(id, broken, now, host);
                }
            }
        }
        if self.rests.is_some_and(|until| now >= until) {
            self.rests = None;
            epoll::add(&self.epoll, self.listener.as_fd(), EventData::new_u64(LISTENER), EventFlags::IN)?;
        }
        self.expire(now, host);
        Ok(())
    }

    /// Ends every conversation.
    pub fn close(&mut self, host: &mut impl Host) {
        for (_, mut held) in self.held.drain() {
            held.with.close(&mut self.counts, host);
        }
    }

    fn now(&self) -> Nanos {
        nanos(self.began.elapsed())
    }

    /// Takes the next connection; whether there was one.
    fn accept(&mut self, now: Nanos) -> io::Result<bool> {
        let (stream, peer) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                let gone = [io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionAborted, io::ErrorKind::Interrupted];
                if !gone.contains(&error.kind()) {
                    // Out of descriptors or memory. The connection stays in the queue, and so would the event.
                    epoll::delete(&self.epoll, self.listener.as_fd())?;
                    self.rests = Some(now + nanos(REST));
                }
                return Ok(false);
            }
        };
        if self.sessions() >= self.limits.sessions {
            self.counts.full += 1;
            return Ok(true);
        }
        let strangers = || self.held.iter().filter(|(_, held)| !held.with.is_welcome());
        if strangers().count() >= self.limits.strangers
            && let Some(oldest) = strangers().map(|(id, _)| *id).min()
            && let Some(mut held) = self.held.remove(&oldest)
        {
            held.with.displace(&mut self.counts);
        }
        let id = self.next;
        self.next += 1;
        let interest = EventFlags::IN;
        if epoll::add(&self.epoll, stream.as_fd(), EventData::new_u64(id), interest).is_ok() {
            self.counts.begun += 1;
            self.held.insert(id, Held { stream, with: Conversation::new(id, peer, now), interest });
        }
        Ok(true)
    }

    fn serve(&mut self, id: SessionId, broken: bool, now: Nanos, host: &mut impl Host) {
        let Some(held) = self.held.get_mut(&id) else { return };
        let door = Door { token: &self.token, times: &self.times };
        let open = !broken
            && held.write(now)
            && held.read(now, &door, &mut self.counts, host)
            && held.write(now)
            && held.watch(&self.epoll, now);
        if !open && let Some(mut held) = self.held.remove(&id) {
            held.with.close(&mut self.counts, host);
        }
    }

    fn expire(&mut self, now: Nanos, host: &mut impl Host) {
        let times = self.times;
        let due = |held: &Held| held.with.deadline(&times).is_some_and(|due| due <= now);
        let due: Vec<_> = self.held.iter().filter(|(_, held)| due(held)).map(|(id, _)| *id).collect();
        for id in due {
            let Some(held) = self.held.get_mut(&id) else { continue };
            let progress = held.with.expire(now, &times, &mut self.counts);
            if progress == Progress::Open && held.write(now) && held.watch(&self.epoll, now) {
                continue;
            }
            if let Some(mut held) = self.held.remove(&id) {
                held.with.close(&mut self.counts, host);
            }
        }
    }
}

struct Door<'a> {
    token: &'a Token,
    times: &'a Times,
}

impl Held {
    /// Sends what is to be sent. Returns whether the connection goes on.
    fn write(&mut self, now: Nanos) -> bool {
        while !self.with.output(now).is_empty() {
            let sent = match &mut self.stream {
                Stream::Tcp(stream) => stream.write(self.with.output(now)),
                Stream::Unix(stream) => stream.write(self.with.output(now)),
            };
            match sent {
                Ok(0) => return false,
                Ok(bytes) if self.with.sent(bytes, now) == Progress::Over => return false,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Hears what has come, once. Returns whether the connection goes on.
    fn read(&mut self, now: Nanos, door: &Door<'_>, counts: &mut Counts, host: &mut impl Host) -> bool {
        if !self.with.wants_input() {
            return true;
        }
        let mut bytes = [0; 4096];
        let read = match &mut self.stream {
            Stream::Tcp(stream) => stream.read(&mut bytes),
            Stream::Unix(stream) => {
                // Strangers have nothing to hand over.
                let wanted = |fd: BorrowedFd<'_>| self.with.is_welcome() && handed::is_link(fd);
                handed::receive(stream, &mut bytes, wanted).map_err(io::Error::from).map(|(read, socket)| {
                    socket.into_iter().for_each(|socket| self.with.hand(socket));
                    read
                })
            }
        };
        let come = match read {
            Ok(0) => return false,
            Ok(come) => come,
            // Requests that came with the one before, which had to be answered first.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(_) => return false,
        };
        self.with.receive(&bytes[..come], now, door.token, door.times, counts, host) == Progress::Open
    }

    /// Waits for what comes next.
    fn watch(&mut self, epoll: &OwnedFd, now: Nanos) -> bool {
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, self.with.wants_input());
        // A request that waits behind an answered one is served when the socket can be written to, that is at once.
        interest.set(EventFlags::OUT, !self.with.output(now).is_empty() || self.with.has_request());
        if interest == self.interest {
            return true;
        }
        self.interest = interest;
        epoll::modify(epoll, self.stream.as_fd(), EventData::new_u64(self.with.id()), interest).is_ok()
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
                // The mode of the socket's name says the same, but for the moment before it was set.
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
            handed::drain(stream);
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

/// Has the kernel ask now and then whether the other side is still there.
pub(super) fn keep_alive(fd: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(fd, KEEPALIVE_EACH)?;
    sockopt::set_tcp_keepcnt(fd, 4)?;
    Ok(())
}

fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket = path.symlink_metadata().is_ok_and(|there| there.file_type().is_socket());
    if is_socket && is_orphaned(path)? {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(listener)
}

/// Whether nobody listens behind a socket in the file system: it refuses connections. One whose queue is full has an owner
/// (`EAGAIN`), which a blocking connection would wait for.
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
    use super::super::conversation::tests::Desk;
    use super::*;
    use crate::handed::tests::{LINGERS, hand, lingering};

    #[test]
    fn a_lingering_socket_from_a_stranger_does_not_block_the_target() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let token = Token::random().unwrap();
        let mut control = Control::listen(&Listen::Unix(path.clone()), token, Limits::default()).unwrap();
        let began = Instant::now();
        let (mut strangers, mut peers) = (Vec::new(), Vec::new());
        for count in 1..=2 {
            let stranger = UnixStream::connect(&path).unwrap();
            let (fd, peer) = lingering();
            hand(&stranger, fd);
            if count == 2 {
                stranger.shutdown(std::net::Shutdown::Both).unwrap(); // closed unread
            }
            strangers.push(stranger);
            peers.push(peer);
            while control.counts().begun < count {
                control.progress(&mut Desk::default()).unwrap();
            }
            control.progress(&mut Desk::default()).unwrap();
        }
        drop(control);
        assert!(began.elapsed() < LINGERS / 2);
    }

    #[test]
    fn a_socket_whose_queue_is_full_has_an_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let owner = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&owner, 0).unwrap();
        let _queued = UnixStream::connect(&path).unwrap(); // one more would wait until this one is accepted
        assert_eq!(bind_unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(owner);
        bind_unix(&path).unwrap();
    }
}
