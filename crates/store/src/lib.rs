//! The recorder: io_uring into a laid-out HDF5 file, and its verifier.
//!
//! A recording is a valid HDF5 file before its first shot. libhdf5 writes the names, types and attributes
//! and closes the file; [`layout`] then adds the chunk indexes and allocates every byte, so that each shot
//! has a place that is known. [`Recorder`] writes whole shot buffers to those places with `O_DIRECT` and
//! makes a row visible by one thing: the eight bytes of the dataset's current first dimension, written after
//! the row's data. So any HDF5 reader may open the file at any time, during the run, after it, and after
//! `kill -9`.
//!
//! - [`shot`]: what a sink is handed; [`info`]: what a recording says of its run.
//! - [`layout`]: the file's structure. `docs/file-format.md` describes it byte by byte.
//! - [`codec`]: compressed chunks.
//! - [`nvme`]: recordings on raw devices, without a file system.
//! - [`Recorder`]: offer events, poll, finish.
//! - [`read`]: a recording as others use it: rows and slots when they are asked for.
//! - [`recover`]: a recording that broke off, made sound.
//! - [`pcapng`]: captures, read and written.
//! - [`export()`]: a recording as other programs of the field read it.
//! - [`import()`]: a recording made from what others have.
//! - [`verify()`] reads a recording back and proves it; [`inspect()`] sums it up.

#[cfg(target_endian = "big")]
compile_error!("the recorder writes little-endian tables from memory: teach `rows` to swap before building here");

mod beneath;
mod blocks;
pub mod clocks;
pub mod codec;
mod draft;
mod error;
pub mod export;
pub mod import;
pub mod info;
pub mod inspect;
pub mod layout;
mod lock;
mod master;
mod medium;
mod metadata;
pub mod nvme;
pub mod pcapng;
mod positioned;
pub mod read;
pub mod recorder;
pub mod recover;
pub mod rows;
mod runs;
pub mod set;
pub mod shot;
mod sys;
pub mod verify;
pub mod zarr;

pub use beneath::first_bytes;
pub use error::StoreError;
pub use export::export;
pub use import::import;
pub use inspect::{Summary, inspect};
pub use layout::folder;
pub use medium::Medium;
pub use positioned::ReadAt;
pub use recorder::{Recorder, RecorderConfig, Report, Waker};
pub use set::{Set, SetConfig};
pub use verify::{Verdict, VerifyOptions, verify, verify_with_progress};
