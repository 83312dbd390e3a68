//! The socket on which a driver and the card meet.

use super::error::CardError;
use super::window::{self, MAX_EVENTS, Window};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with, sockopt,
};
use shotline_transport::fd_passing::{discard, drain, receive_all, send};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Connections that wait to be closed.
const BACKLOG: i32 = 8;
/// Bytes of a request.
const REQUEST: usize = 32;

/// A socket that waits for drivers. Its file is removed on drop.
#[derive(Debug)]
pub(super) struct Listener {
    fd: OwnedFd,
    path: PathBuf,
}

impl Listener {
    /// Listens at a path, from which the file of an earlier process is removed.
    ///
    /// # Errors
    /// If something else is there, or as the system calls.
    pub fn bind(path: &Path) -> Result<Self, CardError> {
        remove_stale(path)?;
        let attempt = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            bind(&fd, &SocketAddrUnix::new(path)?)?;
            listen(&fd, BACKLOG).map(|()| fd)
        };
        match attempt() {
            Ok(fd) => Ok(Self { fd, path: path.into() }),
            Err(error) => Err(failed(format!("cannot listen at {}", path.display()), error)),
        }
    }

    /// Returns the next connection, if there is one.
    pub fn accept(&self) -> Option<OwnedFd> {
        accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn failed(what: String, error: Errno) -> CardError {
    CardError::System { what, source: error.into() }
}

/// Removes the socket file of a process that has ended.
fn remove_stale(path: &Path) -> Result<(), CardError> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let other = |found, what| CardError::Path { path: path.into(), found, what };
    if !found.file_type().is_socket() {
        return Err(other("a file that is no socket", "choose another path"));
    }
    // A driver would be connected by another type of socket.
    let attempt = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .and_then(|fd| connect(&fd, &SocketAddrUnix::new(path)?));
    match attempt {
        Err(Errno::CONNREFUSED) => {
            let what = || format!("no process listens at {}, but it cannot be removed", path.display());
            std::fs::remove_file(path).map_err(|source| CardError::System { what: what(), source })
        }
        Ok(()) | Err(Errno::PROTOTYPE) => {
            Err(other("a socket at which another process listens", "end it (ss -xlp), or choose another path"))
        }
        Err(error) => Err(failed(format!("cannot determine whether a process listens at {}", path.display()), error)),
    }
}

/// Waits until one of the descriptors is readable, or for a time.
pub(super) fn wait(fds: &[BorrowedFd<'_>], timeout: Duration) {
    let mut polled = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect::<Vec<_>>();
    let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
    // An error is found by the next call on the descriptor.
    let _ = rustix::event::poll(&mut polled, Some(&timeout));
}

/// What a driver requests.
#[derive(Debug)]
pub(super) enum Request {
    /// To map a part of a file.
    Map { address: u64, length: u64, offset: u64, fd: OwnedFd },
    /// To unmap memory.
    Unmap { address: u64, length: u64 },
    /// To raise the interrupts of channels from this one on.
    Events { first: usize, fds: Vec<OwnedFd> },
}

/// A connection to a driver.
#[derive(Debug)]
pub(super) struct Peer(OwnedFd);

impl Peer {
    /// Greets a driver.
    ///
    /// # Errors
    /// If it has gone.
    pub fn new(fd: OwnedFd, window: &Window) -> Result<Self, Errno> {
        let mut hello = [0; 16];
        hello[..4].copy_from_slice(&window::MAGIC.to_le_bytes());
        hello[4..8].copy_from_slice(&window::VERSION.to_le_bytes());
        hello[8..].copy_from_slice(&(window::BYTES as u64).to_le_bytes());
        let peer = Self(fd);
        send(&peer.0, &hello, Some(window.fd()))?;
        Ok(peer)
    }

    /// Returns the number of the driver's process, 0 if it is not known.
    pub fn pid(&self) -> i32 {
        sockopt::socket_peercred(&self.0).map_or(0, |peer| peer.pid.as_raw_nonzero().get())
    }

    /// Receives a request: `None` if there is none, an error of the request if it is wrong.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn receive(&self) -> Result<Option<Result<Request, Errno>>, Errno> {
        let mut bytes = [0; REQUEST + 1];
        let (received, fds) = match receive_all(&self.0, &mut bytes) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error),
        };
        match received {
            // The end of the connection. An empty message looks the same.
            0 => {
                discard(fds);
                Err(Errno::CONNRESET)
            }
            REQUEST => Ok(Some(request(&bytes, fds))),
            _ => {
                discard(fds);
                Ok(Some(Err(Errno::INVAL)))
            }
        }
    }

    /// Answers the last request.
    ///
    /// # Errors
    /// If the connection has ended, or the driver does not read its answers.
    pub fn answer(&self, result: Result<(), Errno>) -> Result<(), Errno> {
        let error = result.map_or_else(Errno::raw_os_error, |()| 0);
        send(&self.0, &error.to_le_bytes(), None)
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drain(&self.0);
    }
}

