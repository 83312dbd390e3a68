//! RDMA devices of this machine, through libibverbs.
//!
//! The library is looked for at run time: nothing of rdma-core is needed to build Shotline, and a machine without it
//! gets an error that says what to install. Layouts are those of the library's stable interface (`IBVERBS_1.1`), which
//! every rdma-core since version 28 (2020) keeps.
//!
//! An [`IbverbsEndpoint`] is a [`Provider`](crate::api::Provider) over one address of a device: its queue pairs reach
//! those of any other RoCEv2 implementation, Shotline's in software among them.
//!
//! # What a device does otherwise
//! - Queue pairs are strict, always: what arrives wrong is refused with a NAK and breaks the queue pair (which
//!   [`QpConfig::strict`](crate::api::QpConfig) leaves to choice elsewhere). Their numbers and the remote keys are the
//!   device's choice; many can be guessed.
//! - Memory counts its addresses from as far into its first page as it lies there: 0 for whole regions.
//! - Memory that posted requests name cannot be deregistered before they are done.
//! - Datagrams share no receives: a device puts 40 bytes before each, for which other messages have no room.
//! - The kernel looks for the way to a datagram's destination when the first one is posted to it, which takes a while.
//! - Targets hear nothing of one-sided operations, and cannot count them: the device's own counters do.
//!
//! | what | where |
//! |---|---|
//! | device, port and address | [`Choice`] |
//! | completions, events | `endpoint` |
//! | the verbs | `provider` |
//! | states and attributes | `pair` |
//! | keys | `memory` |
//! | what is posted | `queues` |
//! | the device's words | `words` |
//! | what a device counts | [`counters`] |
//! | which device has an address | [`find`] |
//! | datagrams alone, as a [`PacketIo`](shotline_transport::PacketIo) | [`ud`] |
//! | the library itself | [`sys`] |

mod choice;
pub mod counters;
mod endpoint;
pub mod find;
mod memory;
mod pair;
mod provider;
mod queues;
pub mod sys;
mod tally;
pub mod ud;
mod words;

pub use choice::{Choice, Opened};
pub use endpoint::IbverbsEndpoint;
pub use provider::DESCRIPTION;
