//! RDMA verbs: registered memory, queue pairs, work requests, completions.
//!
//! - [`api`]: the verbs, the same for every provider.
//! - [`cm`]: connection set-up between an initiator and a target.
//! - [`connect`]: endpoints that are connected to targets, by the name of their provider.
//! - [`conformance`]: checks that every provider must pass.
//! - [`endpoint`]: endpoints in software, over any link.
//! - [`engine`]: the protocols as state machines without I/O.
//! - [`ibverbs`]: provider over the RDMA devices of this machine.
//! - [`provider`]: the registry of providers: names, capabilities, command-line syntax.
//! - [`rdma_cm`]: the InfiniBand connection manager protocol, which programs based on `librdmacm` use.
//! - [`shm`]: provider over shared memory between two processes of one host.
//! - [`sim`]: a simulated network for the engines, with a seed.
//! - [`soft`]: provider in software: RoCEv2 over any [`PacketIo`](shotline_transport::PacketIo).
//! - [`ud`]: unreliable datagrams (IBTA 9.8.3) as a filter over any [`PacketIo`](shotline_transport::PacketIo), with
//!   the same calls.

pub mod api;
pub mod cm;
pub mod conformance;
pub mod connect;
mod dial;
pub mod endpoint;
pub mod engine;
pub mod ibverbs;
pub mod provider;
mod random;
pub mod rdma_cm;
pub mod shm;
pub mod sim;
mod slab;
pub mod soft;
pub mod spacefibre;
pub mod ud;
