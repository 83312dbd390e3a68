//! A run of several files as one recording. Files are opened on demand, and the last ones used stay open.

use super::file::{RecordingFile, row_out_of_range};
use crate::StoreError;
use crate::info::RunInfo;
use crate::master::interleaving::{Stretch, rows_before_gap, share, stretches};
use crate::master::{FileEntry, Master, State, resolve};
use crate::rows::Row;
use crate::shot::Loss;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of open files.
const MAX_OPEN_FILES: usize = 32;

/// A run of several files, open for reading.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) path: PathBuf,
    pub(super) master: Master,
    pub(super) files: Vec<PathBuf>,
    pub(super) rows: u64,
    parts: Vec<PartRows>,
    /// Open files by index, in order of use, the most recent last.
    open: Mutex<Vec<(usize, Arc<RecordingFile>)>>,
}

/// Rows of a part.
#[derive(Debug)]
struct PartRows {
    /// First row, counted from the start of the run.
    first: u64,
    rows: u64,
    /// Index of the first file of the part.
    file: usize,
    stretches: Vec<Stretch>,
}

impl Run {
    pub(super) fn new(path: &Path, master: Master) -> Result<Self, StoreError> {
        let files = master.files.iter().map(|entry| resolve(path, &entry.file)).collect();
        let (path, open) = (path.to_owned(), Mutex::new(Vec::new()));
        let mut run = Self { path, master, files, rows: 0, parts: Vec::new(), open };
        let mut file = 0;
        let mut counts = Vec::new();
        for part in run.master.parts() {
            let mut rows: Vec<u64> = part.iter().map(|entry| entry.rows).collect();
            if part.iter().any(|entry| entry.state == State::Live) {
                let seen = (file..file + part.len()).map(|file| Ok(run.file(file)?.rows()));
                let seen = rows_before_gap(&seen.collect::<Result<Vec<_>, StoreError>>()?);
                let files = part.len() as u64;
                rows = (0..files).map(|turn| share(seen, turn, files)).collect();
            }
            counts.push((file, rows));
            file += part.len();
        }
        for (file, counts) in counts {
            let (first, rows) = (run.rows, counts.iter().sum());
            run.parts.push(PartRows { first, rows, file, stretches: stretches(&counts) });
            run.rows += rows;
        }
        Ok(run)
    }

    /// Returns a file of the run, opening it if necessary.
    pub(super) fn file(&self, index: usize) -> Result<Arc<RecordingFile>, StoreError> {
        {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = open.iter().position(|(known, _)| *known == index) {
                let found = open.remove(at);
                open.push(found.clone());
                return Ok(found.1);
            }
        }
        let file = Arc::new(RecordingFile::open(&self.files[index])?);
        if file.run.run_id != self.master.run.run_id {
            return Err(StoreError::format(
                &self.files[index],
                format!("expected a part of run {}, found one of run {}", self.master.run.run_id, file.run.run_id),
            ));
        }
        let links = |run: &RunInfo| run.links.iter().map(|link| (link.stream, link.geometry)).collect::<Vec<_>>();
        if links(&file.run) != links(&self.master.run) {
            return Err(StoreError::format(
                &self.files[index],
                "expected the streams and geometries of the master, found others",
            ));
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_OPEN_FILES {
            open.remove(0);
        }
        open.push((index, Arc::clone(&file)));
        Ok(file)
    }

    /// Returns the index of the file that holds a row, and the row within that file.
    pub(super) fn locate_row(&self, row: u64) -> Result<(usize, u64), StoreError> {
        let part = self.parts.partition_point(|part| part.first + part.rows <= row);
        let found = self.parts.get(part).and_then(|part| {
            let at = row - part.first;
            let stretch = part.stretches.iter().find(|stretch| at < stretch.first + stretch.rows())?;
            let (file, row) = stretch.locate(at);
            Some((part.file + file, row))
        });
        found.ok_or_else(|| row_out_of_range(&self.path, row, self.rows))
    }

    pub(super) fn read_rows(&self, link: usize, rows: Range<u64>) -> Result<Vec<Row>, StoreError> {
        // The rows of each file are contiguous: they are read at once and then interleaved.
        let locations = rows.map(|row| self.locate_row(row)).collect::<Result<Vec<_>, _>>()?;
        let mut ranges: Vec<(usize, Range<u64>)> = Vec::new();
        for (file, row) in &locations {
            match ranges.iter_mut().find(|(known, _)| known == file) {
                Some((_, rows)) => rows.end = row + 1,
                None => ranges.push((*file, *row..row + 1)),
            }
        }
        let mut found = Vec::new();
        for (file, rows) in ranges {
            found.push((file, self.file(file)?.read_rows(link, rows)?.into_iter()));
        }
        let next = |(file, _): (usize, u64)| {
            let of = found.iter_mut().find(|(known, _)| *known == file);
            of.and_then(|(_, rows)| rows.next()).ok_or_else(|| row_out_of_range(&self.path, self.rows, self.rows))
        };
        locations.into_iter().map(next).collect()
    }

    pub(super) fn losses(&self) -> Result<Vec<Loss>, StoreError> {
        let mut all = Vec::new();
        for (index, entry) in self.master.files.iter().enumerate() {
            match entry.state {
                State::Live => all.extend(self.file(index)?.losses()?),
                _ if entry.losses > 0 => {
                    all.extend(self.file(index)?.losses()?.into_iter().take(entry.losses as usize))
                }
                _ => {}
            }
        }
        Ok(all)
    }

    pub(super) fn check_index(&self) -> Result<(), StoreError> {
        (0..self.files.len()).try_for_each(|index| self.file(index)?.check_index())
    }

    /// Returns the number of rows for which space is allocated.
    pub(super) fn allocated_rows(&self) -> Result<u64, StoreError> {
        let allocated = self.master.files.iter().enumerate().map(|(index, entry)| match entry.state {
            State::Live => Ok(self.file(index)?.layout().rows),
            _ => Ok(entry.rows),
        });
        allocated.sum()
    }

    pub(super) fn file_bytes(&self) -> u64 {
        let files = self.files.iter().chain([&self.path]);
        files.map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum()
    }

    pub(super) fn entries(&self) -> &[FileEntry] {
        &self.master.files
    }
}
