//! Registered memory: where shots land, and who may know of it.
//!
//! - [`Region`]: memory of any kind (heap, huge pages, shared, file, device); offers copies by atomic words, never a slice
//!   of memory that others may write.
//! - [`RegionKind`]: the registry of the kinds that a command line names; [`conformance`]: what each of them must do.
//! - [`Registrar`]: numbers the regions once, so that every party that touches them (a socket backend,
//!   io_uring, an RDMA NIC, CUDA) registers the same table and speaks of them as [`Sge`]s.
//! - [`Pool`] and [`Buffer`]: equal slots of one region, handed out and shared by reference; the last
//!   holder to let go returns the slot.
//! - [`RingWriter`] and [`RingReader`]: the two ends of a ring of bytes between two processes.
//! - [`check_capacity`]: whether regions fit into the memory that this machine has left.
//! - [`Protection`]: protection domains, memory registrations with [`Access`] rights, and their keys.
//!
//! This crate is the one large `unsafe` island: everything above it names memory by [`Sge`] or [`Buffer`].

mod access;
mod bytes;
mod capacity;
pub mod conformance;
mod pool;
mod protection;
mod region;
mod registrar;
mod ring;
mod stack;

pub use access::Access;
pub use bytes::bytes_in_words;
pub use capacity::check_capacity;
pub use pool::{Buffer, Pool};
pub use protection::{Addressing, Grant, Identity, KeyMap, Mr, Pd, Pin, Protection, Refused, RegisterError, Usage};
pub use region::{DeviceMemory, MemoryError, Pages, Region, RegionDescription, RegionKind};
pub use registrar::{RegionId, Regions, Registrar, Sge};
pub use ring::{Broken, RingReader, RingWriter, asleep_after, wanted_after};
