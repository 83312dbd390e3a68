//! Summary of a recording, during the run or after it.

use crate::StoreError;
use crate::info::RunInfo;
use crate::master::{FileEntry, Removed};
use crate::read::Recording;
use crate::recorder::Chunks;
use crate::rows::{NO_NUMBER, State};
use crate::shot::Loss;
use serde::Serialize;
use shotline_wire::shot::DropCause;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Summary of a recording.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Path of the recording.
    pub path: PathBuf,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Metadata of the run.
    pub run: RunInfo,
    /// The run ended in order. If `false`, it is still recording, or it crashed.
    pub finished: bool,
    /// Number of visible rows.
    pub rows: u64,
    /// Number of rows allocated in the file.
    pub allocated_rows: u64,
    /// Shot number of the first row.
    pub first: Option<u64>,
    /// Shot number of the last row.
    pub last: Option<u64>,
    /// Seconds from the first known timestamp to the last.
    pub seconds: f64,
    /// Summaries of the links.
    pub links: Vec<LinkSummary>,
    /// Shots that are in no row, with their drop causes.
    pub losses: Vec<LossSummary>,
    /// Counters by stream and name.
    pub counters: BTreeMap<u32, BTreeMap<String, u64>>,
    /// Files of a run of several files.
    pub parts: Vec<FileEntry>,
    /// Rows and parts that a bounded run has removed.
    pub removed: Removed,
    /// Counters of the whole run.
    pub totals: BTreeMap<String, u64>,
    /// Chunk storage of a compressed run that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<Chunks>,
}

/// Summary of one link.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LinkSummary {
    /// Stream number.
    pub stream: u32,
    /// Complete shots.
    pub complete: u64,
    /// Partial shots.
    pub partial: u64,
    /// Lost shots.
    pub lost: u64,
    /// Packets present in the file.
    pub packets: u64,
    /// Dropped packets by cause.
    pub drops: BTreeMap<&'static str, u64>,
}

/// Consecutive lost shots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LossSummary {
    /// Stream number.
    pub stream: u32,
    /// Drop cause.
    pub cause: &'static str,
    /// First shot number.
    pub first: u64,
    /// Number of shots.
    pub count: u64,
}

/// Summarises a recording.
///
/// # Errors
/// Fails if the recording, or a file of its run, cannot be opened or read.
pub fn inspect(path: &Path) -> Result<Summary, StoreError> {
    let recording = Recording::open(path)?;
    let mut links = Vec::new();
    let (mut first, mut last) = (None, None);
    let (mut earliest, mut latest) = (u64::MAX, 0);
    for (index, link) in recording.run().links.iter().enumerate() {
        let mut summary = LinkSummary { stream: link.stream, ..LinkSummary::default() };
        for row in recording.rows_of(index) {
            let row = row?;
            if row.number != NO_NUMBER {
                first.get_or_insert(row.number);
                last = Some(row.number);
            }
            if row.stamp_tai_ns > 0 {
                earliest = earliest.min(row.stamp_tai_ns);
                latest = latest.max(row.stamp_tai_ns);
            }
            match row.state {
                State::Complete => summary.complete += 1,
                State::Partial => summary.partial += 1,
                State::Lost => summary.lost += 1,
            }
            summary.packets += u64::from(row.placed);
            for (cause, count) in DropCause::ALL.into_iter().zip(row.drops).filter(|(_, count)| *count > 0) {
                *summary.drops.entry(cause.name()).or_default() += u64::from(count);
            }
        }
        links.push(summary);
    }
    let ended = recording.final_counters()?;
    let finished = ended.is_some();
    let ended = ended.unwrap_or_default();
    let loss = |l: &Loss| LossSummary { stream: l.stream, cause: l.cause.name(), first: l.first, count: l.count };
    Ok(Summary {
        path: path.to_owned(),
        file_bytes: recording.file_bytes(),
        run: recording.run().clone(),
        finished,
        rows: recording.rows(),
        allocated_rows: recording.allocated_rows(),
        first,
        last,
        seconds: latest.saturating_sub(earliest) as f64 / 1e9,
        links,
        losses: recording.losses()?.iter().map(loss).collect(),
        counters: ended
            .counters
            .streams
            .iter()
            .map(|counters| (counters.stream, counters.entries().into_iter().collect()))
            .collect(),
        chunks: Chunks::of_totals(&ended.totals),
        parts: recording.parts().to_vec(),
        removed: recording.removed(),
        totals: ended.totals,
    })
}
