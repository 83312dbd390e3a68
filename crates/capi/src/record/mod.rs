//! Runs in progress: recorders and their shots, probes, and emulated probes.

pub(crate) mod counters;
pub(crate) mod emulator;
pub(crate) mod probe;
pub(crate) mod recorder;
mod settings;
pub(crate) mod shots;
pub(crate) mod take;
pub(crate) mod wait;