/// Closes a connection without a word.
pub(super) fn refuse(fd: &OwnedFd) {
    drain(fd);
}

/// Decodes a request.
fn request(bytes: &[u8; REQUEST + 1], mut fds: Vec<OwnedFd>) -> Result<Request, Errno> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a slice of 8 bytes"));
    let (kind, address, length, offset) = (word(0) as u32, word(8), word(16), word(24));
    match (kind, fds.len()) {
        (window::MAP, 1) => {
            let fd = fds.remove(0);
            Ok(Request::Map { address, length, offset, fd })
        }
        (window::UNMAP, 0) => Ok(Request::Unmap { address, length }),
        (window::EVENTS, 1..=MAX_EVENTS) if fds.iter().all(|fd| is_event(fd.as_fd())) => match usize::try_from(address)
        {
            Ok(first) => Ok(Request::Events { first, fds }),
            Err(_) => Err(Errno::INVAL),
        },
        _ => {
            discard(fds);
            Err(Errno::INVAL)
        }
    }
}

/// Returns `true` if a descriptor is an eventfd.
fn is_event(fd: BorrowedFd<'_>) -> bool {
    let name = rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new());
    name.is_ok_and(|name| name.as_bytes() == b"anon_inode:[eventfd]")
}

/// Adds 1 to an eventfd, unless that would block.
pub(super) fn signal(fd: &OwnedFd) {
    let mut polled = [PollFd::new(fd, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if rustix::event::poll(&mut polled, Some(&now)) == Ok(1) && polled[0].revents().contains(PollFlags::OUT) {
        // If it has been counted to its end, the driver has not looked for an eternity.
        let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::net::socketpair;
    use shotline_random::SplitMix64;

    fn pair() -> (Peer, Peer) {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        (Peer(ours), Peer(theirs))
    }

    fn message(kind: u32, address: u64) -> [u8; REQUEST] {
        let mut bytes = [0; REQUEST];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[8..16].copy_from_slice(&address.to_le_bytes());
        bytes
    }

    #[test]
    fn requests_need_the_right_length_and_descriptors() {
        let (ours, theirs) = pair();
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let is_right = |bytes: &[u8], fd: Option<BorrowedFd<'_>>| {
            send(&theirs, bytes, fd).unwrap();
            ours.receive().unwrap().unwrap().is_ok()
        };
        assert!(ours.receive().unwrap().is_none());
        assert!(is_right(&message(window::MAP, 0), Some(file.as_fd())));
        assert!(is_right(&message(window::UNMAP, 0), None));
        assert!(is_right(&message(window::EVENTS, 255), Some(event.as_fd())));
        assert!(!is_right(&message(window::EVENTS, 0), Some(file.as_fd())), "no eventfd");
        assert!(!is_right(&message(window::EVENTS, 0), None));
        assert!(!is_right(&message(window::MAP, 0), None));
        assert!(!is_right(&message(window::UNMAP, 0), Some(file.as_fd())));
        assert!(!is_right(&message(window::MAP, 0)[1..], Some(file.as_fd())));
        assert!(!is_right(&[0; REQUEST + 1], Some(file.as_fd())));
        assert!(!is_right(&[0; 4096], Some(file.as_fd())));
        assert!(!is_right(&message(3, 0), None));
        send(&theirs, &[], None).unwrap();
        assert_eq!(ours.receive().unwrap_err(), Errno::CONNRESET);
        drop(theirs);
        assert_eq!(ours.receive().unwrap_err(), Errno::CONNRESET);
        assert!(ours.answer(Ok(())).is_err());
    }

    #[test]
    fn random_messages_are_answered_or_end_the_connection() {
        let mut random = SplitMix64::new(5);
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let (ours, theirs) = pair();
        for _ in 0..2000 {
            let mut bytes = vec![0; random.below(80) as usize];
            random.fill_bytes(&mut bytes);
            if let Some(kind) = bytes.first_chunk_mut::<4>() {
                *kind = (random.below(5) as u32).to_le_bytes();
            }
            send(&theirs, &bytes, (random.below(2) == 0).then_some(event.as_fd())).unwrap();
            let received = ours.receive();
            assert_eq!(received.is_err(), bytes.is_empty());
        }
    }

    #[test]
    fn an_interrupt_never_blocks() {
        let event = eventfd(0, EventfdFlags::empty()).unwrap();
        rustix::io::write(&event, &(u64::MAX - 2).to_ne_bytes()).unwrap();
        signal(&event);
        signal(&event);
        let mut count = [0; 8];
        rustix::io::read(&event, &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), u64::MAX - 1);
    }
}
