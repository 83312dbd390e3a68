//! How two processes come together.

use super::board::Board;
use super::control::{Control, Heard, Message};
use super::endpoint::ShmEndpoint;
use super::failed;
use super::sleep::timespec;
use crate::api::VerbsError;
use crate::dial;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the other side may take to take a connection, and for its first message.
const PATIENCE: Duration = Duration::from_secs(5);

/// A socket that processes of the same user connect to.
#[derive(Debug)]
pub struct ShmListener {
    socket: OwnedFd,
    path: PathBuf,
}

impl ShmListener {
    /// Listens at a path, which must not exist. Only this user may connect.
    pub fn bind(path: impl AsRef<Path>) -> Result<Self, VerbsError> {
        let path = path.as_ref();
        let socket = packets()?;
        // Before it has a name: it is never open to others, not for a moment.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path).map_err(failed)?).map_err(failed)?;
        rustix::net::listen(&socket, 16).map_err(failed)?;
        Ok(Self { socket, path: path.into() })
    }
    /// Waits for the next process and links with it.
    pub fn accept(&self) -> Result<ShmEndpoint, VerbsError> {
        let socket = rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC).map_err(failed)?;
        let theirs = rustix::net::sockopt::socket_peercred(&socket).map_err(failed)?.uid;
        if theirs != rustix::process::geteuid() {
            return Err(VerbsError::Invalid("a process of another user connected and was refused".into()));
        }
        ShmEndpoint::over(socket)
    }
    /// To wait for a process together with others: it is readable when [`Self::accept`] does not wait.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for ShmListener {
    fn drop(&mut self) {
        let _ = rustix::fs::unlink(&self.path);
    }
}

/// One side of a link that waits for the other: it has said hello over its end of a socket.
#[derive(Debug)]
pub struct ShmOffer {
    control: Control,
    mine: Board,
}

impl ShmOffer {
    fn new(socket: OwnedFd) -> Result<Self, VerbsError> {
        let (mine, mut control) = (Board::new()?, Control::new(socket));
        control.tell(Message::Hello(rustix::io::dup(mine.fd()).map_err(failed)?));
        Ok(Self { control, mine })
    }

    /// Waits for the other side to say hello, at most 5 s.
    pub fn join(self) -> Result<ShmEndpoint, VerbsError> {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::from_borrowed_fd(self.control.fd(), PollFlags::IN)];
            match rustix::event::poll(&mut fds, Some(&timespec(left))) {
                Ok(_) => return self.join_now(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Links with the other side, which has said hello.
    fn join_now(mut self) -> Result<ShmEndpoint, VerbsError> {
        let strange = || VerbsError::Invalid("the other side is no Shotline endpoint of this version".into());
        match self.control.hear() {
            Heard::Message(Message::Hello(board)) => {
                let theirs = Board::of_peer(board).ok_or_else(strange)?;
                ShmEndpoint::new(self.control, self.mine, theirs)
            }
            Heard::Nothing => {
                let words = "the other side has not said hello over the socket: offer the link before the socket is handed over";
                Err(VerbsError::Invalid(words.into()))
            }
            _ => Err(strange()),
        }
    }
}

impl ShmEndpoint {
    /// Links with the process that listens at a path. Waits at most 5 s until it takes the connection.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, VerbsError> {
        let socket = dial::unix(path.as_ref(), SocketType::SEQPACKET, PATIENCE);
        Self::over(socket.map_err(super::failure)?)
    }

    /// Links with whoever has the other end of a connected `SOCK_SEQPACKET` socket, such as an inherited one. Waits for
    /// the other side to do the same, at most 5 s.
    pub fn over(socket: OwnedFd) -> Result<Self, VerbsError> {
        Self::offer(socket)?.join()
    }

    /// Says hello over one end of a connected `SOCK_SEQPACKET` socket, whose other end can be handed on then.
    pub fn offer(socket: OwnedFd) -> Result<ShmOffer, VerbsError> {
        ShmOffer::new(socket)
    }

    /// Links over a socket whose other end has offered ([`Self::offer`]) already. Never waits.
    pub fn over_offered(socket: OwnedFd) -> Result<Self, VerbsError> {
        Self::offer(socket)?.join_now()
    }

    /// Two endpoints of one link, in this process.
    pub fn pair() -> Result<(Self, Self), VerbsError> {
        let (a, b) = Self::sockets()?;
        let (a, b) = (Self::offer(a)?, Self::offer(b)?);
        Ok((a.join()?, b.join()?))
    }

    /// Two ends of a socket for [`Self::over`], one for this process and one to hand on.
    pub fn sockets() -> Result<(OwnedFd, OwnedFd), VerbsError> {
        let flags = SocketFlags::CLOEXEC;
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed)
    }
}

fn packets() -> Result<OwnedFd, VerbsError> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed)
}
