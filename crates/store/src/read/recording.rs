//! A recording open for reading: one file, or a run of several files.

use super::file::{RecordingFile, row_out_of_range};
use super::final_counters::{FinalCounters, parse_counters};
use super::run::Run;
use crate::StoreError;
use crate::info::RunInfo;
use crate::master::{FileEntry, Master, Removed};
use crate::medium::Medium;
use crate::nvme::Target;
use crate::rows::Row;
use crate::shot::Loss;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Table rows that [`Recording::rows_of`] reads at a time.
const BLOCK_ROWS: u64 = 1024;

/// A recording open for reading.
#[derive(Debug)]
pub struct Recording {
    source: Source,
}

#[derive(Debug)]
enum Source {
    File(Arc<RecordingFile>),
    Run(Box<Run>),
}

/// Location of the bytes of a shot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredShot<'a> {
    /// File that holds the shot.
    pub path: &'a Path,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// `true` for a compressed chunk, `false` for the shot as it was on the wire.
    pub compressed: bool,
}

impl Recording {
    /// Opens a recording.
    ///
    /// # Errors
    /// Fails if it cannot be opened, or with [`StoreError::Format`] if this version cannot read its layout.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if Target::of(path).is_some() {
            return Ok(Self { source: Source::File(Arc::new(RecordingFile::open(path)?)) });
        }
        // Opened as a plain file first: the kernel's error for a missing file is clearer than that of HDF5.
        Medium::open(path).map_err(StoreError::open(path))?;
        let source = match Master::read(path)? {
            Some(master) => Source::Run(Box::new(Run::new(path, master)?)),
            None => Source::File(Arc::new(RecordingFile::open(path)?)),
        };
        Ok(Self { source })
    }

    /// Updates and returns the number of visible rows.
    ///
    /// # Errors
    /// Fails if the recording cannot be read any more. The number is then unchanged.
    pub fn refresh(&mut self) -> Result<u64, StoreError> {
        match &self.source {
            Source::File(file) => file.refresh(),
            Source::Run(run) => {
                let reopened = Self::open(&run.path)?;
                *self = reopened;
                Ok(self.rows())
            }
        }
    }

    /// Returns the path of the file, or of the master of a run.
    pub fn path(&self) -> &Path {
        match &self.source {
            Source::File(file) => &file.path,
            Source::Run(run) => &run.path,
        }
    }
    /// Returns the description of the run.
    pub fn run(&self) -> &RunInfo {
        match &self.source {
            Source::File(file) => &file.run,
            Source::Run(run) => &run.master.run,
        }
    }
    /// Returns the number of visible rows.
    pub fn rows(&self) -> u64 {
        match &self.source {
            Source::File(file) => file.rows(),
            Source::Run(run) => run.rows,
        }
    }
    /// Returns the number of rows for which space is allocated.
    pub fn allocated_rows(&self) -> u64 {
        match &self.source {
            Source::File(file) => file.layout().rows,
            // Only files that were opened before are read here, so this does not fail in practice.
            Source::Run(run) => run.allocated_rows().unwrap_or(run.rows),
        }
    }
    /// Returns the total size of the files, in bytes.
    pub fn file_bytes(&self) -> u64 {
        match &self.source {
            Source::File(file) => file.file_bytes(),
            Source::Run(run) => run.file_bytes(),
        }
    }
    /// Returns the recording on a raw device, or `None` if it is in files.
    pub(crate) fn on_device(&self) -> Option<&RecordingFile> {
        match &self.source {
            Source::File(file) => matches!(file.file, Medium::Extent(_)).then_some(file),
            Source::Run(_) => None,
        }
    }
    /// Returns `false` if another run has replaced the recording on its raw device since it was opened.
    pub(crate) fn is_current(&self) -> bool {
        self.on_device().is_none_or(|file| matches!(&file.file, Medium::Extent(extent) if extent.is_current()))
    }
    /// Returns the files of a run; empty if the recording is a single file.
    pub fn parts(&self) -> &[FileEntry] {
        match &self.source {
            Source::File(_) => &[],
            Source::Run(run) => run.entries(),
        }
    }
    /// Returns the paths of these files, in the same order.
    pub fn part_paths(&self) -> &[PathBuf] {
        match &self.source {
            Source::File(_) => &[],
            Source::Run(run) => &run.files,
        }
    }
    /// Returns what a bounded run has removed.
    pub fn removed(&self) -> Removed {
        match &self.source {
            Source::File(_) => Removed::default(),
            Source::Run(run) => run.master.removed,
        }
    }
    /// Returns `true` if this file is one stripe of a run, so that shot numbers between its rows are in other files.
    pub fn is_stripe(&self) -> bool {
        self.run().part.is_some_and(|part| part.stripes > 1)
    }

    /// Reads a table row of a link.
    ///
    /// # Errors
    /// Fails if the row is not visible or cannot be read.
    pub fn row(&self, row: u64, link: usize) -> Result<Row, StoreError> {
        let mut found = self.read_rows(link, row..row + 1)?;
        found.pop().ok_or_else(|| row_out_of_range(self.path(), row, self.rows()))
    }

    /// Reads a range of table rows of a link.
    ///
    /// # Errors
    /// Fails if a row is not visible or cannot be read.
    pub fn read_rows(&self, link: usize, rows: Range<u64>) -> Result<Vec<Row>, StoreError> {
        match &self.source {
            Source::File(file) => file.read_rows(link, rows),
            Source::Run(run) => run.read_rows(link, rows),
        }
    }

    /// Iterates over all table rows of a link, read a block at a time.
    pub fn rows_of(&self, link: usize) -> impl Iterator<Item = Result<Row, StoreError>> + '_ {
        let all = self.rows();
        (0..all).step_by(BLOCK_ROWS as usize).flat_map(move |first| {
            let block = self.read_rows(link, first..all.min(first + BLOCK_ROWS));
            let (rows, error) = match block {
                Ok(rows) => (rows, None),
                Err(error) => (Vec::new(), Some(Err(error))),
            };
            rows.into_iter().map(Ok).chain(error)
        })
    }

    /// Returns the location of the bytes of a shot.
    ///
    /// # Errors
    /// Fails if the row is not visible, or if the chunk index of a compressed run is invalid.
    pub fn stored(&self, row: u64, link: usize) -> Result<StoredShot<'_>, StoreError> {
        let (path, stored) = match &self.source {
            Source::File(file) => (&file.path, file.stored(row, link)?),
            Source::Run(run) => {
                let (file, row) = run.locate_row(row)?;
                (&run.files[file], run.file(file)?.stored(row, link)?)
            }
        };
        Ok(StoredShot { path, offset: stored.offset, bytes: stored.bytes, compressed: stored.compressed })
    }

    /// Reads the ranges of shots that are in no row, or in a row as lost.
    ///
    /// # Errors
    /// Fails if a table cannot be read or contains an unknown cause.
    pub fn losses(&self) -> Result<Vec<Loss>, StoreError> {
        match &self.source {
            Source::File(file) => file.losses(),
            Source::Run(run) => run.losses(),
        }
    }

    /// Reads the final counters; `None` while the run continues, or if it was interrupted.
    ///
    /// # Errors
    /// Fails if the table cannot be read.
    pub fn final_counters(&self) -> Result<Option<FinalCounters>, StoreError> {
        match &self.source {
            Source::File(file) => file.final_counters(),
            Source::Run(run) => Ok(parse_counters(&run.master.counters)),
        }
    }

    /// Checks the whole chunk index of every file, so that HDF5 readers read the same bytes as
    /// [`SlotReader`](super::SlotReader).
    ///
    /// # Errors
    /// Fails with [`StoreError::Format`] at the first chunk that is not where the layout puts it.
    pub fn check_index(&self) -> Result<(), StoreError> {
        match &self.source {
            Source::File(file) => file.check_index(),
            Source::Run(run) => run.check_index(),
        }
    }

    /// Returns the index of the file that holds a row, the file, and the row within it.
    pub(super) fn locate_row(&self, row: u64) -> Result<(usize, Arc<RecordingFile>, u64), StoreError> {
        match &self.source {
            Source::File(file) => Ok((0, Arc::clone(file), row)),
            Source::Run(run) => {
                let (file, row) = run.locate_row(row)?;
                Ok((file, run.file(file)?, row))
            }
        }
    }
}
