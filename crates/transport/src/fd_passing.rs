//! File descriptors passed over Unix sockets.
//!
//! The sender chooses the descriptors, and this process may close the last copy: closing a TCP socket with SO_LINGER
//! then blocks for the time that the sender has set. Descriptors that do not fit in the receive buffer, or are never
//! read, are closed by the kernel in the receiver's context. So all of them are received here, and SO_LINGER is cleared
//! before they are closed.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown, SocketType};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg, sendmsg, shutdown, sockopt};
use std::mem::MaybeUninit;

/// Maximum descriptors of one message (the kernel's SCM_MAX_FD).
const MAX_FDS: usize = 253;
/// Maximum messages read from one socket's queue.
const MAX_QUEUED: usize = 1024;

/// Sends bytes without blocking, with a copy of a descriptor.
///
/// # Errors
/// `AGAIN` if the socket's buffer is full, otherwise those of `sendmsg`.
pub fn send(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags).map(drop)
}

/// Receives bytes without blocking, and the first descriptor that is `wanted`. The other descriptors are discarded.
///
/// # Errors
/// `AGAIN` if there are none, otherwise those of `recvmsg`.
pub fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    wanted: impl Fn(BorrowedFd<'_>) -> bool,
) -> Result<(usize, Option<OwnedFd>), Errno> {
    let (received, mut all) = receive_all(&socket, bytes)?;
    let first = all.iter().position(|fd| wanted(fd.as_fd()));
    let first = first.map(|first| all.swap_remove(first));
    discard(all);
    Ok((received, first))
}

/// Reads and discards the pending messages of a Unix socket that is about to be closed. Nothing more can be sent to it.
pub fn drain(socket: impl AsFd) {
    discard(take_queued(socket));
}

/// Closes received descriptors, and those pending in their queues.
pub fn discard(mut all: Vec<OwnedFd>) {
    while let Some(fd) = all.pop() {
        let _ = sockopt::set_socket_linger(&fd, None); // fails for other descriptors, which do not linger
        if sockopt::socket_domain(&fd) == Ok(AddressFamily::UNIX) && all.len() < MAX_QUEUED {
            all.extend(take_queued(&fd));
        }
    }
}

/// Returns `true` if a descriptor is a `SOCK_SEQPACKET` Unix socket, as a shared-memory link needs.
pub fn is_link(fd: BorrowedFd<'_>) -> bool {
    sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX) && sockopt::socket_type(fd) == Ok(SocketType::SEQPACKET)
}

/// Returns `true` if a descriptor is shared memory: only a memfd has seals.
pub fn is_memory(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_get_seals(fd).is_ok()
}

fn take_queued(socket: impl AsFd) -> Vec<OwnedFd> {
    let _ = shutdown(&socket, Shutdown::Both);
    let is_stream = sockopt::socket_type(&socket) == Ok(SocketType::STREAM);
    let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
    for _ in 0..MAX_QUEUED {
        // A packet may be empty.
        match receive_all(&socket, &mut bytes) {
            Ok((0, _)) if is_stream => break,
            Ok((_, fds)) => all.extend(fds),
            Err(_) => break,
        }
    }
    all
}

/// Receives bytes without blocking, and all descriptors.
///
/// # Errors
/// `AGAIN` if there are none, otherwise those of `recvmsg`.
pub fn receive_all(socket: impl AsFd, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags)?.bytes;
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    Ok((received, rights.flatten().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SocketFlags, socketpair};
    use shotline_testing::lingering_socket;
    use std::time::{Duration, Instant};

    const LINGER_TIME: Duration = Duration::from_secs(20);

    fn pair(kind: SocketType) -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    /// Sends a descriptor and closes the local copy.
    fn send_fd(socket: impl AsFd, fd: OwnedFd) {
        send(socket, b"x", Some(fd.as_fd())).unwrap();
    }

    #[test]
    fn lingering_socket_is_closed_without_delay() {
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            for nested in [false, true] {
                for read in [false, true] {
                    let (theirs, ours) = pair(kind);
                    let (fd, _peer) = lingering_socket(LINGER_TIME);
                    let fd = if nested {
                        let (inner, outer) = pair(kind);
                        send_fd(&inner, fd);
                        outer
                    } else {
                        fd
                    };
                    send_fd(&theirs, fd);
                    let began = Instant::now();
                    if read {
                        assert!(matches!(receive(&ours, &mut [0; 9], is_memory), Ok((1, None))));
                    } else {
                        drain(&ours);
                    }
                    drop(ours);
                    assert!(began.elapsed() < LINGER_TIME / 2, "{kind:?}, nested: {nested}, read: {read}");
                }
            }
        }
    }

    #[test]
    fn first_wanted_descriptor_is_kept() {
        let (theirs, ours) = pair(SocketType::SEQPACKET);
        send_fd(&theirs, std::fs::File::open("/dev/null").unwrap().into());
        send_fd(&theirs, rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap());
        send_fd(&theirs, pair(SocketType::SEQPACKET).0);
        let kept = || receive(&ours, &mut [0; 9], |fd| is_memory(fd) || is_link(fd)).unwrap().1;
        assert_eq!([kept().is_some(), kept().is_some(), kept().is_some()], [false, true, true]);
    }
}
