//! Setup of a link between two processes.

use super::board::Board;
use super::control::{Control, Message, Received};
use super::endpoint::ShmEndpoint;
use super::failed;
use super::wakeups::timespec;
use crate::api::VerbsError;
use crate::dial;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Timeout for the peer to accept a connection, and for its first message.
const SETUP_TIMEOUT: Duration = Duration::from_secs(5);

/// A listening socket for processes of the same user.
#[derive(Debug)]
pub struct ShmListener {
    socket: OwnedFd,
    path: PathBuf,
}

impl ShmListener {
    /// Listens at a path, which must not exist. Only processes of this user may connect.
    ///
    /// # Errors
    /// [`VerbsError::Io`] if the socket cannot be created there.
    pub fn bind(path: impl AsRef<Path>) -> Result<Self, VerbsError> {
        let path = path.as_ref();
        let socket = packet_socket()?;
        // Before it is bound, so that it is never open to others.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path).map_err(failed)?).map_err(failed)?;
        rustix::net::listen(&socket, 16).map_err(failed)?;
        Ok(Self { socket, path: path.into() })
    }
    /// Waits for the next process and sets up a link with it.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if the process is of another user or sends no valid first message within 5 s,
    /// [`VerbsError::Io`] if the socket fails.
    pub fn accept(&self) -> Result<ShmEndpoint, VerbsError> {
        let socket = rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC).map_err(failed)?;
        let theirs = rustix::net::sockopt::socket_peercred(&socket).map_err(failed)?.uid;
        if theirs != rustix::process::geteuid() {
            return Err(VerbsError::Invalid("rejected the connection of another user's process".into()));
        }
        ShmEndpoint::over(socket)
    }
    /// Returns a descriptor that is readable when [`Self::accept`] does not block.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for ShmListener {
    fn drop(&mut self) {
        let _ = rustix::fs::unlink(&self.path);
    }
}

/// One side of an incomplete link: it has sent its first message.
#[derive(Debug)]
pub struct ShmOffer {
    control: Control,
    mine: Board,
}

impl ShmOffer {
    fn new(socket: OwnedFd) -> Result<Self, VerbsError> {
        let (mine, mut control) = (Board::new()?, Control::new(socket));
        control.send(Message::Hello(rustix::io::dup(mine.fd()).map_err(failed)?));
        Ok(Self { control, mine })
    }

    /// Waits at most 5 s for the peer's first message, and completes the link.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if there is none or it is not valid.
    pub fn join(self) -> Result<ShmEndpoint, VerbsError> {
        let end = Instant::now() + SETUP_TIMEOUT;
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

    /// Completes the link with the peer's first message, which must have arrived.
    fn join_now(mut self) -> Result<ShmEndpoint, VerbsError> {
        let incompatible = || VerbsError::Invalid("the peer is not a Shotline endpoint of this version".into());
        match self.control.receive() {
            Received::Message(Message::Hello(board)) => {
                let theirs = Board::of_peer(board).ok_or_else(incompatible)?;
                ShmEndpoint::new(self.control, self.mine, theirs)
            }
            Received::Nothing => {
                let text =
                    "the peer has sent no hello over the socket: call ShmEndpoint::offer before the socket is passed";
                Err(VerbsError::Invalid(text.into()))
            }
            _ => Err(incompatible()),
        }
    }
}

impl ShmEndpoint {
    /// Connects to the process that listens at a path. Waits at most 5 s until it accepts.
    ///
    /// # Errors
    /// [`VerbsError::Io`] if no process listens there; otherwise see [`ShmOffer::join`].
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, VerbsError> {
        let socket = dial::unix(path.as_ref(), SocketType::SEQPACKET, SETUP_TIMEOUT);
        Self::over(socket.map_err(super::failure)?)
    }

    /// Sets up a link over a connected `SOCK_SEQPACKET` socket, such as an inherited one. Waits at most 5 s for the
    /// process at the other end to do the same.
    ///
    /// # Errors
    /// See [`ShmOffer::join`].
    pub fn over(socket: OwnedFd) -> Result<Self, VerbsError> {
        Self::offer(socket)?.join()
    }

    /// Sends the first message over one end of a connected `SOCK_SEQPACKET` socket. The other end can then be passed
    /// on.
    ///
    /// # Errors
    /// [`VerbsError::Memory`] if the shared memory of this side cannot be allocated.
    pub fn offer(socket: OwnedFd) -> Result<ShmOffer, VerbsError> {
        ShmOffer::new(socket)
    }

    /// Completes a link over a socket on whose other end [`Self::offer`] was called before. Never blocks.
    ///
    /// # Errors
    /// See [`ShmOffer::join`].
    pub fn from_offered_socket(socket: OwnedFd) -> Result<Self, VerbsError> {
        Self::offer(socket)?.join_now()
    }

    /// Creates two linked endpoints in this process.
    ///
    /// # Errors
    /// If the kernel refuses sockets or memory.
    pub fn pair() -> Result<(Self, Self), VerbsError> {
        let (a, b) = Self::sockets()?;
        let (a, b) = (Self::offer(a)?, Self::offer(b)?);
        Ok((a.join()?, b.join()?))
    }

    /// Creates the two ends of a socket for [`Self::over`], one for this process and one to pass on.
    ///
    /// # Errors
    /// [`VerbsError::Io`] if the kernel refuses.
    pub fn sockets() -> Result<(OwnedFd, OwnedFd), VerbsError> {
        let flags = SocketFlags::CLOEXEC;
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed)
    }
}

fn packet_socket() -> Result<OwnedFd, VerbsError> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed)
}
