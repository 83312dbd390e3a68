//! What an engine is given: time, memory and queues for one call, and packets that have come.

use super::books::Books;
use super::receives::RecvQueue;
use crate::api::{Accessed, Completion, Cq};
use shotline_memory::Protection;
use shotline_transport::Landed;
use shotline_wire::bth::Bth;
use shotline_wire::roce::Extensions;
use std::net::SocketAddr;

/// Nanoseconds of a monotonic clock.
pub type Nanos = u64;

/// What an engine works with, lent to it for one call.
pub struct Context<'a> {
    /// Now.
    pub now: Nanos,
    /// Keys and memory.
    pub protection: &'a mut Protection,
    /// The receive queue: its own or a shared one.
    pub receives: &'a mut RecvQueue,
    /// Where completions go.
    pub completions: &'a mut dyn Completions,
    /// What happened, counted.
    pub books: &'a mut Books,
}

/// Takes completions.
pub trait Completions {
    /// Enters one. A full queue counts an overrun and puts every queue pair that uses it in its error state.
    fn push(&mut self, cq: Cq, completion: Completion);
    /// A one-sided operation of the peer is done: a WRITE's last byte is in its place, a READ was answered, an atomic
    /// operation executed (once, however often it is asked for).
    fn accessed(&mut self, accessed: Accessed) {
        let _ = accessed;
    }
}

/// A packet that has landed, with a good ICRC, for this queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Its base transport header.
    pub bth: Bth,
    /// The opcode's other headers.
    pub extensions: &'a Extensions,
    /// Where its payload is.
    pub landed: Landed,
    /// Payload bytes, padding included ([`Bth::pad`] of them at the end).
    pub len: u32,
    /// It met congestion on its way (ECN).
    pub congested: bool,
    /// Who sent it.
    pub source: SocketAddr,
}

/// What an engine may know of a batch before its payloads are copied. Nothing of it is verified.
#[derive(Clone, Copy, Debug)]
pub struct Ahead<'a> {
    /// The first packet's base transport header.
    pub bth: Bth,
    /// Its other headers.
    pub extensions: &'a Extensions,
    /// Payload bytes (padding included) of the first packet; of all but the last, if the rest have headers as long.
    pub first: u32,
    /// Bytes after UDP, without the ICRC, of every packet but the last.
    pub segment: u32,
    /// Bytes after UDP, without the ICRC, of the last packet.
    pub last: u32,
    /// Who sent it.
    pub source: SocketAddr,
}
