//! Connections of initiators to targets.

use crate::Result;
use shotline_verbs::cm::{Client, ControlAddress, Token};
use shotline_verbs::provider::ProviderKind;
use std::net::{IpAddr, SocketAddr};

/// Connects to a target, if its provider and links are those of this end.
pub fn connect(transport: &ProviderKind, to: &(ControlAddress, Token), from: Option<IpAddr>) -> Result<Client> {
    let client = Client::connect(&to.0, from, to.1)?;
    transport.check_target(client.welcome())?;
    Ok(client)
}

/// Returns the local address from which a target is reached: `bind`, or the one of the route.
pub fn local_address(bind: Option<SocketAddr>, to: &ControlAddress) -> Result<SocketAddr> {
    match (bind, to) {
        (Some(bind), _) => Ok(bind),
        (None, ControlAddress::Tcp(target)) => Ok(SocketAddr::new(route(*target)?, 0)),
        (None, ControlAddress::Unix(_)) => Err("a target with a path needs --transport shm or spacefibre:shm".into()),
    }
}

/// Returns the local address of the route to a target.
pub fn route(to: SocketAddr) -> Result<IpAddr> {
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let probe = || {
        let socket = std::net::UdpSocket::bind(any)?;
        socket.connect(to)?;
        Ok(socket.local_addr()?.ip())
    };
    probe().map_err(|error: std::io::Error| {
        format!("cannot find the route to {to}: {error}; name the local address with --bind").into()
    })
}
