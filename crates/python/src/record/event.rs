//! Shots of a run in progress: their buffers are the pool's until the last view of them is gone.

use crate::error::Failure;
use numpy::PyReadwriteArray1;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shotline_acquire::sink::Lent;
use shotline_library::samples::Element as _;
use shotline_store::rows::State;
use shotline_store::shot::Shot;
use shotline_wire::shot::Geometry;
use std::ffi::c_int;
use std::sync::Arc;

/// Numbers of a shot: stream, number, stamp, arrival, completion, valid bytes, packets, placed, state, flags, record good.
type Numbers = (u32, u64, u64, u64, u64, u32, u32, u32, u8, u8, bool);

/// The shots of all links with one number.
#[pyclass(frozen, module = "shotline._native")]
pub struct Event {
    lent: Arc<Lent>,
    geometry: Geometry,
    writable: bool,
}

impl Event {
    pub fn new(lent: Lent, geometry: Geometry, writable: bool) -> Self {
        Self { lent: Arc::new(lent), geometry, writable }
    }

    fn shot(&self, link: usize) -> Result<&Shot, Failure> {
        self.lent.event().shots.get(link).and_then(Option::as_ref).ok_or_else(|| absent(link))
    }

    /// Copies the sample bytes of a shot.
    fn sample_bytes(&self, shot: &Shot) -> Vec<u8> {
        let mut bytes = vec![0; self.geometry.sample_bytes() as usize];
        shot.buffer.read(0, &mut bytes);
        bytes
    }
}

fn absent(link: usize) -> Failure {
    Failure::Value(format!("no packet of link {link} has arrived for this shot: it has no bytes (see shot.state)"))
}

#[pymethods]
impl Event {
    #[getter]
    fn number(&self) -> u64 {
        self.lent.event().number
    }

    /// Number of links, also of those without a shot.
    #[getter]
    fn links(&self) -> usize {
        self.lent.event().shots.len()
    }

    /// Returns the numbers of a link's shot; none if no packet of it has arrived.
    fn numbers(&self, link: usize) -> Option<Numbers> {
        let shot = self.lent.event().shots.get(link)?.as_ref()?;
        let meta = &shot.meta;
        let state = if meta.is_complete() { State::Complete } else { State::Partial };
        Some((
            meta.stream,
            meta.number,
            meta.stamp_tai_ns,
            meta.arrived_tai_ns,
            meta.completed_tai_ns,
            meta.valid_bytes,
            self.geometry.packets(),
            meta.presence.received(),
            state as u8,
            meta.flags,
            meta.record_good,
        ))
    }

    /// Returns the presence map of a link's shot, lowest bit first; empty if no packet of it has arrived.
    fn presence<'py>(&self, py: Python<'py>, link: usize) -> Bound<'py, PyBytes> {
        let bytes = |shot: &Shot| shot.meta.presence.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        PyBytes::new(py, &self.shot(link).map(bytes).unwrap_or_else(|_| Vec::new()))
    }

    /// Returns the dropped packets of a link's shot, by number of the cause.
    fn drops(&self, link: usize) -> Vec<(u8, u64)> {
        let drops = |shot: &Shot| shot.meta.drops.iter().map(|(cause, count)| (cause as u8, count)).collect();
        self.shot(link).map(drops).unwrap_or_default()
    }

    /// Returns the slot of a link's shot.
    fn slot(&self, link: usize) -> Result<Slot, Failure> {
        self.shot(link)?;
        Ok(Slot { lent: Arc::clone(&self.lent), link, writable: self.writable })
    }

    /// Unpacks the samples of a link's shot into 16-bit samples.
    fn unpack_int16(&self, py: Python<'_>, link: usize, mut out: PyReadwriteArray1<'_, i16>) -> Result<(), Failure> {
        let (shot, out) = (self.shot(link)?, out.as_slice_mut()?);
        let expected = self.geometry.samples() as usize * usize::from(self.geometry.channels());
        if out.len() != expected || !i16::supports(self.geometry.packing()) {
            return Err(Failure::Value(format!("expected {expected} samples of 12 or 16 bits, found {}", out.len())));
        }
        py.detach(|| i16::unpack(self.geometry.packing(), &self.sample_bytes(shot), out));
        Ok(())
    }
}

/// The bytes of one link's shot in the pool, as a buffer without a copy.
#[pyclass(frozen, module = "shotline._native")]
pub struct Slot {
    lent: Arc<Lent>,
    link: usize,
    writable: bool,
}

#[pymethods]
impl Slot {
    /// Returns a view of the bytes. It is writable if the program alone uses them.
    ///
    /// # Safety
    /// `view` is a buffer that the interpreter passes, and `flags` are its requirements.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        let shot = this.lent.event().shots.get(this.link).and_then(Option::as_ref);
        let buffer = &shot.ok_or_else(|| PyErr::from(absent(this.link)))?.buffer;
        if !buffer.is_mapped() {
            return Err(PyBufferError::new_err(
                "the pool is in memory of a device, which has no view in this process: use shot.samples, which copies",
            ));
        }
        let len = buffer.len();
        // SAFETY: `view` is the interpreter's. The bytes are valid while `slf` lives, to which the view holds a reference:
        // it owns the event, whose buffer is not filled again before it is dropped. With a file the recorder reads them, so that
        // the view is read-only.
        let filled = unsafe {
            let bytes = buffer.address(0, len).cast();
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), bytes, len as isize, c_int::from(!this.writable), flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
