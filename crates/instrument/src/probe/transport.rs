//! Transports of a probe's links.

use std::net::SocketAddr;

/// Requirements of a link for its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRequest {
    /// Number of the link.
    pub link: u8,
    /// Destination of its packets.
    pub destination: SocketAddr,
    /// Packets end in an ICRC.
    pub sealed: bool,
}

/// A transport for one link.
#[derive(Debug)]
pub struct LinkTransport<Io> {
    /// The transport.
    pub io: Io,
    /// Source address of its packets.
    pub source: SocketAddr,
    /// Ethernet addresses of source and destination, for shots with complete frames ([`super::Shots::are_framed`]).
    pub ethernet: [[u8; 6]; 2],
}

impl<Io> LinkTransport<Io> {
    /// Creates the transport of a link from one that builds its own frames or has none.
    pub fn new(io: Io, source: SocketAddr) -> Self {
        Self { io, source, ethernet: [[0; 6]; 2] }
    }
}
