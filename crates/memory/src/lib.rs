//! Registered memory: where shots land, and who may know of it.
//!
//! - [`Region`]: one pre-faulted mapping; offers raw copies, never a slice of memory that a peer may write.
//! - [`Registrar`]: numbers the regions once, so that every party that touches them (a socket backend,
//!   io_uring, an RDMA NIC, CUDA) registers the same table and speaks of them as [`Sge`]s.
//! - [`Pool`] and [`Buffer`]: equal slots of one region, handed out and shared by reference; the last
//!   holder to let go returns the slot.
//!
//! This crate is the one large `unsafe` island: everything above it names memory by [`Sge`] or [`Buffer`].

mod pool;
mod region;
mod registrar;
mod stack;

pub use pool::{Buffer, Pool};
pub use region::{MemoryError, Pages, Region};
pub use registrar::{RegionId, Regions, Registrar, Sge};
