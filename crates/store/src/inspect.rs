//! Sums a recording up, while it runs or after.

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

/// A recording in short.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The file.
    pub path: PathBuf,
    /// Bytes of it.
    pub file_bytes: u64,
    /// What is known of the run.
    pub run: RunInfo,
    /// Whether it ended in order. If not, it goes on, or it broke off.
    pub finished: bool,
    /// Visible rows.
    pub rows: u64,
    /// Rows that there is room for.
    pub laid_out: u64,
    /// The first row's shot number.
    pub first: Option<u64>,
    /// The last row's shot number.
    pub last: Option<u64>,
    /// Seconds from the first known time stamp to the last.
    pub seconds: f64,
    /// The links.
    pub links: Vec<LinkSummary>,
    /// Runs of shots that are in no row, and why.
    pub losses: Vec<LossSummary>,
    /// The books: counts by name and stream.
    pub books: BTreeMap<u32, BTreeMap<String, u64>>,
    /// The files of a run of several.
    pub parts: Vec<FileEntry>,
    /// What a bounded run has removed.
    pub removed: Removed,
    /// Counts of the whole run.
    pub totals: BTreeMap<String, u64>,
    /// How the shots of a compressed run that has ended are stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<Chunks>,
}

/// One link in short.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LinkSummary {
    /// Its stream.
    pub stream: u32,
    /// Complete shots.
    pub complete: u64,
    /// Partial shots.
    pub partial: u64,
    /// Lost shots.
    pub lost: u64,
    /// Packets in their places.
    pub packets: u64,
    /// Packets that are not, by cause.
    pub drops: BTreeMap<&'static str, u64>,
}

/// A run of lost shots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LossSummary {
    /// Their stream.
    pub stream: u32,
    /// Why.
    pub cause: &'static str,
    /// The first number.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// Sums up a recording.
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
        laid_out: recording.allocated_rows(),
        first,
        last,
        seconds: latest.saturating_sub(earliest) as f64 / 1e9,
        links,
        losses: recording.losses()?.iter().map(loss).collect(),
        books: ended.books.streams.iter().map(|books| (books.stream, books.entries().into_iter().collect())).collect(),
        chunks: Chunks::of_totals(&ended.totals),
        parts: recording.parts().to_vec(),
        removed: recording.removed(),
        totals: ended.totals,
    })
}
