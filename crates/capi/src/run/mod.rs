//! Runs: recordings that are open for reading.

pub(crate) mod handle;
mod open;
pub(crate) mod properties;
pub(crate) mod samples;
pub(crate) mod shots;
pub(crate) mod tables;
