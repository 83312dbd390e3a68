//! The connection over which the two sides introduce each other, while the endpoint goes on answering.

use super::common::Common;
use super::managed::{self, Line};
use super::side::Side;
use crate::Result;
use shotline_verbs::api::Mtu;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

/// Where programs of rdma-core and perftest wait.
pub const PORT: u16 = 18515;

/// One connection.
pub struct Talk {
    way: Way,
    client: bool,
}

/// What carries it.
enum Way {
    Tcp(TcpStream),
    Line(Line),
}

impl Talk {
    /// Goes to the other side by RDMA's connection manager.
    pub fn managed(host: &str, port: u16, side: &mut Side, mtu: Mtu) -> Result<Self> {
        let line = Line::connect(side, managed::address(host)?, port, mtu)?;
        Ok(Self { way: Way::Line(line), client: true })
    }

    /// Goes to the other side by TCP, or waits for it.
    pub fn open(common: &Common, side: &mut Side) -> Result<Self> {
        let (mut end, port) = (side.deadline(), common.port.unwrap_or(PORT));
        let stream = match &common.host {
            Some(host) => {
                let found = (host.as_str(), port).to_socket_addrs();
                let found = found.map_err(|error| format!("there is no host {host}: {error}"))?;
                let to = found.into_iter().next().ok_or_else(|| format!("there is no address of {host}"))?;
                loop {
                    // It may have been started at the same time as this side.
                    match TcpStream::connect_timeout(&to, Duration::from_secs(2)) {
                        Ok(stream) => break stream,
                        Err(error) => {
                            side.check(&mut end).map_err(|_| format!("cannot reach {to}: {error}"))?;
                            std::thread::sleep(Duration::from_millis(100));
                        }
                    }
                }
            }
            None => {
                let address = SocketAddr::new(common.bind.ip(), port);
                let listener = TcpListener::bind(address)
                    .map_err(|error| format!("cannot listen on {address}: {error}; choose another with --port"))?;
                listener.set_nonblocking(true)?;
                errln!("waits on {address}");
                loop {
                    match listener.accept() {
                        Ok((stream, _)) => break stream,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            side.turn(Some(listener.as_fd()))?;
                            side.check(&mut end)?;
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        };
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { way: Way::Tcp(stream), client: common.host.is_some() })
    }

    /// Says something short.
    pub fn say(&mut self, side: &mut Side, bytes: &[u8]) -> Result {
        match &mut self.way {
            // A connection that is hardly used has room for it.
            Way::Tcp(stream) => stream.write_all(bytes).map_err(|error| gone(&error).into()),
            Way::Line(line) => line.say(side, bytes),
        }
    }

    /// Hears `N` bytes.
    pub fn hear<const N: usize>(&mut self, side: &mut Side) -> Result<[u8; N]> {
        let stream = match &mut self.way {
            Way::Tcp(stream) => stream,
            Way::Line(line) => return line.hear(side),
        };
        let (mut bytes, mut have, mut end) = ([0; N], 0, side.deadline());
        while have < N {
            match stream.read(&mut bytes[have..]) {
                Ok(0) => return Err("the other side has gone".into()),
                Ok(count) => have += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    side.turn(Some(stream.as_fd()))?;
                    side.check(&mut end)?;
                }
                Err(error) => return Err(gone(&error).into()),
            }
        }
        Ok(bytes)
    }

    /// Ends a connection of the connection manager.
    pub fn hang_up(&mut self, side: &mut Side) -> Result {
        match &self.way {
            Way::Tcp(_) => Ok(()),
            Way::Line(line) => line.hang_up(side),
        }
    }

    /// Both say something; the client begins.
    pub fn swap<const N: usize>(&mut self, side: &mut Side, own: &[u8; N]) -> Result<[u8; N]> {
        if self.client {
            self.say(side, own)?;
            return self.hear(side);
        }
        let heard = self.hear(side)?;
        self.say(side, own)?;
        Ok(heard)
    }

    /// Whether this side is the client.
    pub fn is_client(&self) -> bool {
        self.client
    }
}

fn gone(error: &std::io::Error) -> String {
    format!("the other side has gone: {error}")
}

/// An address as a GID: IPv4 mapped into IPv6 (IBTA annex A17.4.5).
pub fn gid(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// The address of a GID.
pub fn ip(gid: [u8; 16]) -> IpAddr {
    IpAddr::from(gid).to_canonical()
}
