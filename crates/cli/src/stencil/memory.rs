//! Memory of the matrix: of this process, or a file.

use super::args::Args;
use super::source::Source;
use crate::Result;
use crate::progress::Progress;
use shotline_accelerate::stencil::Matrix;
use shotline_compute::stencil::Real;
use shotline_memory::{Pages, Region, check_capacity};
use shotline_store::npy::header_bytes;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Offset of the values in a file: a page, so that the values begin at an address that suits every device.
const HEADER_BYTES: usize = 4096;

/// Memory that has the matrix before, and the result after a run.
pub struct ResultMemory {
    /// The region.
    pub region: Arc<Region>,
    /// Offset of the first value.
    pub offset: u64,
    row_bytes: usize,
    file: Option<OutFile>,
}

/// A file under a temporary name, which is removed when this value is dropped.
struct OutFile {
    partial: PathBuf,
    path: PathBuf,
    is_published: bool,
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

impl ResultMemory {
    /// Creates the memory and fills it with the values of the source.
    pub fn create<F: Real>(args: &Args, source: &Source, matrix: &Matrix, stop: &AtomicBool) -> Result<Self> {
        let too_large = || format!("a matrix of {} x {} is too large", matrix.rows, matrix.columns);
        let bytes = matrix.bytes().and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(too_large)?;
        let row_bytes = matrix.row_bytes() as usize;
        let memory = match &args.out {
            None => {
                let advice = "or let a file be the memory (--out FILE)";
                check_capacity([(Pages::Transparent, bytes as u64)])
                    .map_err(|error| format!("the matrix: {error}, {advice}"))?;
                Self { region: Region::host(bytes)?, offset: 0, row_bytes, file: None }
            }
            Some(path) => {
                let file = OutFile::create(path, args.force)?;
                let len = bytes.checked_add(HEADER_BYTES).ok_or_else(too_large)?;
                let region = Region::file(&file.partial, len, true)?;
                let dimensions = [matrix.rows, matrix.columns];
                region.write(0, &header_bytes('f', size_of::<F>(), &dimensions, HEADER_BYTES));
                Self { region, offset: HEADER_BYTES as u64, row_bytes, file: Some(file) }
            }
        };
        memory.fill::<F>(source, stop)?;
        Ok(memory)
    }

    fn fill<F: Real>(&self, source: &Source, stop: &AtomicBool) -> Result {
        let bar = Progress::new("rows prepared");
        let mut row = vec![F::default(); source.shape.columns as usize];
        for number in 0..source.shape.rows {
            if stop.load(Relaxed) {
                return Err("interrupted before the first step".into());
            }
            source.read(number, 0, &mut row)?;
            self.region.write(self.row(number), F::bytes(&row));
            if number.is_multiple_of(256) {
                bar.update(number, source.shape.rows);
            }
        }
        Ok(())
    }

    fn row(&self, number: u64) -> usize {
        self.offset as usize + number as usize * self.row_bytes
    }

    /// Reads a row.
    pub fn read_row<F: Real>(&self, number: u64, to: &mut [F]) {
        self.region.read(self.row(number), F::bytes_mut(to));
    }

    /// Gives a file its name, once its values are on the drive. Returns the name.
    pub fn publish(mut self) -> Result<Option<PathBuf>> {
        let Some(file) = &mut self.file else { return Ok(None) };
        let failed = |error| format!("cannot save {}: {error}", file.path.display());
        File::open(&file.partial).and_then(|open| open.sync_all()).map_err(failed)?;
        std::fs::rename(&file.partial, &file.path).map_err(failed)?;
        file.is_published = true;
        Ok(Some(file.path.clone()))
    }
}

impl OutFile {
    fn create(path: &Path, force: bool) -> Result<Self> {
        if !force && path.exists() {
            return Err(format!("{} exists: choose another name, or use --force", path.display()).into());
        }
        let mut name = path.file_name().ok_or("expected --out with the name of a file")?.to_owned();
        name.push(".partial");
        let partial = path.with_file_name(name);
        // Of an earlier run that was killed: its length may be another.
        match std::fs::remove_file(&partial) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("cannot replace {}: {error}", partial.display()).into())
            }
            _ => Ok(Self { partial, path: path.into(), is_published: false }),
        }
    }
}
