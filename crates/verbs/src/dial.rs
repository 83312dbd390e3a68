//! Connecting with a timeout. A signal ends the wait.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};
use rustix::time::Timespec;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between two attempts while a listener's backlog is full: the kernel has no notification for it.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Connects to the Unix socket at a path.
pub(crate) fn unix(path: &Path, kind: SocketType, timeout: Duration) -> io::Result<OwnedFd> {
    let end = Instant::now() + timeout;
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, kind, FLAGS, None)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::AGAIN) if Instant::now() < end => _ = poll(&mut [], Some(&timespec(RETRY_INTERVAL)))?,
            Err(Errno::AGAIN) => return Err(timed_out("the listener's backlog was full", timeout)),
            Err(error) => return Err(error.into()),
        }
    }
    ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

/// Connects by TCP from an address of this machine (any, if `from` is `None`).
pub(crate) fn tcp(to: SocketAddr, from: Option<IpAddr>, timeout: Duration) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, FLAGS, Some(ipproto::TCP))?;
    if let Some(from) = from.filter(|from| !from.is_unspecified()) {
        rustix::net::bind(&socket, &SocketAddr::new(from, 0))?;
    }
    match connect(&socket, &to) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            if poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&timespec(timeout)))? == 0 {
                return Err(timed_out("no answer", timeout));
            }
            sockopt::socket_error(&socket)??;
        }
        Err(error) => return Err(error.into()),
    }
    ioctl_fionbio(&socket, false)?;
    Ok(TcpStream::from(socket))
}

fn timed_out(what: &str, timeout: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} for {} s", timeout.as_secs_f64()))
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    const SHORT: Duration = Duration::from_millis(50);

    #[test]
    fn connecting_to_a_full_listener_times_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("listener");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _queued = unix(&path, SocketType::STREAM, SHORT).unwrap();
        let error = unix(&path, SocketType::STREAM, SHORT).unwrap_err();
        assert_eq!((error.kind(), error.to_string().contains("full for 0.05 s")), (io::ErrorKind::TimedOut, true));

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let (to, own) = (listener.local_addr().unwrap(), Some([127, 0, 0, 1].into()));
        let tried: Vec<_> = (0..3).map(|_| tcp(to, own, SHORT)).collect();
        let error = tried.into_iter().find_map(Result::err).expect("the queue takes one or two");
        assert_eq!((error.kind(), error.to_string().contains("for 0.05 s")), (io::ErrorKind::TimedOut, true));
    }

    #[test]
    fn connected_socket_is_blocking() {
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let stream = tcp(listener.local_addr().unwrap(), Some("::1".parse().unwrap()), SHORT).unwrap();
        assert!(!rustix::fs::fcntl_getfl(&stream).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
    }
}
