//! One check: what a run requires, what was found, and how to fix it.

use serde::Serialize;
use serde_json::{Map, Value};
use shotline_wire::shot::Geometry;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What a run requires of this machine.
pub(super) struct Requirements {
    pub(super) probe: Option<SocketAddr>,
    pub(super) out: PathBuf,
    pub(super) bytes_per_s: f64,
    pub(super) geometry: Geometry,
    pub(super) pool: u64,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The requirement is met.
    Ok,
    /// A run works, but with losses or at a lower rate.
    Warn,
    /// A run cannot work.
    Fail,
}

/// A check and its result.
#[derive(Debug, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub state: State,
    pub found: String,
    pub(super) expected: String,
    /// The command that fixes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
    /// Measured values, with units in their names.
    #[serde(skip_serializing_if = "Map::is_empty")]
    measured: Map<String, Value>,
}

impl Check {
    pub(super) fn new(name: &'static str, state: State, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { name, state, found: found.into(), expected: expected.into(), fix: None, measured: Map::new() }
    }
    /// Sets the command that fixes it, unless the check passed.
    pub(super) fn fix(mut self, fix: impl Into<String>) -> Self {
        if self.state != State::Ok {
            self.fix = Some(fix.into());
        }
        self
    }
    pub(super) fn measured(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.measured.insert(name.into(), value.into());
        self
    }
}

/// Reads a file of the kernel that holds one value, without its line end.
pub(super) fn kernel_file(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Formats a number of bytes with a binary unit.
pub fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) if bytes.is_multiple_of(*unit) => format!("{} {name}", bytes / unit),
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} bytes"),
    }
}
