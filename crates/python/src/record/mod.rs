//! Runs, emulated probes and probes as Python objects.

mod emulator;
mod event;
mod probe;
mod recorder;

pub use emulator::Emulator;
pub use event::{Event, Slot};
pub use probe::Probe;
pub use recorder::Recorder;

use crate::error::Failure;
use std::time::Duration;

/// Converts a time in seconds; none is forever.
fn duration(seconds: Option<f64>) -> Result<Option<Duration>, Failure> {
    let convert = |seconds: f64| {
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| Failure::Value(format!("expected a time in seconds of 0 or more, found {seconds}")))
    };
    seconds.filter(|seconds| *seconds != f64::INFINITY).map(convert).transpose()
}

/// Parses settings that the Python part has written as JSON.
fn parse<T: serde::de::DeserializeOwned>(json: &str) -> Result<T, Failure> {
    serde_json::from_str(json).map_err(|error| {
        // Line and column are those of the JSON text, which the caller has not seen.
        let words = error.to_string();
        Failure::Value(words.split(" at line ").next().unwrap_or_default().to_owned())
    })
}
