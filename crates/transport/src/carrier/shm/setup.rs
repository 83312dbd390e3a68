//! Setup of a path between two processes.

use super::end::ShmCarrier;
use super::socket::WakeSocket;
use super::sys::SharedRing;
use crate::IoError;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::time::{Duration, Instant};

/// Timeout for the peer's first message.
const SETUP_TIMEOUT: Duration = Duration::from_secs(5);

/// One end of an incomplete path: it has sent its first message.
#[derive(Debug)]
pub struct ShmOffer {
    socket: WakeSocket,
    mine: SharedRing,
}

impl ShmOffer {
    /// Waits at most 5 s for the peer's first message, and completes the path.
    ///
    /// # Errors
    /// [`IoError::InvalidPeer`] if it is not valid, [`IoError::Disconnected`] if the peer has closed the socket,
    /// [`IoError::System`] if there is none in time.
    pub fn join(self) -> Result<ShmCarrier, IoError> {
        let end = Instant::now() + SETUP_TIMEOUT;
        loop {
            match self.socket.receive_hello() {
                Ok(memory) => return self.complete(memory),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::CONNRESET | Errno::PIPE) => return Err(IoError::Disconnected),
                Err(error) => return Err(failed(error)),
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(IoError::System {
                    what: "setting up a shared-memory path".into(),
                    source: Errno::TIMEDOUT.into(),
                    hint: "; the process at the other end of the socket has sent nothing for 5 s",
                });
            }
            crate::sys::wait(self.socket.fd(), left).map_err(failed)?;
        }
    }

    /// Completes the path with the peer's first message, which must have arrived. Never blocks.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn join_now(self) -> Result<ShmCarrier, IoError> {
        let memory = self.socket.receive_hello().map_err(failed)?;
        self.complete(memory)
    }

    fn complete(self, memory: Option<OwnedFd>) -> Result<ShmCarrier, IoError> {
        let theirs = memory.and_then(SharedRing::of_peer);
        let theirs = theirs.ok_or(super::invalid("a first message of another kind"))?;
        Ok(ShmCarrier::new(self.socket, self.mine, theirs))
    }
}

impl ShmCarrier {
    /// Makes one end over a connected `SOCK_SEQPACKET` Unix socket, such as an inherited one. Waits at most 5 s for the
    /// process at the other end to do the same.
    ///
    /// # Errors
    /// See [`Self::offer`] and [`ShmOffer::join`].
    pub fn over(socket: OwnedFd) -> Result<Self, IoError> {
        Self::offer(socket)?.join()
    }

    /// Sends the first message over one end of a connected `SOCK_SEQPACKET` Unix socket. The other end can then be
    /// passed on.
    ///
    /// # Errors
    /// [`IoError::Config`] if the shared memory cannot be allocated, [`IoError::System`] if the socket fails.
    pub fn offer(socket: OwnedFd) -> Result<ShmOffer, IoError> {
        let socket = WakeSocket::new(socket);
        let mine = SharedRing::new().map_err(|error| IoError::Config(error.to_string()))?;
        socket.send_hello(mine.fd()).map_err(failed)?;
        Ok(ShmOffer { socket, mine })
    }

    /// Creates both ends in this process.
    ///
    /// # Errors
    /// If the kernel refuses sockets or memory.
    pub fn pair() -> Result<(Self, Self), IoError> {
        let (near, far) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(failed)?;
        let (near, far) = (Self::offer(near)?, Self::offer(far)?);
        Ok((near.join()?, far.join()?))
    }
}

fn failed(error: impl Into<std::io::Error>) -> IoError {
    IoError::System { what: "setting up a shared-memory path".into(), source: error.into(), hint: "" }
}
