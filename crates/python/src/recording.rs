//! A recording that is open for reading, as a Python object.

use crate::error::Failure;
use numpy::{Element as NumpyElement, IntoPyArray, PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use shotline_library::reading::{Axis, about, check_links, select};
use shotline_library::samples::{Element, read};
use shotline_store::read as store;
use shotline_store::rows::Row;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

/// Counts by name.
type CountsByName = BTreeMap<String, u64>;
/// Counters of each stream, and of the whole run.
type RunCounters = (BTreeMap<u32, CountsByName>, CountsByName);

/// An open recording. Several threads may use it at once: readers share it, and release the interpreter's lock.
#[pyclass(frozen, module = "shotline._native")]
pub struct Recording(RwLock<Option<store::Recording>>);

impl Recording {
    /// Calls `read` without the interpreter's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&store::Recording) -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        py.detach(|| read(self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().ok_or_else(closed)?))
    }
}

fn closed() -> Failure {
    Failure::Value("this recording is closed: open it again".into())
}

#[pymethods]
impl Recording {
    #[new]
    fn open(py: Python<'_>, path: PathBuf) -> Result<Self, Failure> {
        let recording = py.detach(|| store::Recording::open(&path))?;
        Ok(Self(RwLock::new(Some(recording))))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.0.write().unwrap_or_else(PoisonError::into_inner).take()));
    }

    fn refresh(&self, py: Python<'_>) -> Result<u64, Failure> {
        py.detach(|| {
            let mut recording = self.0.write().unwrap_or_else(PoisonError::into_inner);
            Ok(recording.as_mut().ok_or_else(closed)?.refresh()?)
        })
    }

    fn rows(&self, py: Python<'_>) -> Result<u64, Failure> {
        self.with(py, |recording| Ok(recording.rows()))
    }

    fn allocated_rows(&self, py: Python<'_>) -> Result<u64, Failure> {
        self.with(py, |recording| Ok(recording.allocated_rows()))
    }

    /// Returns the properties of the run and its links, as JSON.
    fn about(&self, py: Python<'_>) -> Result<String, Failure> {
        self.with(py, |recording| Ok(about(recording).to_string()))
    }

    /// Returns rows of a link's table, with a column for each field.
    fn table<'py>(&self, py: Python<'py>, link: usize, start: u64, stop: u64) -> Result<Bound<'py, PyDict>, Failure> {
        let rows = self.with(py, |recording| {
            check_links(recording, &[link])?;
            if start > stop {
                return Err(Failure::Value(format!("expected increasing rows, found {start} to {stop}")));
            }
            Ok(if start == stop { Vec::new() } else { recording.read_rows(link, start..stop)? })
        })?;
        let table = PyDict::new(py);
        let column = |name, values: Bound<'py, PyAny>| table.set_item(name, values).map_err(unexpected);
        column("number", column_of(py, &rows, |row| row.number))?;
        column("stamp_tai_ns", column_of(py, &rows, |row| row.stamp_tai_ns))?;
        column("arrived_tai_ns", column_of(py, &rows, |row| row.arrived_tai_ns))?;
        column("completed_tai_ns", column_of(py, &rows, |row| row.completed_tai_ns))?;
        column("valid_bytes", column_of(py, &rows, |row| row.valid_bytes))?;
        column("packets", column_of(py, &rows, |row| row.packets))?;
        column("placed", column_of(py, &rows, |row| row.placed))?;
        column("state", column_of(py, &rows, |row| row.state as u8))?;
        column("flags", column_of(py, &rows, |row| row.flags))?;
        column("record_good", column_of(py, &rows, |row| row.record_good))?;
        // Two-dimensional columns: the Python part reshapes them.
        let presence: Vec<u8> = rows.iter().flat_map(|row| row.presence.iter().copied()).collect();
        column("presence", presence.into_pyarray(py).into_any())?;
        let drops: Vec<u32> = rows.iter().flat_map(|row| row.drops).collect();
        column("drops", drops.into_pyarray(py).into_any())?;
        Ok(table)
    }

    /// Returns the entries of `/losses`: stream, number of the drop cause, first shot number, number of shots.
    fn losses(&self, py: Python<'_>) -> Result<Vec<(u32, u8, u64, u64)>, Failure> {
        self.with(py, |recording| {
            let losses = recording.losses()?;
            Ok(losses.iter().map(|loss| (loss.stream, loss.cause as u8, loss.first, loss.count)).collect())
        })
    }

    /// Returns the counters of each stream and of the whole run, or None if the run has not ended.
    fn final_counters(&self, py: Python<'_>) -> Result<Option<RunCounters>, Failure> {
        self.with(py, |recording| {
            let streams = |final_counters: &store::FinalCounters| {
                let streams = final_counters.counters.streams.iter();
                streams.map(|counters| (counters.stream, counters.entries().into_iter().collect())).collect()
            };
            Ok(recording.final_counters()?.map(|counters| (streams(&counters), counters.totals)))
        })
    }

    /// Returns the location of a shot's stored bytes: file, offset, length.
    fn stored(&self, py: Python<'_>, row: u64, link: usize) -> Result<(PathBuf, u64, u32), Failure> {
        self.with(py, |recording| {
            check_links(recording, &[link])?;
            let stored = recording.stored(row, link)?;
            Ok((stored.path.to_owned(), stored.offset, stored.bytes))
        })
    }

    /// Returns a copy of a shot's bytes as they were on the wire.
    fn slot<'py>(&self, py: Python<'py>, row: u64, link: usize) -> Result<Bound<'py, PyBytes>, Failure> {
        let bytes = self.with(py, |recording| {
            check_links(recording, &[link])?;
            Ok(recording.slot_reader().read(row, link)?.to_vec())
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Reads 16-bit samples of rows into an array with the matching number of elements.
    #[allow(clippy::too_many_arguments)] // Python's signature
    fn read_int16(
        &self,
        py: Python<'_>,
        rows: PyReadonlyArray1<'_, u64>,
        links: Vec<usize>,
        samples: Axis,
        channels: Axis,
        mut out: PyReadwriteArray1<'_, i16>,
        threads: usize,
    ) -> Result<(), Failure> {
        self.read(py, rows.as_slice()?, links, samples, channels, out.as_slice_mut()?, threads)
    }

    /// Reads unsigned bytes of rows into an array with the matching number of elements.
    #[allow(clippy::too_many_arguments)] // Python's signature
    fn read_uint8(
        &self,
        py: Python<'_>,
        rows: PyReadonlyArray1<'_, u64>,
        links: Vec<usize>,
        samples: Axis,
        channels: Axis,
        mut out: PyReadwriteArray1<'_, u8>,
        threads: usize,
    ) -> Result<(), Failure> {
        self.read(py, rows.as_slice()?, links, samples, channels, out.as_slice_mut()?, threads)
    }
}

impl Recording {
    #[allow(clippy::too_many_arguments)] // as above
    fn read<T: Element + NumpyElement>(
        &self,
        py: Python<'_>,
        rows: &[u64],
        links: Vec<usize>,
        samples: Axis,
        channels: Axis,
        out: &mut [T],
        threads: usize,
    ) -> Result<(), Failure> {
        self.with(py, |recording| {
            let selection = select::<T>(recording, links, (samples, channels), threads, (rows.len(), out.len()))?;
            Ok(read(recording, rows, &selection, out)?)
        })
    }
}

fn column_of<'py, T: NumpyElement>(py: Python<'py>, rows: &[Row], field: impl Fn(&Row) -> T) -> Bound<'py, PyAny> {
    let column: Bound<'py, PyArray1<T>> = rows.iter().map(field).collect::<Vec<_>>().into_pyarray(py);
    column.into_any()
}

/// Converts an error of `set_item`, which is not expected for a dictionary with string keys.
fn unexpected(error: PyErr) -> Failure {
    Failure::Value(error.to_string())
}
