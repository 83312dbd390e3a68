//! The crate's `unsafe` code: libhdf5 calls that its bindings lack, and the ring.

pub mod hdf5;

pub mod ring;
