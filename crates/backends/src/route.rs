//! Local addresses, interfaces and hosts.

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use shotline_transport::IoError;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Returns the interface that has an address.
pub fn interface_of(ip: IpAddr) -> Option<String> {
    let has = |address: &SockaddrStorage| match ip {
        IpAddr::V4(ip) => address.as_sockaddr_in().is_some_and(|found| found.ip() == ip),
        IpAddr::V6(ip) => address.as_sockaddr_in6().is_some_and(|found| found.ip() == ip),
    };
    getifaddrs().ok()?.find(|entry| entry.address.as_ref().is_some_and(has)).map(|entry| entry.interface_name)
}

/// Returns the local address of the route to a host, at which the host's packets arrive.
///
/// # Errors
/// If there is no route.
pub fn local_ip(host: SocketAddr) -> std::io::Result<IpAddr> {
    let any: SocketAddr = if host.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(host)?;
    Ok(socket.local_addr()?.ip())
}

/// Returns the source address: the given one, or that of the route.
pub(crate) fn source(given: Option<IpAddr>, to: SocketAddr) -> Result<IpAddr, IoError> {
    given.map_or_else(|| local_ip(to), Ok).map_err(|source| IoError::System {
        what: format!("finding the route to {to}"),
        source,
        hint: "; name the local address with --source",
    })
}

/// Returns another address of the same network.
#[cfg(feature = "dpdk")]
pub(crate) fn neighbour(address: IpAddr) -> IpAddr {
    match address {
        // Neither the network's own address nor the broadcast of a small one.
        IpAddr::V4(ip) if matches!(ip.octets()[3] & 3, 0 | 3) => IpAddr::V4((u32::from(ip) ^ 2).into()),
        IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) ^ 3).into()),
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) ^ 3).into()),
    }
}
