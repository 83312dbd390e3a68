//! Runs, emulated probes and endpoints as handles that any thread of a program may use: what the bindings of Python
//! (crate `python`) and C (crate `capi`) share.
//!
//! - [`Recorder`]: a run that hands every shot to the program, and records it if wanted.
//! - [`endpoint`]: initiators and targets in the words of the verbs.
//! - [`Probe`]: requests to a probe.
//! - [`Emulator`]: an emulated probe in this process.
//!
//! A handle owns its thread and what it has opened, and ends both when it is closed or dropped. Nothing here knows a
//! language: the bindings convert values and errors, and release the interpreter's lock.

mod emulator;
pub mod endpoint;
mod error;
mod probe;
mod process;
pub mod reading;
mod recorder;
pub mod samples;

pub use emulator::Emulator;
pub use error::{Error, ErrorKind};
pub use probe::Probe;
pub use recorder::{Next, Recorder, ShotLosses, causes, check_end, describe};
