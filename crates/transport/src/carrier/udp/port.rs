//! A local port with paths to several peers.

use super::{UdpCarrier, UdpSocket, failed};
use crate::IoError;
use crate::sys::{attach_filter, filter_instruction, set_option};
use crate::udp::sys;
use rustix::fd::OwnedFd;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

/// A local UDP port with a socket for each peer.
///
/// The sockets are bound to the same local address and connected to their peers. The kernel passes a datagram to the
/// socket that is connected to its sender, so each peer has a receive buffer of its own, which the others cannot fill.
/// One more socket holds the port also while there is no peer. It gets the datagrams of all other senders, and its
/// filter drops them on arrival: nothing has to be received there.
///
/// The kernel binds several sockets to one address if all of them have the option `SO_REUSEPORT`; and then also a
/// socket of another program of the same user, which could take the datagrams of a peer. So the sockets have the option
/// only while another one of this port is bound, and other programs cannot bind the port before or after. What another
/// program binds just then receives nothing of a peer with a socket here, unless it is connected to that peer, too.
#[derive(Debug)]
pub struct UdpPort {
    holder: UdpSocket,
    peers: Vec<(SocketAddr, Weak<OwnedFd>)>,
}

impl UdpPort {
    /// Binds a local address; port 0 lets the kernel choose one.
    ///
    /// # Errors
    /// [`IoError::System`] if the address is not available.
    pub fn bind(address: SocketAddr) -> Result<Self, IoError> {
        let holder = UdpCarrier::bind(address)?;
        attach_filter(&holder.fd, &[filter_instruction(libc::BPF_RET, 0, 0, 0)]) // the filter drops every packet
            .map_err(failed(format!("cannot configure UDP {address}"), ""))?;
        Ok(Self { holder, peers: Vec::new() })
    }

    /// Returns the bound address, with the port that the kernel chose if none was given.
    pub fn local_addr(&self) -> SocketAddr {
        self.holder.local_addr()
    }

    /// Opens a path to a peer, as [`UdpSocket::connect`] does. It ends when the carrier is dropped.
    ///
    /// # Errors
    /// Those of [`UdpSocket::connect`], and [`IoError::Config`] if there is a path to this peer already.
    pub fn connect(&mut self, peer: SocketAddr, max_datagram: Option<usize>) -> Result<UdpCarrier, IoError> {
        self.peers.retain(|(_, fd)| fd.strong_count() > 0);
        if self.peers.iter().any(|(known, _)| *known == peer) {
            let local = self.local_addr();
            return Err(IoError::Config(format!(
                "expected one path from {local} to {peer}, found another one: close it first"
            )));
        }
        let carrier = UdpSocket::new(self.open_beside(), self.local_addr())?.connect(peer, max_datagram)?;
        self.peers.push((peer, Arc::downgrade(&carrier.fd)));
        Ok(carrier)
    }

    /// Opens another socket that is bound to this port.
    fn open_beside(&self) -> io::Result<OwnedFd> {
        let peers = self.peers.iter().filter_map(|(_, fd)| fd.upgrade());
        let sockets: Vec<_> = peers.chain([self.holder.fd.clone()]).collect();
        // The kernel may look at any of them, so all must have the option.
        let set_all = |value| sockets.iter().try_for_each(|fd| set_reuse_port(fd, value));
        let opened = set_all(1).and_then(|()| {
            let address = self.local_addr();
            let fd = sys::open_unbound(address)?;
            set_reuse_port(&fd, 1)?;
            rustix::net::bind(&fd, &address)?;
            set_reuse_port(&fd, 0)?;
            Ok(fd)
        });
        // Also after an error.
        set_all(0)?;
        opened
    }
}

fn set_reuse_port(fd: &OwnedFd, value: libc::c_int) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, value)
}
