//! Provider for RDMA devices of this machine, through libibverbs.
//!
//! The library is loaded at run time: building Shotline does not need rdma-core, and a machine without it gets an error
//! that names the package to install. Layouts are those of the library's stable interface (`IBVERBS_1.1`), which every
//! rdma-core since version 28 (2020) keeps.
//!
//! An [`IbverbsEndpoint`] is a [`Provider`](crate::api::Provider) over one address of a device: its queue pairs
//! interoperate with any other RoCEv2 implementation, including Shotline's software provider.
//!
//! # Differences from the other providers
//! - Queue pairs are always strict: an invalid request is refused with a NAK, and the queue pair enters the error state
//!   (elsewhere [`QpConfig::strict`](crate::api::QpConfig) selects this). The device chooses their numbers and the
//!   remote keys; many can be guessed.
//! - The addresses of a registration start at the memory's offset in its first page: 0 for whole regions.
//! - Memory that is not mapped into this process must be exported as a dma-buf ([`Region::export`]): the device accesses
//!   it directly. Other unmapped memory is refused.
//! - Memory that outstanding requests use cannot be deregistered.
//! - UD queue pairs cannot use a shared receive queue: a device writes 40 bytes before each datagram, for which
//!   receives of other messages have no space.
//! - The kernel resolves a datagram's destination when the first one is posted to it, which takes a while.
//! - Targets are not notified of one-sided operations, and cannot count them: only the device's own counters do.
//!
//! | content | module |
//! |---|---|
//! | device, port and address | [`DeviceSelector`] |
//! | completions, events | `endpoint` |
//! | [`Provider`](crate::api::Provider) | `provider` |
//! | states and attributes | `pair` |
//! | memory registrations and keys | `memory` |
//! | outstanding requests | `queues` |
//! | conversion to the library's constants | `convert` |
//! | hardware counters | [`counters`] |
//! | search for a device by address | [`find`] |
//! | datagrams alone, as a [`PacketIo`](shotline_transport::PacketIo) | [`ud`] |
//! | safe wrappers of the library | [`sys`] |
//!
//! [`Region::export`]: shotline_memory::Region::export

mod cm_endpoint;
mod convert;
pub mod counters;
mod endpoint;
pub mod find;
mod memory;
mod pair;
mod provider;
mod queues;
mod selector;
pub mod sys;
pub mod ud;

pub use endpoint::IbverbsEndpoint;
pub use provider::DESCRIPTION;
pub use selector::{DeviceSelector, OpenPort};
