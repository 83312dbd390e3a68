//! Recorder that writes shots with io_uring into a preallocated HDF5 file, and the readers of that file.
//!
//! A recording is a valid HDF5 file before its first shot. libhdf5 writes the names, types and attributes
//! and closes the file; [`layout`] then adds the chunk indexes and allocates every byte, so that the file offset
//! of each shot is known in advance. [`Recorder`] writes whole shot buffers to those offsets with `O_DIRECT` and
//! commits a row by writing eight bytes, the dataset's current first dimension, after the row's data. Any HDF5
//! reader may therefore open the file at any time: during the run, after it, and after `kill -9`.
//!
//! - [`shot`]: shots, events and losses, the input of a sink; [`info`]: the metadata of a run.
//! - [`layout`]: the file's structure. `docs/file-format.md` describes it byte by byte.
//! - [`codec`]: compressed chunks.
//! - [`nvme`]: recordings on raw devices, without a file system.
//! - [`Recorder`]: offer events, poll, finish.
//! - [`read`]: random access to the rows and slots of a recording.
//! - [`recover`]: repairs a recording after a crash.
//! - [`pcapng`]: reads and writes captures.
//! - [`export()`]: converts a recording to other formats.
//! - [`import()`]: makes a recording from files of other formats.
//! - [`verify()`] reads a recording back and checks it; [`inspect()`] summarises it.

#[cfg(target_endian = "big")]
compile_error!(
    "the recorder writes little-endian tables from memory: add byte swaps to `rows` to build for this target"
);

mod array;
mod blocks;
pub mod clocks;
pub mod codec;
mod confined_path;
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
pub mod npy;
pub mod nvme;
pub mod pcapng;
mod positioned;
pub mod read;
pub mod recorder;
pub mod recover;
pub mod rows;
pub mod set;
pub mod shot;
mod shot_ranges;
mod sys;
pub mod verify;
pub mod zarr;

pub use confined_path::read_magic;
pub use error::StoreError;
pub use export::export;
pub use import::import;
pub use inspect::{Summary, inspect};
pub use layout::folder;
pub use medium::Medium;
pub use positioned::ReadAt;
pub use recorder::{Recorder, RecorderConfig, Report, Waker};
pub use set::{RunRecorder, RunRecorderConfig};
pub use verify::{Verdict, VerifyOptions, verify, verify_with_progress};
