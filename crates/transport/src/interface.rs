//! Interface properties from the kernel, for backends of raw frames.

use crate::frame::Mac;
use crate::sys::{attach_filter, filter_instruction};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Binds a UDP socket that is never read: it reserves the port, and keeps the kernel from answering packets to it with
/// ICMP port unreachable. Returns its address, with the port that the kernel chose if none was given.
pub fn reserve_port(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    attach_filter(&fd, &[filter_instruction(libc::BPF_RET, 0, 0, 0)])?; // the filter drops every packet
    bind(&fd, &address)?;
    let local = rustix::net::getsockname(&fd)?;
    let local = SocketAddr::try_from(local).map_err(|_| io::Error::other("a UDP socket without an address"))?;
    Ok((fd, local))
}

/// Returns the index and Ethernet address of an interface. Any socket will do for the call.
pub fn index_and_mac(fd: &OwnedFd, interface: &str) -> io::Result<(u32, Mac)> {
    let index = rustix::net::netdevice::name_to_index(fd, interface)?;
    let mut request = request(interface);
    // SAFETY: the request is live, and has the length that the command requires.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFHWADDR as libc::Ioctl, &raw mut request) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled this member.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    if address.sa_family != libc::ARPHRD_ETHER {
        return Err(io::Error::other("the interface is not Ethernet"));
    }
    Ok((index, std::array::from_fn(|at| address.sa_data[at] as u8)))
}

/// Returns the number of receive queues of an interface, from ethtool's channels; 1 if the driver does not report it.
pub fn rx_queues(fd: &OwnedFd, interface: &str) -> u32 {
    const GET_CHANNELS: u32 = 0x3C;
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    // Command; maximum of receive, send, other, combined; then the current number of each.
    let mut channels = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0_u32];
    let mut request = request(interface);
    request.ifr_ifru.ifru_data = channels.as_mut_ptr().cast();
    // SAFETY: the request and the channels that it points at are live, and have the length that the command requires.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if rc < 0 { 1 } else { (channels[5] + channels[8]).max(1) }
}

/// Returns the maximum IP packet of an interface, in bytes.
pub fn mtu(fd: &OwnedFd, interface: &str) -> io::Result<usize> {
    let mut request = request(interface);
    // SAFETY: the request is live, and has the length that the command requires.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFMTU as libc::Ioctl, &raw mut request) };
    // SAFETY: the kernel has filled this member.
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { request.ifr_ifru.ifru_mtu } as usize) }
}

fn request(interface: &str) -> libc::ifreq {
    // SAFETY: all-zero is a valid value of this C struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    request
}

/// Makes the kernel resolve an address on the link, by sending a datagram to its discard port (RFC 863).
pub fn resolve(ip: IpAddr, index: u32) {
    let (family, any) = match ip {
        IpAddr::V4(_) => (AddressFamily::INET, SocketAddr::from(([0; 4], 0))),
        IpAddr::V6(_) => (AddressFamily::INET6, SocketAddr::from(([0; 16], 0))),
    };
    let discard = match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => std::net::SocketAddrV6::new(v6, 9, 0, index).into(),
        ip => SocketAddr::new(ip, 9),
    };
    // Errors are ignored: the result appears in the neighbour table.
    if let Ok(fd) = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
        && bind(&fd, &any).is_ok()
    {
        let _ = rustix::net::sendto(&fd, &[], rustix::net::SendFlags::empty(), &discard);
    }
}
