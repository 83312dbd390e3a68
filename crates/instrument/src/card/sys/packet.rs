//! Raw sockets on an interface.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with, sockopt};
use std::io;
use std::mem::{size_of, zeroed};

/// Bytes for frames that wait for the simulation: the default lasts for some 50 frames of 4 KiB.
const BUFFER: usize = 16 << 20;

/// Opens a socket for all frames that come in through an interface, also those for other hosts.
///
/// # Errors
/// As the system calls.
pub(in crate::card) fn open(interface: &str) -> io::Result<OwnedFd> {
    // Protocol 0: nothing is received before the socket is bound.
    let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    let index = netdevice::name_to_index(&fd, interface)? as i32;
    // Only with CAP_NET_ADMIN it may exceed the system's limit.
    sockopt::set_socket_recv_buffer_size_force(&fd, BUFFER)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&fd, BUFFER))?;
    // The host's own frames are not for the card, nor are those that it sends itself.
    set(&fd, libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
    let all = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(&fd, libc::PACKET_ADD_MEMBERSHIP, &all)?;
    // SAFETY: all-zero is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    let length = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the pointer and the length describe the live address, which the kernel only reads.
    match unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) } {
        0 => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets an option of a raw socket.
fn set<T: Copy>(fd: &OwnedFd, name: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as u32;
    // SAFETY: the pointer and the length describe the live value, which the kernel only reads.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, name, (&raw const *value).cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the number of frames for which the socket had no space, since the last call.
///
/// # Errors
/// As the system call.
pub(in crate::card) fn missed(fd: &OwnedFd) -> io::Result<u64> {
    // SAFETY: all-zero is a valid value of this C struct.
    let mut stats: libc::tpacket_stats = unsafe { zeroed() };
    let mut length = size_of::<libc::tpacket_stats>() as u32;
    let value = (&raw mut stats).cast();
    // SAFETY: the pointers describe the live value and its length.
    let done =
        unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, value, &raw mut length) };
    if done == 0 { Ok(stats.tp_drops.into()) } else { Err(io::Error::last_os_error()) }
}
