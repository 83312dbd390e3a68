//! The connection manager of InfiniBand and RoCE (IBTA volume 1, chapter 12), compatible with Linux's `rdma_cm`: other
//! programs (`rping`, `ib_write_bw -R`) connect to queue pairs here, and this side connects to theirs.
//!
//! Connection managers exchange datagrams of 256 bytes ([`message`]) from queue pair 1 to queue pair 1:
//!
//! ```text
//! active              passive
//!    │ ── REQ ──────────► │   own queue pair, initial PSN for the peer, private data
//!    │ ◄────────── REP ── │   the same of the passive side (or REJ, with a reason)
//!    │ ── RTU ──────────► │   ready to use
//!    │        ...         │
//!    │ ── DREQ ─────────► │   either side
//!    │ ◄───────── DREP ── │
//! ```
//!
//! [`Manager`] is the state machine without I/O: it retransmits messages that are not answered, and answers duplicates
//! again. An attacker can forge a REQ, so a connection without an RTU (half-open) costs little and is displaced: their
//! number is limited in total and per source address, a newer one displaces the oldest, and its REP is retransmitted
//! four times. Communication IDs are random: an attacker with a forged source address cannot send the RTU that a
//! connection needs. [`Services`] is queue pair 1 of a software endpoint with its manager.
//!
//! A program listens on a *service ID*, which contains a port ([`message::service_id`]); the private data of a REQ
//! starts with the addresses of both sides ([`message::Addresses`]; Linux `drivers/infiniband/core/cma.c`).

mod counters;
mod fields;
mod manager;
pub mod message;
mod services;

pub use counters::CmCounters;
pub use manager::{Connection, Event, Manager};
pub use services::Services;

/// The Q_Key of queue pair 1 (IBTA volume 1, clause 13.5.1.1).
pub const Q_KEY: u32 = 0x8001_0000;
/// Length of a management datagram, in bytes.
pub const MAD_LEN: usize = 256;
