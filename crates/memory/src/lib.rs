//! Registered memory: the buffers that shots are received into, and the access rights to them.
//!
//! - [`Region`]: memory of any kind (heap, huge pages, shared, file, device); provides copies by atomic words, never a
//!   slice of memory that other threads, processes or devices may write.
//! - [`RegionKind`]: the registry of the kinds that a command line can select; [`conformance`]: their conformance
//!   suite.
//! - [`Registrar`]: numbers the regions once, so that every user of them (a socket backend, io_uring, an RDMA NIC,
//!   CUDA) registers the same table and refers to them by [`Sge`].
//! - [`Pool`] and [`Buffer`]: slots of equal length in one region, reference counted; dropping the last reference
//!   returns the slot.
//! - [`RingWriter`] and [`RingReader`]: the two ends of a byte ring between two processes.
//! - [`check_capacity`]: checks that regions fit in the available memory of this machine.
//! - [`Protection`]: protection domains, memory registrations with [`Access`] rights, and their keys.
//!
//! ```
//! use shotline_memory::{Region, Registrar, Sge};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut registrar = Registrar::new();
//! let region = registrar.add(Region::heap(4096)?);
//! let regions = registrar.finish(); // every user of the memory holds a clone
//!
//! regions.get(region).write(100, b"shot");
//! regions.copy(Sge { region, offset: 100, len: 4 }, Sge { region, offset: 0, len: 4 });
//! let mut bytes = [0; 4];
//! regions.get(region).read(0, &mut bytes);
//! assert_eq!(&bytes, b"shot");
//! # Ok(()) }
//! ```
//!
//! Most of the project's `unsafe` code is in this crate: the crates above it refer to memory by [`Sge`] or [`Buffer`].

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
pub use bytes::format_bytes;
pub use capacity::check_capacity;
pub use pool::{Buffer, Pool};
pub use protection::{
    AccessError, Addressing, Grant, Identity, KeyMap, Mr, Pd, Pin, Protection, RegisterError, RegistrationCounters,
};
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub use region::Lines;
pub use region::{
    BarAccess, BarError, BarSpec, CudaDevice, CudaError, CudaKernels, CudaMemory, DeviceMemory, DmabufError,
    EmulatedMemory, EmulatedPath, MemoryError, Pages, PathCounters, PathDirection, PathModel, PciAddress, Region,
    RegionDescription, RegionKind, compile_cuda_kernels,
};
pub use registrar::{RegionId, Regions, Registrar, Sge};
pub use ring::{InvalidPosition, RingReader, RingWriter, request_wakeup, requested_wakeup};
