//! Recordings of shots: a recorder that writes HDF5 files with io_uring, and everything that reads them.
//!
//! A recording is a valid HDF5 file before its first shot. libhdf5 writes the names, types and attributes and closes the
//! file; [`layout`] then adds the chunk indexes and allocates every byte, so that the file offset of each shot is known in
//! advance. [`Recorder`] writes whole shot buffers to those offsets with `O_DIRECT` and commits a row by writing eight bytes,
//! the dataset's current first dimension, after the row's data. Any HDF5 reader may therefore open the file at any time:
//! during the run, after it, and after `kill -9`.
//!
//! # Read a recording
//!
//! ```
//! use shotline_store::read::Recording;
//! use std::path::Path;
//!
//! fn print(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
//!     let recording = Recording::open(path)?; // while it is written, too: `refresh` sees the new rows
//!     println!("{} rows of {}", recording.rows(), recording.run().instrument);
//!     let mut slots = recording.slot_reader();
//!     for (index, row) in (0..).zip(recording.rows_of(0)) {
//!         let (row, bytes) = (row?, slots.read(index, 0)?); // link 0; the samples as they arrived
//!         println!("shot {}: {} valid bytes, the first is {}", row.number, row.valid_bytes, bytes[0]);
//!     }
//!     for loss in recording.losses()? {
//!         println!("{} shots from {} are missing: {}", loss.count, loss.first, loss.cause);
//!     }
//!     Ok(())
//! }
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("run.h5");
//! # record(&path).unwrap();
//! # print(&path).unwrap();
//! # use shotline_memory::{Pool, Registrar};
//! # use shotline_store::info::{LinkInfo, RunInfo};
//! # use shotline_store::shot::{Event, RunCounters, Shot, ShotMeta};
//! # use shotline_store::{Recorder, RecorderConfig};
//! # use shotline_wire::shot::{DropCounters, Geometry, Packetization, Packing, Presence, Trailer};
//! # fn record(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
//! #     let cut = Packetization::uniform(4096);
//! #     let geometry = Geometry::with_packetization((8, 256), (16, Packing::Int16Le), 0, Trailer::None, cut)?;
//! #     let mut registrar = Registrar::new();
//! #     let pool = Pool::new(&mut registrar, 4, geometry.slot_bytes())?;
//! #     let run = RunInfo::new(vec![LinkInfo { name: "link0".into(), stream: 0, geometry }]);
//! #     let config = RecorderConfig { direct: false, ..RecorderConfig::new(1) };
//! #     let mut recorder = Recorder::create(path, &config, &run, &registrar.finish())?;
//! #     let buffer = pool.take().unwrap();
//! #     buffer.write(0, &[1; 4096]);
//! #     let mut presence = Presence::empty(geometry.packets());
//! #     presence.insert(0);
//! #     let meta = ShotMeta {
//! #         stream: 0, number: 7, stamp_tai_ns: 0, arrived_tai_ns: 0, completed_tai_ns: 0, flags: 0, record_good: true,
//! #         valid_bytes: 4096, presence: presence.into(), drops: DropCounters::default(),
//! #     };
//! #     recorder.offer(Event { number: 7, shots: vec![Some(Shot { meta, buffer })] }).unwrap();
//! #     recorder.finish(&RunCounters::default())?;
//! #     Ok(())
//! # }
//! ```
//!
//! # Write a recording
//!
//! Most programs record by `shotline_acquire::run`. One that has its shots from elsewhere calls a [`Recorder`] itself:
//!
//! ```
//! use shotline_memory::{Pool, Registrar};
//! use shotline_store::info::{LinkInfo, RunInfo};
//! use shotline_store::shot::{Event, RunCounters, Shot, ShotMeta};
//! use shotline_store::{Recorder, RecorderConfig};
//! use shotline_wire::shot::{DropCounters, Geometry, Packetization, Packing, Presence, Trailer};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("run.h5");
//! // 256 samples of 8 channels, 16 bits each: one packet of 4096 bytes, nothing after the samples.
//! let cut = Packetization::uniform(4096);
//! let geometry = Geometry::with_packetization((8, 256), (16, Packing::Int16Le), 0, Trailer::None, cut)?;
//!
//! // Shots are written from a pool of registered buffers, without a copy.
//! let mut registrar = Registrar::new();
//! let pool = Pool::new(&mut registrar, 4, geometry.slot_bytes())?;
//! let run = RunInfo::new(vec![LinkInfo { name: "link0".into(), stream: 0, geometry }]);
//! let mut recorder = Recorder::create(&path, &RecorderConfig::new(100), &run, &registrar.finish())?;
//!
//! let wait = Some(Duration::from_millis(10));
//! for number in 0..10 {
//!     let buffer = loop {
//!         match pool.take() {
//!             Some(buffer) => break buffer,
//!             None => drop(recorder.poll(wait)?), // until a write is done, which frees its buffer
//!         }
//!     };
//!     buffer.zero(0, buffer.len());
//!     buffer.write(0, &[number as u8; 4096]);
//!     let mut presence = Presence::empty(geometry.packets());
//!     presence.insert(0); // the packet has arrived
//!     let meta = ShotMeta {
//!         stream: 0,
//!         number,
//!         stamp_tai_ns: 0,
//!         arrived_tai_ns: 0,
//!         completed_tai_ns: 0,
//!         flags: 0,
//!         record_good: true,
//!         valid_bytes: geometry.sample_bytes(),
//!         presence: presence.into(),
//!         drops: DropCounters::default(),
//!     };
//!     let mut event = Event { number, shots: vec![Some(Shot { meta, buffer })] };
//!     while let Err(back) = recorder.offer(event) {
//!         event = back; // the queue of writes is full
//!         recorder.poll(wait)?;
//!     }
//! }
//! let report = recorder.finish(&RunCounters::default())?;
//! assert_eq!((report.rows, report.complete), (10, 10));
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! In the order in which a program needs them:
//!
//! | module | contents |
//! |---|---|
//! | [`read`] | random access to the rows, slots and losses of a [`Recording`](read::Recording) |
//! | [`inspect()`], [`verify()`], [`recover`] | its summary; a check of every byte and counter; the repair after a crash |
//! | [`export()`], [`import()`] | formats of other programs; [`zarr`] and [`npy`] are parts of them |
//! | [`pcapng`] | packet captures |
//! | [`shot`], [`info`] | the input of a recorder: shots, events, losses, counters; the metadata of a run |
//! | [`recorder`] | [`Recorder`]: offer events, poll, finish |
//! | [`set`] | [`RunRecorder`]: runs of several files on several drives, with limits |
//! | [`nvme`] | recordings on raw devices, without a file system |
//! | [`codec`] | compressed chunks |
//! | [`layout`], [`rows`], [`clocks`] | the file's structure; `docs/file-format.md` describes it byte by byte |
//!
//! # Threads
//!
//! A [`Recorder`] is used by one thread, and does its work in that thread; io_uring writes meanwhile. A [`Waker`] ends its
//! wait from another one. With compression a recorder starts threads, and ends them in `finish`. A
//! [`Recording`](read::Recording) only reads, and any number of processes may read one while it is written.
//!
//! # Errors
//!
//! [`StoreError`] names the file, what was found and what to do. Writing goes on after a failed write: the shot is lost and
//! recorded as such (`sink_error`); many in a row end the recording. A damaged file is an error of its readers.
//!
//! # Features and stability
//!
//! | feature | what it adds |
//! |---|---|
//! | `s3` | object stores that speak S3, for [`export()`] and [`import()`] of Zarr |
//!
//! The crate needs Linux and libhdf5. Versions follow Semantic Versioning; before 1.0 a new minor version may break
//! programs. A recording has the version of its format, and a reader refuses one that it does not know. [`read`], [`shot`], [`info`], [`Recorder`] and
//! [`export()`] are meant for programs and change rarely; [`layout`], [`rows`] and [`codec`] follow the file format. `api.txt`
//! beside `Cargo.toml` lists the interface, and CHANGELOG.md what has changed.

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
