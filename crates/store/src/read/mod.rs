//! Reading a recording, while it runs or after.
//!
//! [`Recording::open`] reads a few kilobytes however long the run was; rows and slots are read when they are asked
//! for. What is visible at the moment of opening stays so; [`Recording::refresh`] looks for more. A recording is one
//! file, or the master of a run of many ([`crate::set`]): the calls are the same.

mod ended;
pub(crate) mod file;
pub(crate) mod raw;
mod recording;
mod run;
mod slots;

pub use ended::Ended;
pub use recording::{Recording, Stored};
pub use slots::Slots;
