//! What was found of a recording, and made of it.

use crate::inspect::LossSummary;
use crate::runs::Run;
use serde::Serialize;
use std::path::PathBuf;

/// What was found of a recording, and made of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// The file.
    pub path: PathBuf,
    /// Nothing was changed: this is what recovery would do.
    pub dry_run: bool,
    /// Rows that readers saw.
    pub rows_before: u64,
    /// Rows that they see now.
    pub rows: u64,
    /// Rows behind the last visible one that held something whole, and are visible now.
    pub adopted: u64,
    /// Table rows made again from the records of their shots.
    pub rebuilt: u64,
    /// Shots that are whole, proven by a CRC.
    pub whole: u64,
    /// Shots of which packets are missing since they were received; what there is, is as it was written.
    pub partial: u64,
    /// Shots of rows of which nothing is there.
    pub lost: u64,
    /// Shots that are not whole, in runs, and why: of partial ones the cause of most missing packets.
    pub not_whole: Vec<LossSummary>,
    /// Rows that had been laid out for more and are given back.
    pub shed: u64,
    /// Bytes of the file now.
    pub file_bytes: u64,
    /// What happens to the file; nothing if it is whole.
    pub changes: Vec<Change>,
    /// Numbers that its rows and losses tell for certain.
    #[serde(skip)]
    pub(crate) numbers: Vec<Run>,
    /// Entries of its `/losses`.
    #[serde(skip)]
    pub(crate) losses: u64,
}

/// What recovery does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Rows, losses or markers are put right.
    Repaired,
    /// What was laid out and holds no shot is given back.
    Cut,
}
