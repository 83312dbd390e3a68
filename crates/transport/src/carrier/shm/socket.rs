//! The socket between the two ends: it passes the shared memory, wakes an end that sleeps, and shows when the peer has
//! gone.

use crate::fd_passing;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// First message of each end, which passes its memory.
const HELLO: [u8; 8] = *b"shtlCar1";
/// Wakes the peer.
const WAKE: [u8; 1] = [1];
/// Maximum number of messages read at once: a peer could send them faster than this end reads.
const MAX_READ: usize = 64;

/// A connected `SOCK_SEQPACKET` Unix socket.
#[derive(Debug)]
pub(super) struct WakeSocket(OwnedFd);

impl WakeSocket {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Passes the shared memory of this end.
    pub(super) fn send_hello(&self, memory: BorrowedFd<'_>) -> Result<(), Errno> {
        fd_passing::send(&self.0, &HELLO, Some(memory))
    }

    /// Receives the shared memory of the peer without blocking; `None` if the message is not a hello, `CONNRESET` if the
    /// peer has closed the socket.
    pub(super) fn receive_hello(&self) -> Result<Option<OwnedFd>, Errno> {
        let mut bytes = [0; HELLO.len() + 1];
        let (len, memory) = fd_passing::receive(&self.0, &mut bytes, fd_passing::is_memory)?;
        if len == 0 {
            return Err(Errno::CONNRESET);
        }
        Ok(memory.filter(|_| bytes[..len] == HELLO))
    }

    /// Wakes the peer. If the socket is full, unread messages wake it anyway; if the peer has gone, [`Self::drain`]
    /// reports it.
    pub(super) fn wake(&self) {
        let _ = fd_passing::send(&self.0, &WAKE, None);
    }

    /// Reads wake-ups that have arrived. Returns `false` if the peer has gone.
    pub(super) fn drain(&self) -> bool {
        for _ in 0..MAX_READ {
            match fd_passing::receive(&self.0, &mut [0; 8], |_| false) {
                // A read of 0 bytes is the end of the connection: no message is empty.
                Ok((0, _)) => return false,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

impl Drop for WakeSocket {
    fn drop(&mut self) {
        fd_passing::drain(&self.0);
    }
}
