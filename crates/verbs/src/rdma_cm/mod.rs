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
//! again. An attacker can forge a REQ, so the number of connections without an RTU (half-open) is limited, in total and
//! per source address; a newer one displaces the oldest, and a REP is retransmitted at most four times. Communication
//! IDs are random: an attacker with a forged source address cannot send the RTU that a connection needs. [`Services`]
//! is queue pair 1 of a software endpoint with its manager.
//!
//! ```
//! # use shotline_verbs::api::Mtu;
//! # use shotline_verbs::rdma_cm::message::{
//! #     REP_PRIVATE_BYTES, REQ_PRIVATE_BYTES, RdAtomicLimits, Reply, Request, service_id,
//! # };
//! # use shotline_verbs::rdma_cm::{Event, Manager};
//! # use std::net::IpAddr;
//! # use std::time::Duration;
//! # let [a, b] = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
//! # let (rd_atomic, mtu, service) = (RdAtomicLimits::default(), Mtu::B1024, service_id(7174));
//! # let (path, private_data, retry_cnt, rnr_retry) = ([a, b], [0; REQ_PRIVATE_BYTES], 7, 7);
//! # let request = Request { service, qp: 0x11, psn: 1, rd_atomic, mtu, retry_cnt, rnr_retry, path, private_data };
//! # let reply = Reply { qp: 0x22, psn: 2, rd_atomic, rnr_retry: 7, private_data: [0; REP_PRIVATE_BYTES] };
//! // The active side at address `a` connects to the passive side at address `b`.
//! let (mut active, mut passive, now) = (Manager::new(), Manager::new(), Duration::ZERO);
//! passive.listen(service_id(7174));
//! active.connect(now, b, request);
//! let (_, req) = active.next_out().unwrap();
//! passive.receive(now, a, &req);
//! let Some(Event::Requested(connection, ..)) = passive.next_event() else { panic!() };
//! passive.accept(now, connection, reply); // its queue pair is in `ReadyToReceive`
//! let (_, rep) = passive.next_out().unwrap();
//! active.receive(now, b, &rep);
//! let Some(Event::Accepted(connection, _)) = active.next_event() else { panic!() };
//! active.ready(now, connection); // its queue pair is in `ReadyToSend`
//! let (_, rtu) = active.next_out().unwrap();
//! passive.receive(now, a, &rtu);
//! assert!(matches!(passive.next_event(), Some(Event::Established(_))));
//! ```
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
