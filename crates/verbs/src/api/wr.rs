//! Work requests.

use std::net::SocketAddr;

/// A scatter/gather element of a work request: bytes of registered memory, by local key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// The address of the first byte, as the registration counts ([`shotline_memory::Mr::address`]).
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// Local key.
    pub lkey: u32,
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The address of the first byte, as the peer's registration counts.
    pub address: u64,
    /// The peer's remote key.
    pub rkey: u32,
}

/// What a send work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A message into the peer's next posted receive.
    Send,
    /// The same, with 32 bits for its completion.
    SendImm(u32),
    /// The same, and the peer's key is ended when it has arrived.
    SendInvalidate(u32),
    /// Bytes into the peer's memory; the peer's software hears nothing of it.
    Write(Remote),
    /// Bytes into the peer's memory, then 32 bits for the completion of its next posted receive.
    WriteImm(Remote, u32),
    /// Bytes out of the peer's memory.
    Read(Remote),
    /// Puts `swap` where the peer's 8 bytes equal `compare`; the 8 bytes that were there come back.
    CompareSwap {
        /// The 8 bytes.
        remote: Remote,
        /// What they must be.
        compare: u64,
        /// What they become.
        swap: u64,
    },
    /// Adds to the peer's 8 bytes, modulo 2^64; the 8 bytes that were there come back.
    FetchAdd {
        /// The 8 bytes.
        remote: Remote,
        /// What is added.
        add: u64,
    },
}

/// The local bytes of a send work request: what goes out, or where a READ or an atomic result lands.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Registered memory. It must stay as it is until the request completes.
    Elements(&'a [Element]),
    /// Copied when the request is posted: the bytes are free again at once, and need no key.
    Inline(&'a [u8]),
}

/// Where a datagram goes (UD).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Its address.
    pub address: SocketAddr,
    /// Its queue pair.
    pub qp: u32,
    /// Its queue key; with the high bit set, the sending queue pair's own (IBTA 10.2.5).
    pub q_key: u32,
}

/// A request on the send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// What to do.
    pub operation: Operation,
    /// The local bytes.
    pub data: Data<'a>,
    /// Whether it completes visibly. Unsignalled ones give their place in the queue back when a later signalled one
    /// completes; errors always complete visibly.
    pub signalled: bool,
    /// The peer's completion is a solicited event.
    pub solicited: bool,
    /// It begins only when all READs and atomic operations before it are done.
    pub fence: bool,
    /// Datagrams only.
    pub destination: Option<Destination>,
}

impl<'a> SendWr<'a> {
    /// A signalled request with nothing special.
    pub fn new(id: u64, operation: Operation, data: Data<'a>) -> Self {
        Self { id, operation, data, signalled: true, solicited: false, fence: false, destination: None }
    }
}

/// A request on a receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// Where the message lands, one element after the other.
    pub elements: &'a [Element],
}
