//! Result of a recovery.

use crate::inspect::LossSummary;
use crate::shot_ranges::ShotRange;
use serde::Serialize;
use std::path::PathBuf;

/// Result of the recovery of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// Path of the file.
    pub path: PathBuf,
    /// Nothing was changed; the result describes what recovery would do.
    pub dry_run: bool,
    /// Visible rows before.
    pub rows_before: u64,
    /// Visible rows now.
    pub rows: u64,
    /// Rows after the last visible one that held a valid shot and are visible now.
    pub adopted: u64,
    /// Table rows rebuilt from end-of-shot records.
    pub rebuilt: u64,
    /// Complete shots, verified by a CRC.
    pub complete: u64,
    /// Shots received with missing packets, valid as written.
    pub partial: u64,
    /// Lost shots of rows.
    pub lost: u64,
    /// Shots that are not complete, by ranges and cause; for partial ones the cause of most missing packets.
    pub incomplete: Vec<LossSummary>,
    /// Allocated rows that are released.
    pub released_rows: u64,
    /// Size of the file in bytes now.
    pub file_bytes: u64,
    /// Changes to the file; empty if it was valid.
    pub changes: Vec<Change>,
    /// Shot numbers that valid rows and losses account for.
    #[serde(skip)]
    pub(crate) numbers: Vec<ShotRange>,
    /// Number of entries in `/losses`.
    #[serde(skip)]
    pub(crate) losses: u64,
}

/// Change that recovery makes to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Rows, losses or markers are repaired.
    Repaired,
    /// Allocated space without a shot is released.
    Truncated,
}
