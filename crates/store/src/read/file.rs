//! One file of a recording.

use super::final_counters::{FinalCounters, parse_counters};
use crate::StoreError;
use crate::info::RunInfo;
use crate::layout::{self, Layout, StoredChunk};
use crate::medium::Medium;
use crate::nvme::{self, Target};
use crate::rows::{self, LOSS_BYTES, Row};
use crate::shot::Loss;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A file of a recording, open for reading. The methods correspond to those of [`super::Recording`].
#[derive(Debug)]
pub(crate) struct RecordingFile {
    pub(super) path: PathBuf,
    pub(crate) file: Medium,
    pub(super) run: RunInfo,
    layout: RwLock<Arc<Layout>>,
    rows: AtomicU64,
}

impl RecordingFile {
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let file = match Target::of(path) {
            Some(target) => Medium::Extent(nvme::open(&target, nvme::Access::Read)?),
            None => Medium::open(path).map_err(StoreError::open(path))?,
        };
        let (run, layout) = layout::locate_in(path, &file)?;
        let layout = RwLock::new(Arc::new(layout));
        let file = Self { path: path.to_owned(), file, run, layout, rows: AtomicU64::new(0) };
        file.refresh()?;
        Ok(file)
    }

    /// Returns the last known layout. The recorder moves indexes and tables when it ends the run.
    pub(crate) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn read<T>(&self, read: impl Fn(&Layout) -> Result<T, StoreError>) -> Result<T, StoreError> {
        layout::read_consistently(&self.file, &self.layout, &self.path, read)
    }

    pub(super) fn refresh(&self) -> Result<u64, StoreError> {
        let rows = self.read(|layout| {
            // The samples' marker is read before those of the tables, so a row that is visible here has its table rows.
            let rows = layout::visible_rows(&self.file, layout, &self.path)?;
            for table in &layout.shots {
                let found = layout::visible(&self.file, table.header, &self.path)?;
                if found < rows {
                    let found = format!("expected {rows} rows in every table, found {found}");
                    return Err(StoreError::format(&self.path, found));
                }
            }
            Ok(rows)
        })?;
        self.rows.store(rows, Ordering::Relaxed);
        Ok(rows)
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }
    pub(super) fn file_bytes(&self) -> u64 {
        self.file.bytes()
    }

    pub(super) fn read_rows(&self, link: usize, rows: Range<u64>) -> Result<Vec<Row>, StoreError> {
        if rows.end > self.rows() {
            return Err(row_out_of_range(&self.path, rows.end.saturating_sub(1), self.rows()));
        }
        let read = |layout: &Layout| layout::table_rows(&self.file, layout.shots[link], rows.clone(), &self.path);
        let (format, bytes) = (self.layout().formats[link], self.read(read)?);
        let parsed = bytes.chunks_exact(format.bytes()).map(|row| format.parse(row));
        parsed.collect::<Option<_>>().ok_or_else(|| {
            StoreError::format(&self.path, format!("expected known states in link {link}'s table, found others"))
        })
    }

    /// Returns the location of a shot.
    pub(super) fn stored(&self, row: u64, link: usize) -> Result<StoredChunk, StoreError> {
        if row >= self.rows() {
            return Err(row_out_of_range(&self.path, row, self.rows()));
        }
        let layout = self.layout();
        if layout.codec.is_none() {
            // Slots never move.
            return layout::stored(&self.file, &layout, row, link, &self.path);
        }
        self.read(|layout| layout::stored(&self.file, layout, row, link, &self.path))
    }

    pub(super) fn losses(&self) -> Result<Vec<Loss>, StoreError> {
        let bytes = self.read(|layout| layout::table_bytes(&self.file, layout.losses, &self.path))?;
        let losses = bytes.chunks_exact(LOSS_BYTES).map(rows::parse_loss).collect::<Option<_>>();
        losses.ok_or_else(|| StoreError::format(&self.path, "expected known causes in /losses, found others"))
    }

    pub(super) fn final_counters(&self) -> Result<Option<FinalCounters>, StoreError> {
        Ok(parse_counters(&self.read(|layout| layout::table_bytes(&self.file, layout.counters, &self.path))?))
    }

    pub(super) fn check_index(&self) -> Result<(), StoreError> {
        self.read(|layout| layout::check(&self.path, &self.file, layout))
    }
}

pub(super) fn row_out_of_range(path: &Path, row: u64, rows: u64) -> StoreError {
    StoreError::format(path, format!("expected a row below {rows}, found {row}"))
}
