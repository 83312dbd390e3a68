//! Memory of the matrix: of this process, or a file.

use super::args::{Args, MatrixArgument};
use super::source::Source;
use crate::Result;
use crate::out_file::{OutFile, folder};
use crate::progress::Progress;
use shotline_accelerate::stencil::Matrix;
use shotline_compute::stencil::Real;
use shotline_memory::{Pages, Region, check_capacity};
use shotline_store::npy::header_bytes;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::available_parallelism;

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
                let region = Region::file(file.partial_path(), len, true)?;
                let dimensions = [matrix.rows, matrix.columns];
                region.write(0, &header_bytes('f', size_of::<F>(), &dimensions, HEADER_BYTES));
                Self { region, offset: HEADER_BYTES as u64, row_bytes, file: Some(file) }
            }
        };
        memory.fill::<F>(source, stop)?;
        Ok(memory)
    }

    /// Copies the source, by all processors.
    fn fill<F: Real>(&self, source: &Source, stop: &AtomicBool) -> Result {
        let bar = Mutex::new(Progress::new("rows prepared"));
        let next = AtomicU64::new(0);
        let work = || -> std::result::Result<(), String> {
            let mut row = vec![F::default(); source.shape.columns as usize];
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= source.shape.rows || stop.load(Relaxed) {
                    return Ok(());
                }
                source.read(number, 0, &mut row).map_err(|error| error.to_string())?;
                self.region.write(self.row(number), F::bytes(&row));
                if number.is_multiple_of(256) {
                    bar.lock().iter().for_each(|bar| bar.update(number, source.shape.rows));
                }
            }
        };
        let threads = available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })?;
        if stop.load(Relaxed) { Err("interrupted before the first step".into()) } else { Ok(()) }
    }

    fn row(&self, number: u64) -> usize {
        self.offset as usize + number as usize * self.row_bytes
    }

    /// Reads a row.
    pub fn read_row<F: Real>(&self, number: u64, to: &mut [F]) {
        self.region.read(self.row(number), F::bytes_mut(to));
    }

    /// Gives the file its name, if there is one, once its values are on the drive. Returns the name.
    pub fn publish(&mut self) -> Result<Option<PathBuf>> {
        self.file.take().map(OutFile::publish).transpose()
    }
}

/// Creates the file of the map, so that a run does not compute a map that cannot be saved.
pub fn map_file(args: &Args) -> Result<Option<OutFile>> {
    let Some(path) = &args.map else { return Ok(None) };
    let file = OutFile::create(path, true)?;
    // The paths of one folder can differ, and the map would replace the result or the matrix.
    let same = |other: &&PathBuf| {
        other.file_name() == path.file_name() && folder(other).canonicalize().ok() == folder(path).canonicalize().ok()
    };
    let matrix = match &args.matrix {
        Some(MatrixArgument::File(matrix)) => Some(matrix),
        Some(MatrixArgument::Generated(_)) | None => None,
    };
    let others = [("--out", args.out.as_ref()), ("the matrix", matrix)];
    if let Some((what, _)) = others.iter().find(|(_, other)| other.as_ref().is_some_and(same)) {
        return Err(format!("--map and {what} have the same file, {}: choose another name", path.display()).into());
    }
    Ok(Some(file))
}
