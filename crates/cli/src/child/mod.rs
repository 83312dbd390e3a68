//! Emulated devices and targets in child processes, for commands that need some of their own.

mod probe;
mod target;

pub use probe::Probe;
pub use target::{ChildTarget, address_arguments};
