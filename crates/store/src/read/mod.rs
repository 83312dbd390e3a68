//! Reading a recording, during the run or after it.
//!
//! [`Recording::open`] reads a few kilobytes regardless of the length of the run; rows and slots are read on demand.
//! The number of visible rows is fixed until [`Recording::refresh`]. A recording is one file, or the master of a run of
//! several files ([`crate::set`]), with the same interface.

pub(crate) mod file;
mod final_counters;
pub(crate) mod raw;
mod recording;
mod run;
mod slot_reader;

pub use final_counters::FinalCounters;
pub use recording::{Recording, StoredShot};
pub use slot_reader::SlotReader;
