//! A UDP socket.
//!
//! Datagrams of equal length are passed to the kernel in batches (GSO), and received in batches where the kernel has
//! joined them (GRO). The network, and the receiver's socket when its buffer is full, drop datagrams; they may also
//! arrive in another order. A peer that is not there is silence: its host's ICMP messages are ignored, because the peer
//! may start later. An error of a system call is not permanent.
//!
//! A [`UdpSocket`] becomes the one end of a path, and a [`UdpPort`] has an end of a path to each of several peers.

mod icmp;
mod incoming;
mod outgoing;
mod port;

use super::Carrier;
use crate::IoError;
use crate::udp::sys;
use incoming::Incoming;
use outgoing::Outgoing;
pub use port::UdpPort;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Socket buffers to request, in bytes of the kernel's accounting.
const SOCKET_BUFFER_BYTES: usize = 8 << 20;
/// Bytes of the UDP header.
const UDP_HEADER: usize = 8;

/// A bound socket without a peer.
#[derive(Debug)]
pub struct UdpSocket {
    fd: Arc<OwnedFd>,
    local: SocketAddr,
}

impl UdpSocket {
    /// Takes a socket that was bound to `address`, or the error of opening it.
    fn new(opened: io::Result<OwnedFd>, address: SocketAddr) -> Result<Self, IoError> {
        let unavailable = || format!("cannot bind UDP {address}");
        let fd = opened.map_err(failed(
            unavailable(),
            "; another process may own this port (ss -ulpn), or the address is not on this machine (ip addr)",
        ))?;
        for receive in [true, false] {
            sys::set_buffer(&fd, receive, SOCKET_BUFFER_BYTES)
                .map_err(failed("cannot set the socket's buffers".into(), ""))?;
        }
        let local = rustix::net::getsockname(&fd).map_err(failed(unavailable(), ""))?;
        Ok(Self { fd: Arc::new(fd), local: SocketAddr::try_from(local).unwrap_or(address) })
    }

    /// Returns the bound address, with the port that the kernel chose if none was given.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Connects the socket to the peer's address, from which alone it then receives. Nothing is sent, and the peer need
    /// not be there.
    ///
    /// `max_datagram` is the maximum length of a datagram to send; `None` is as much as the path takes in one packet.
    ///
    /// # Errors
    /// [`IoError::System`] if there is no route to the peer, [`IoError::Config`] if `max_datagram` is 0 or more than the
    /// path takes.
    pub fn connect(self, peer: SocketAddr, max_datagram: Option<usize>) -> Result<UdpCarrier, IoError> {
        sys::connect(&self.fd, peer).map_err(failed(
            format!("cannot reach {peer} from {}", self.local),
            "; ip route get shows the route, and both addresses must be of one family",
        ))?;
        let unusable = || format!("cannot configure the socket to {peer}");
        let most = path_max(&self.fd, peer).map_err(failed(unusable(), ""))?;
        let max = max_datagram.unwrap_or(most);
        if !(1..=most).contains(&max) {
            return Err(IoError::Config(format!(
                "expected a maximum datagram of 1 to {most} bytes, which is what the path to {peer} takes, found {max}"
            )));
        }
        rustix::io::ioctl_fionbio(&self.fd, true).map_err(failed(unusable(), ""))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed(unusable(), ""))?;
        epoll::add(&epoll, &self.fd, EventData::new_u64(0), EventFlags::IN).map_err(failed(unusable(), ""))?;
        Ok(UdpCarrier {
            fd: self.fd,
            epoll,
            waits_for_space: false,
            peer,
            max,
            outgoing: Outgoing::new(max),
            incoming: Incoming::new(peer),
        })
    }
}

/// Returns the maximum payload in bytes of one packet to the connected peer.
fn path_max(fd: &OwnedFd, peer: SocketAddr) -> Result<usize, Errno> {
    let (mtu, header, max) = match peer {
        SocketAddr::V4(_) => (sockopt::ip_mtu(fd)?, 20, usize::from(u16::MAX) - 20 - UDP_HEADER),
        SocketAddr::V6(_) => (sockopt::ipv6_mtu(fd)?, 40, usize::from(u16::MAX) - UDP_HEADER),
    };
    Ok((mtu as usize).saturating_sub(header + UDP_HEADER).min(max))
}

/// One end of a path over UDP.
pub struct UdpCarrier {
    /// Shared with the [`UdpPort`], which does not keep it open.
    fd: Arc<OwnedFd>,
    /// Readable when the socket is readable, or writable if this end waits for space.
    epoll: OwnedFd,
    waits_for_space: bool,
    peer: SocketAddr,
    max: usize,
    outgoing: Outgoing,
    incoming: Incoming,
}

impl std::fmt::Debug for UdpCarrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpCarrier").field("peer", &self.peer).field("max", &self.max).finish_non_exhaustive()
    }
}

impl UdpCarrier {
    /// Binds a socket to a local address; port 0 lets the kernel choose one.
    ///
    /// # Errors
    /// [`IoError::System`] if the address is not available.
    pub fn bind(address: SocketAddr) -> Result<UdpSocket, IoError> {
        UdpSocket::new(sys::open(address), address)
    }

    /// Returns the address of the peer.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Registers whether this end waits for space in the socket.
    fn set_interest(&mut self) -> Result<(), Errno> {
        let waits = self.outgoing.has_batches();
        if waits != self.waits_for_space {
            let flags = if waits { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, &self.fd, EventData::new_u64(0), flags)?;
            self.waits_for_space = waits;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), IoError> {
        self.outgoing.send(&self.fd).map_err(|source| {
            let hint = match source.raw_os_error() {
                Some(libc::EMSGSIZE) => "; the path's MTU has become smaller: set a smaller maximum datagram",
                Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => "; there is no route to it (ip route get)",
                _ => "",
            };
            IoError::System { what: format!("sending to {}", self.peer), source, hint }
        })
    }
}

impl Carrier for UdpCarrier {
    fn max_datagram(&self) -> usize {
        self.max
    }

    #[inline]
    fn remaining(&mut self) -> usize {
        self.outgoing.remaining()
    }

    #[inline]
    fn append(&mut self, bytes: &[u8]) {
        self.outgoing.append(bytes);
    }

    fn finish(&mut self) -> Result<(), IoError> {
        self.outgoing.finish();
        if self.outgoing.is_full() { self.send() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.send()
    }

    fn receive(&mut self) -> Result<Option<&mut [u8]>, IoError> {
        let peer = self.peer;
        self.incoming.next(&self.fd).map_err(|source| IoError::System {
            what: format!("receiving from {peer}"),
            source,
            hint: "",
        })
    }

    /// Returns `true` also if datagrams are in the socket: the descriptor is readable then.
    fn prepare_sleep(&mut self) -> bool {
        !self.incoming.has_more() && self.set_interest().is_ok()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn failed<E: Into<io::Error>>(what: String, hint: &'static str) -> impl FnOnce(E) -> IoError {
    move |error| IoError::System { what, source: error.into(), hint }
}
