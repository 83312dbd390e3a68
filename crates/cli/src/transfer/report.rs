//! Report of a transfer.

use crate::output::Rows;
use crate::values::Size;
use std::time::Duration;

/// What was transferred.
#[derive(serde::Serialize)]
pub struct Transferred {
    /// `get` or `put`.
    command: &'static str,
    region: String,
    offset: u64,
    bytes: u64,
    /// Number of READs or WRITEs.
    operations: u64,
    seconds: f64,
    gbps: f64,
    transport: &'static str,
}

impl Transferred {
    /// Creates the report of a command.
    pub fn new(
        (command, transport): (&'static str, &'static str),
        (region, offset): (&str, Size),
        (bytes, operations): (u64, u64),
        elapsed: Duration,
    ) -> Self {
        let seconds = elapsed.as_secs_f64();
        let gbps = if seconds > 0.0 { bytes as f64 * 8e-9 / seconds } else { 0.0 };
        Self { command, region: region.to_owned(), offset: offset.0, bytes, operations, seconds, gbps, transport }
    }
}

impl Rows for Transferred {
    fn rows(&self) -> Vec<(String, String)> {
        let verb = if self.command == "get" { "read" } else { "written" };
        vec![
            ("region".into(), self.region.clone()),
            ("offset".into(), self.offset.to_string()),
            (format!("bytes {verb}"), self.bytes.to_string()),
            ("time".into(), format!("{:.3} s", self.seconds)),
            ("rate".into(), format!("{:.2} Gbit/s", self.gbps)),
        ]
    }
}
