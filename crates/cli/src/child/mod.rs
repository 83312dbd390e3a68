//! Emulated devices and targets in child processes, for commands that need some of their own.

mod probe;
mod target;

pub use probe::Probe;
pub use target::{ChildTarget, address_arguments};

use crate::Result;
use std::path::PathBuf;
use std::process::{Child, Command};

/// Returns the file of this program, also if it has been replaced or removed since the start.
fn program() -> Result<PathBuf> {
    let path = std::env::current_exe()?;
    // The link of the kernel reaches the file without a name. It is used only then: a process is listed by its file's name.
    Ok(if path.exists() { path } else { "/proc/self/exe".into() })
}

/// Starts the process.
fn spawn(command: &mut Command) -> Result<Child> {
    command.spawn().map_err(|error| format!("cannot start {}: {error}", command.get_program().display()).into())
}
