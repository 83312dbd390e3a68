//! What a link asks of a transport, and what it gets.

use std::net::SocketAddr;

/// What a link needs of a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which link.
    pub link: u8,
    /// Where it will send.
    pub destination: SocketAddr,
    /// Whether its packets end in an ICRC.
    pub sealed: bool,
}

/// A transport for one link.
#[derive(Debug)]
pub struct Outlet<Io> {
    /// The transport.
    pub io: Io,
    /// The address that its packets come from.
    pub source: SocketAddr,
    /// Ethernet addresses of source and destination, for shots that are framed by others ([`super::Shots::are_framed`]).
    pub ethernet: [[u8; 6]; 2],
}

impl<Io> Outlet<Io> {
    /// A transport that makes its own frames, or none.
    pub fn new(io: Io, source: SocketAddr) -> Self {
        Self { io, source, ethernet: [[0; 6]; 2] }
    }
}
