//! Work requests.

use std::net::SocketAddr;

/// Scatter/gather element of a work request: bytes of registered memory, identified by a local key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Address of the first byte, in the registration's addressing ([`shotline_memory::Mr::address`]).
    pub address: u64,
    /// Length in bytes.
    pub len: u32,
    /// Local key.
    pub lkey: u32,
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Address of the first byte, in the addressing of the peer's registration.
    pub address: u64,
    /// rkey of the peer's registration.
    pub rkey: u32,
}

/// Operation of a send work request. UD supports `Send` and `SendImm`; UC also `Write` and `WriteImm`; RC all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sends a message, which the peer's next posted receive takes.
    Send,
    /// SEND with 32 bits of immediate data for the peer's completion.
    SendImm(u32),
    /// SEND that invalidates this rkey of the peer when the message has arrived.
    SendInvalidate(u32),
    /// Writes to the peer's memory; the peer's software is not notified.
    Write(Remote),
    /// Writes to the peer's memory, then completes its next posted receive with 32 bits of immediate data.
    WriteImm(Remote, u32),
    /// Reads from the peer's memory.
    Read(Remote),
    /// Replaces the peer's 8 bytes by `swap` if they equal `compare`; returns their original value.
    CompareSwap {
        /// Address of the 8 bytes.
        remote: Remote,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Adds to the peer's 8 bytes, modulo 2^64; returns their original value.
    FetchAdd {
        /// Address of the 8 bytes.
        remote: Remote,
        /// Value to add.
        add: u64,
    },
}

/// Local data of a send work request: the source, or the destination of a READ or an atomic result.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Registered memory. It must not change until the request completes; the destination of a READ or an atomic result
    /// must not be accessed until then.
    Elements(&'a [Element]),
    /// Copied when the request is posted: the memory may be reused at once and needs no key.
    Inline(&'a [u8]),
}

/// Destination of a datagram (UD).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Address of the endpoint.
    pub address: SocketAddr,
    /// Queue pair number.
    pub qp: u32,
    /// Q_Key to send. If its high bit is set, the Q_Key of the sending queue pair is sent instead (IBTA 10.2.5).
    pub q_key: u32,
}

/// Send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Id returned in the completion.
    pub id: u64,
    /// Operation.
    pub operation: Operation,
    /// Local data.
    pub data: Data<'a>,
    /// Generates a completion on success. An unsignalled request generates one only if it fails, and its slot is freed
    /// when a later signalled request completes.
    pub signalled: bool,
    /// The peer's receive completion is a solicited event (SEND, WRITE with immediate data).
    pub solicited: bool,
    /// Starts only when all READs and atomic operations before it are done.
    pub fence: bool,
    /// Destination: required for UD, `None` for RC and UC.
    pub destination: Option<Destination>,
}

impl<'a> SendWr<'a> {
    /// Returns a signalled request without other options.
    pub fn new(id: u64, operation: Operation, data: Data<'a>) -> Self {
        Self { id, operation, data, signalled: true, solicited: false, fence: false, destination: None }
    }
}

/// Receive work request.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Id returned in the completion.
    pub id: u64,
    /// Elements that the message is written to, in order.
    pub elements: &'a [Element],
}
