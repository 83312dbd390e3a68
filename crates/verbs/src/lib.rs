//! Queue pairs: memory that is named by keys, work requests, completions.
//!
//! - [`api`]: the verbs, the same over every provider.
//! - [`cm`]: how an initiator finds a target and gets queue pairs to it.
//! - [`engine`]: the protocols as state machines without I/O.
//! - [`ibverbs`]: RDMA devices of this machine.
//! - [`pair`]: a seeded network simulator for the engines.
//! - [`rdma_cm`]: the connection manager that others' programs speak (`librdmacm`): management datagrams.
//! - [`shm`]: the provider for two processes of one host.
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
pub mod rdma_cm;
pub mod shm;
mod slab;
pub mod soft;
pub mod ud;
