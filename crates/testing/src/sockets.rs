//! Sockets in states that are hard to reach.

use rustix::fd::OwnedFd;
use rustix::net::sockopt::set_socket_linger;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Returns a TCP connection whose close blocks for `time`, because its peer does not read, and the peer.
///
/// # Panics
/// If the loopback interface has no TCP.
pub fn lingering_socket(time: Duration) -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a TCP port");
    let mut near = TcpStream::connect(listener.local_addr().expect("a local address")).expect("a connection");
    let (far, _) = listener.accept().expect("a connection");
    near.set_nonblocking(true).expect("a socket that does not block");
    while near.write(&[0; 1 << 16]).is_ok() {}
    set_socket_linger(&near, Some(time)).expect("a socket that lingers");
    (near.into(), far)
}
