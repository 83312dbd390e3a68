//! Out-of-band connection over which the two sides exchange their parameters, while the endpoint keeps answering.

use super::cm::{self, CmChannel};
use super::common::Common;
use super::local_endpoint::LocalEndpoint;
use crate::Result;
use shotline_verbs::api::Mtu;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

/// Port at which the programs of rdma-core and perftest listen.
pub const PORT: u16 = 18515;

/// An out-of-band connection.
pub struct OobChannel {
    transport: OobTransport,
    client: bool,
}

/// Transport of an out-of-band connection.
enum OobTransport {
    Tcp(TcpStream),
    Cm(CmChannel),
}

impl OobChannel {
    /// Connects to the other side by the RDMA connection manager.
    pub fn connect_cm(host: &str, port: u16, local: &mut LocalEndpoint, mtu: Mtu) -> Result<Self> {
        let channel = CmChannel::connect(local, cm::address(host)?, port, mtu)?;
        Ok(Self { transport: OobTransport::Cm(channel), client: true })
    }

    /// Connects to the other side by TCP, or waits for it to connect.
    pub fn open(common: &Common, local: &mut LocalEndpoint) -> Result<Self> {
        let (mut deadline, port) = (local.deadline(), common.port.unwrap_or(PORT));
        let stream = match &common.host {
            Some(host) => {
                let found = (host.as_str(), port).to_socket_addrs();
                let found = found.map_err(|error| format!("cannot resolve host {host}: {error}"))?;
                let to = found.into_iter().next().ok_or_else(|| format!("host {host} has no address"))?;
                loop {
                    // The other side may have been started at the same time as this one.
                    match TcpStream::connect_timeout(&to, Duration::from_secs(2)) {
                        Ok(stream) => break stream,
                        Err(error) => {
                            local.check(&mut deadline).map_err(|_| format!("cannot reach {to}: {error}"))?;
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
                errln!("listening on {address}");
                loop {
                    match listener.accept() {
                        Ok((stream, _)) => break stream,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            local.drive(Some(listener.as_fd()))?;
                            local.check(&mut deadline)?;
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        };
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { transport: OobTransport::Tcp(stream), client: common.host.is_some() })
    }

    /// Sends a short message.
    pub fn send(&mut self, local: &mut LocalEndpoint, bytes: &[u8]) -> Result {
        match &mut self.transport {
            // The socket's buffer is nearly empty, so this does not block.
            OobTransport::Tcp(stream) => stream.write_all(bytes).map_err(|error| disconnected(&error).into()),
            OobTransport::Cm(channel) => channel.send(local, bytes),
        }
    }

    /// Receives `N` bytes.
    pub fn receive<const N: usize>(&mut self, local: &mut LocalEndpoint) -> Result<[u8; N]> {
        let stream = match &mut self.transport {
            OobTransport::Tcp(stream) => stream,
            OobTransport::Cm(channel) => return channel.receive(local),
        };
        let (mut bytes, mut len, mut deadline) = ([0; N], 0, local.deadline());
        while len < N {
            match stream.read(&mut bytes[len..]) {
                Ok(0) => return Err("the other side closed the connection".into()),
                Ok(count) => len += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    local.drive(Some(stream.as_fd()))?;
                    local.check(&mut deadline)?;
                }
                Err(error) => return Err(disconnected(&error).into()),
            }
        }
        Ok(bytes)
    }

    /// Ends a connection of the connection manager.
    pub fn disconnect(&mut self, local: &mut LocalEndpoint) -> Result {
        match &self.transport {
            OobTransport::Tcp(_) => Ok(()),
            OobTransport::Cm(channel) => channel.disconnect(local),
        }
    }

    /// Exchanges messages of equal length. The client sends first.
    pub fn exchange<const N: usize>(&mut self, local: &mut LocalEndpoint, own: &[u8; N]) -> Result<[u8; N]> {
        if self.client {
            self.send(local, own)?;
            return self.receive(local);
        }
        let received = self.receive(local)?;
        self.send(local, own)?;
        Ok(received)
    }

    /// Returns `true` if this side is the client.
    pub fn is_client(&self) -> bool {
        self.client
    }
}

fn disconnected(error: &std::io::Error) -> String {
    format!("the other side closed the connection: {error}")
}

/// Converts an address to a GID: IPv4 is mapped into IPv6 (IBTA annex A17.4.5).
pub fn gid(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Converts a GID to an address.
pub fn ip(gid: [u8; 16]) -> IpAddr {
    IpAddr::from(gid).to_canonical()
}
