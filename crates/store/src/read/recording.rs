//! A recording that is open for reading: one file, or a run of many.

use super::ended::{Ended, ended};
use super::file::{OneFile, no_row};
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

/// Table rows that [`Recording::rows_of`] reads at once.
const BLOCK_ROWS: u64 = 1024;

/// A recording that is open for reading.
#[derive(Debug)]
pub struct Recording {
    source: Source,
}

#[derive(Debug)]
enum Source {
    File(Arc<OneFile>),
    Run(Box<Run>),
}

/// Where the bytes of one shot are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<'a> {
    /// The file.
    pub path: &'a Path,
    /// Their offset in it.
    pub at: u64,
    /// How many they are.
    pub bytes: u32,
    /// They are a compressed chunk; else the shot as it was on the wire.
    pub compressed: bool,
}

impl Recording {
    /// Opens a recording. Refuses what this program cannot read raw.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if Target::of(path).is_some() {
            return Ok(Self { source: Source::File(Arc::new(OneFile::open(path)?)) });
        }
        // First as a plain file: what the kernel says of one that is not there is clearer than what HDF5 does.
        Medium::open(path).map_err(StoreError::open(path))?;
        let source = match Master::read(path)? {
            Some(master) => Source::Run(Box::new(Run::new(path, master)?)),
            None => Source::File(Arc::new(OneFile::open(path)?)),
        };
        Ok(Self { source })
    }

    /// Looks how many rows are visible by now, and returns that.
    pub fn refresh(&mut self) -> Result<u64, StoreError> {
        match &self.source {
            Source::File(file) => file.refresh(),
            Source::Run(run) => {
                let again = Self::open(&run.path)?;
                *self = again;
                Ok(self.rows())
            }
        }
    }

    /// The file; of a run its master.
    pub fn path(&self) -> &Path {
        match &self.source {
            Source::File(file) => &file.path,
            Source::Run(run) => &run.path,
        }
    }
    /// What is known of the run.
    pub fn run(&self) -> &RunInfo {
        match &self.source {
            Source::File(file) => &file.run,
            Source::Run(run) => &run.master.run,
        }
    }
    /// Visible rows.
    pub fn rows(&self) -> u64 {
        match &self.source {
            Source::File(file) => file.rows(),
            Source::Run(run) => run.rows,
        }
    }
    /// Rows that there is room for.
    pub fn laid_out(&self) -> u64 {
        match &self.source {
            Source::File(file) => file.layout().rows,
            // Only what a file says of itself could fail, and every file of which it is asked was opened before.
            Source::Run(run) => run.laid_out().unwrap_or(run.rows),
        }
    }
    /// Bytes on the disk, from each file's first to its last.
    pub fn file_bytes(&self) -> u64 {
        match &self.source {
            Source::File(file) => file.file_bytes(),
            Source::Run(run) => run.file_bytes(),
        }
    }
    /// The recording on a raw device; none if it is in files.
    pub(crate) fn on_device(&self) -> Option<&OneFile> {
        match &self.source {
            Source::File(file) => matches!(file.file, Medium::Extent(_)).then_some(file),
            Source::Run(_) => None,
        }
    }
    /// Whether it is still where it was opened: on a raw device another may have taken its place.
    pub(crate) fn stands(&self) -> bool {
        self.on_device().is_none_or(|one| matches!(&one.file, Medium::Extent(extent) if extent.stands()))
    }
    /// The files of a run; none if this is one file.
    pub fn parts(&self) -> &[FileEntry] {
        match &self.source {
            Source::File(_) => &[],
            Source::Run(run) => run.entries(),
        }
    }
    /// The paths of these files, in the same order.
    pub fn part_paths(&self) -> &[PathBuf] {
        match &self.source {
            Source::File(_) => &[],
            Source::Run(run) => &run.files,
        }
    }
    /// What a bounded run has removed.
    pub fn removed(&self) -> Removed {
        match &self.source {
            Source::File(_) => Removed::default(),
            Source::Run(run) => run.master.removed,
        }
    }
    /// Whether shot numbers between its rows are in other files: it is one of several that stand side by side.
    pub fn is_stripe(&self) -> bool {
        self.run().part.is_some_and(|place| place.stripes > 1)
    }

    /// One table row of a link.
    pub fn row(&self, row: u64, link: usize) -> Result<Row, StoreError> {
        let mut found = self.read_rows(link, row..row + 1)?;
        found.pop().ok_or_else(|| no_row(self.path(), row, self.rows()))
    }

    /// Some table rows of a link.
    pub fn read_rows(&self, link: usize, rows: Range<u64>) -> Result<Vec<Row>, StoreError> {
        match &self.source {
            Source::File(file) => file.read_rows(link, rows),
            Source::Run(run) => run.read_rows(link, rows),
        }
    }

    /// All table rows of a link, read a block at a time.
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

    /// Where the bytes of one shot are.
    pub fn stored(&self, row: u64, link: usize) -> Result<Stored<'_>, StoreError> {
        let (path, stored) = match &self.source {
            Source::File(file) => (&file.path, file.stored(row, link)?),
            Source::Run(run) => {
                let (file, row) = run.place(row)?;
                (&run.files[file], run.file(file)?.stored(row, link)?)
            }
        };
        Ok(Stored { path, at: stored.at, bytes: stored.bytes, compressed: stored.compressed })
    }

    /// Runs of shots that are in no row, or in a row as lost.
    pub fn losses(&self) -> Result<Vec<Loss>, StoreError> {
        match &self.source {
            Source::File(file) => file.losses(),
            Source::Run(run) => run.losses(),
        }
    }

    /// The books; none if the run goes on, or broke off.
    pub fn ended(&self) -> Result<Option<Ended>, StoreError> {
        match &self.source {
            Source::File(file) => file.ended(),
            Source::Run(run) => Ok(ended(&run.master.books)),
        }
    }

    /// Walks the whole chunk index, of every file: HDF5 readers read the same bytes as
    /// [`Slots`](super::Slots).
    pub fn check_index(&self) -> Result<(), StoreError> {
        match &self.source {
            Source::File(file) => file.check_index(),
            Source::Run(run) => run.check_index(),
        }
    }

    /// The file that has a row, its number among the run's, and which of its rows that is.
    pub(super) fn file_of(&self, row: u64) -> Result<(usize, Arc<OneFile>, u64), StoreError> {
        match &self.source {
            Source::File(file) => Ok((0, Arc::clone(file), row)),
            Source::Run(run) => {
                let (file, row) = run.place(row)?;
                Ok((file, run.file(file)?, row))
            }
        }
    }
}
