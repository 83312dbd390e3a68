//! Queue pairs: memory that is named by keys, work requests, completions.
//!
//! - [`api`]: the verbs, the same over every provider.
//! - [`cm`]: how an initiator finds a target and gets queue pairs to it.
//! - [`conformance`]: what every provider must do, as named checks.
//! - [`engine`]: the protocols as state machines without I/O.
//! - [`ibverbs`]: RDMA devices of this machine.
//! - [`pair`]: a seeded network simulator for the engines.
//! - [`provider`]: the registry of providers: names, what each can do, what a command line says of it.
//! - [`rdma_cm`]: the connection manager that others' programs speak (`librdmacm`): management datagrams.
//! - [`shm`]: the provider for two processes of one host.
//! - [`soft`]: the provider in software, over any [`PacketIo`](shotline_transport::PacketIo).
//! - [`ud`]: unreliable datagrams (IBTA 9.8.3) as a filter over any
//!   [`PacketIo`](shotline_transport::PacketIo), with the same calls.

pub mod api;
pub mod cm;
pub mod conformance;
mod dial;
pub mod engine;
mod handed;
pub mod ibverbs;
pub mod pair;
pub mod provider;
mod random;
pub mod rdma_cm;
pub mod shm;
mod slab;
pub mod soft;
pub mod ud;
