//! Inputs of an engine: time, memory and queues of one call, and received packets.

use super::burst::Part;
use super::counters::QpCounters;
use super::gather::Payload;
use super::receives::RecvQueue;
use crate::api::{Completion, Cq, RemoteAccess};
use shotline_memory::Protection;
use shotline_wire::bth::Bth;
use shotline_wire::roce::Extensions;
use std::net::SocketAddr;

/// Nanoseconds of a monotonic clock.
pub type Nanos = u64;

/// Time, memory and queues that an engine uses during one call.
pub struct Context<'a> {
    /// Current time.
    pub now: Nanos,
    /// Keys and registered memory.
    pub protection: &'a mut Protection,
    /// Receive queue: the queue pair's own or a shared one.
    pub receives: &'a mut RecvQueue,
    /// Sink of completions.
    pub completions: &'a mut dyn Completions,
    /// Counters of the queue pair.
    pub counters: &'a mut QpCounters,
}

/// Sink of completions.
pub trait Completions {
    /// Adds a completion. If the queue is full, an overrun is counted and every queue pair that uses it enters its
    /// error state.
    fn push(&mut self, cq: Cq, completion: Completion);
    /// Reports that a one-sided operation of the peer is done: all bytes of a WRITE are written, a READ was accepted,
    /// or an atomic operation executed (reported once, however often it is requested).
    fn on_remote_access(&mut self, accessed: RemoteAccess) {
        let _ = accessed;
    }
}

/// Received packet of this queue pair, with a valid ICRC.
#[derive(Clone, Copy, Debug)]
pub struct IncomingPacket<'a> {
    /// Base transport header.
    pub bth: Bth,
    /// Extended transport headers of the opcode.
    pub extensions: &'a Extensions,
    /// The part of its operation, if the packet is one of a SEND or WRITE and states it: not in RoCEv2. Its packets may
    /// then be shorter than the MTU.
    pub part: Option<Part>,
    /// The received payload.
    pub payload: Payload<'a>,
    /// Payload bytes, padding included ([`Bth::pad`] of them at the end).
    pub len: u32,
    /// Marked as congested by a switch (ECN).
    pub congested: bool,
    /// Source address.
    pub source: SocketAddr,
}

/// Headers and lengths of a batch before its payloads are copied. None of them is validated.
#[derive(Clone, Copy, Debug)]
pub struct BatchHead<'a> {
    /// Base transport header of the first packet.
    pub bth: Bth,
    /// Extended transport headers of the first packet.
    pub extensions: &'a Extensions,
    /// Payload bytes (padding included) of the first packet; of all but the last, if the others have headers of the
    /// same length.
    pub first_payload_len: u32,
    /// Bytes after UDP, without the ICRC, of every packet but the last.
    pub segment_len: u32,
    /// Bytes after UDP, without the ICRC, of the last packet.
    pub last_len: u32,
    /// Source address.
    pub source: SocketAddr,
}
