//! The connection manager of InfiniBand and RoCE (IBTA volume 1, chapter 12), as Linux's `rdma_cm` speaks it: how programs
//! of others (`rping`, `ib_write_bw -R`) find a queue pair here, and how we find theirs.
//!
//! Connection managers send each other datagrams of 256 bytes ([`message`]) from queue pair 1 to queue pair 1:
//!
//! ```text
//! active              passive
//!    │ ── REQ ──────────► │   my queue pair, the PSN that you begin with, private data
//!    │ ◄────────── REP ── │   and mine (or REJ, with a reason)
//!    │ ── RTU ──────────► │   ready to use
//!    │        ...         │
//!    │ ── DREQ ─────────► │   either side
//!    │ ◄───────── DREP ── │
//! ```
//!
//! [`Manager`] is the state machine without I/O: it sends again what is not answered, and answers again what comes twice.
//! Anybody can forge a REQ, so that a connection without an RTU (half-open) costs little and gives way: there are at most
//! so many of all and of one source address, the oldest is displaced by a newer one, and its REP is repeated four times.
//! Names of connections are random: who forges a source address cannot send the RTU that a connection needs.
//! [`Services`] is queue pair 1 of a software endpoint with a manager behind it.
//!
//! A program is found by a *service ID*, which holds a port ([`message::service_id`]); the private data of a REQ
//! begin with the addresses of both sides ([`message::Addresses`]; Linux `drivers/infiniband/core/cma.c`).

mod counts;
mod fields;
mod manager;
pub mod message;
mod services;

pub use counts::Counts;
pub use manager::{Connection, Event, Manager};
pub use services::Services;

/// The Q_Key of queue pair 1 (IBTA volume 1, clause 13.5.1.1).
pub const Q_KEY: u32 = 0x8001_0000;
/// Bytes of a management datagram.
pub const MAD_LEN: usize = 256;
