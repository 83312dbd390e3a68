//! Sums a recording up, while it runs or after.

use crate::StoreError;
use crate::info::RunInfo;
use crate::layout::{self, Layout};
use crate::recorder::WHOLE_RUN;
use crate::rows::{self, BOOK_BYTES, LOSS_BYTES, Row, State};
use crate::shot::{Books, Loss, StreamBooks};
use rustix::io::Errno;
use serde::Serialize;
use shotline_wire::shot::DropCause;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A recording that is open for reading: what is visible at the moment of opening.
#[derive(Debug)]
pub(crate) struct Recording {
    pub path: PathBuf,
    pub file: File,
    pub run: RunInfo,
    pub layout: Layout,
    /// Visible rows.
    pub rows: u64,
    /// Each link's table, cut to the visible rows.
    pub tables: Vec<Vec<u8>>,
    pub losses: Vec<Loss>,
    /// The books, if the run ended.
    pub books: Option<Books>,
    /// Counts of the whole run, if it ended.
    pub totals: BTreeMap<String, u64>,
}

impl Recording {
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(|error| {
            let source = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            StoreError::Io { what: "open", path: path.to_owned(), source }
        })?;
        let (run, layout) = layout::locate(path, &file)?;
        // The samples' marker before the tables': a row that is seen here has its table rows.
        let rows = layout::visible_rows(&file, &layout, path)?;
        let mut tables = Vec::new();
        for table in &layout.shots {
            let mut bytes = layout::table_bytes(&file, *table, path)?;
            let wanted = rows as usize * table.row_bytes as usize;
            if bytes.len() < wanted {
                let found = bytes.len() / table.row_bytes as usize;
                return Err(StoreError::format(path, format!("expected {rows} rows in every table, found {found}")));
            }
            bytes.truncate(wanted);
            tables.push(bytes);
        }
        let losses = layout::table_bytes(&file, layout.losses, path)?;
        let losses = losses.chunks_exact(LOSS_BYTES).map(rows::parse_loss).collect::<Option<Vec<_>>>();
        let losses =
            losses.ok_or_else(|| StoreError::format(path, "expected known causes in /losses, found others"))?;
        let entries = layout::table_bytes(&file, layout.books, path)?;
        let (books, totals) = read_books(&entries);
        Ok(Self { path: path.to_owned(), file, run, layout, rows, tables, losses, books, totals })
    }

    /// The table rows of a link.
    pub fn rows_of(&self, link: usize) -> impl Iterator<Item = Result<Row, StoreError>> + '_ {
        let format = self.layout.formats[link];
        self.tables[link].chunks_exact(format.bytes()).map(move |bytes| {
            format.parse(bytes).ok_or_else(|| {
                StoreError::format(&self.path, format!("expected known states in link {link}'s table, found others"))
            })
        })
    }
}

fn read_books(entries: &[u8]) -> (Option<Books>, BTreeMap<String, u64>) {
    let (mut streams, mut totals) = (BTreeMap::<u32, StreamBooks>::new(), BTreeMap::new());
    for (stream, name, value) in entries.chunks_exact(BOOK_BYTES).filter_map(rows::parse_book) {
        if stream == WHOLE_RUN {
            totals.insert(name, value);
        } else {
            let books = streams.entry(stream).or_insert_with(|| StreamBooks { stream, ..StreamBooks::default() });
            books.enter(&name, value);
        }
    }
    let books = (!entries.is_empty()).then(|| Books { streams: streams.into_values().collect() });
    (books, totals)
}

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
    /// Counts of the whole run.
    pub totals: BTreeMap<String, u64>,
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
    for (index, link) in recording.run.links.iter().enumerate() {
        let mut summary = LinkSummary { stream: link.stream, ..LinkSummary::default() };
        for row in recording.rows_of(index) {
            let row = row?;
            first.get_or_insert(row.number);
            last = Some(row.number);
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
    let streams = recording.books.iter().flat_map(|books| &books.streams);
    let losses = recording.losses.iter();
    Ok(Summary {
        path: path.to_owned(),
        file_bytes: recording.file.metadata().map_or(0, |m| m.len()),
        finished: recording.books.is_some(),
        rows: recording.rows,
        laid_out: recording.layout.rows,
        first,
        last,
        seconds: latest.saturating_sub(earliest) as f64 / 1e9,
        links,
        losses: losses
            .map(|l| LossSummary { stream: l.stream, cause: l.cause.name(), first: l.first, count: l.count })
            .collect(),
        books: streams.map(|books| (books.stream, books.entries().into_iter().collect())).collect(),
        totals: recording.totals,
        run: recording.run,
    })
}
