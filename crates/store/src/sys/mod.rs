//! The crate's `unsafe` code: system and libhdf5 calls that their bindings lack, and io_uring.

pub mod cache;
pub mod drive;
pub mod hdf5;
pub mod lease;
pub mod mapped;
pub mod nvme;
pub mod passthrough;
pub mod ring;
pub mod staged;
pub mod stream_copy;
