//! Memory of this process as numpy arrays, and its registrations.

use super::error::Failed;
use super::remote::hex;
use numpy::ndarray::ArrayView1;
use numpy::{PyArray1, PyArrayMethods as _};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PySlice;
use shotline_library::endpoint::{EndpointError, LocalRegion, Memory, rights_name};
use shotline_verbs::api;
use std::sync::Arc;

/// Base object of the arrays of a region: its memory exists as long as one of them.
#[pyclass(frozen, module = "shotline._native")]
struct Backing {
    _memory: Memory,
}

/// Returns bytes of memory as an array, without a copy.
fn array<'py>(py: Python<'py>, memory: &Memory, offset: usize, len: usize) -> PyResult<Bound<'py, PyArray1<u8>>> {
    let base = Bound::new(py, Backing { _memory: memory.clone() })?;
    let data = memory.region().address(offset, len).cast_const();
    // SAFETY: `address` checks that the bytes are inside the region, which is mapped until its last owner is dropped; any
    // byte is a valid u8. The view is no reference: it carries pointer and length to the next call only.
    let view = unsafe { ArrayView1::from_shape_ptr(len, data) };
    // SAFETY: the array's base object owns the region, which neither moves nor shrinks. What numpy reads and writes there
    // races with endpoints only if the program breaks the rule that memory belongs to the provider until its request
    // completes; numpy then sees some bytes from before and some from after, as any reader of remote memory does.
    let array = unsafe { PyArray1::borrow_from_array(&view, base.into_any()) };
    if !memory.region().is_writable() {
        array.try_readwrite()?.make_nonwriteable();
    }
    Ok(array)
}

/// Memory of this process: `Region(length, kind="heap")`, or `Target.register(length)`, which also registers it.
///
/// `region.array` is the memory as a numpy array of uint8, without a copy; a slice `region[0:4096]` is an `Element` for
/// requests. `kind` is `heap`, `huge` (reserved 2 MiB pages), `memfd` (shared memory) or `file=PATH`; lengths are in bytes.
///
/// The memory exists as long as the region, an array of it, or a request that uses it. `close` only ends the registration:
/// its keys become invalid, and arrays remain. While a request is outstanding its memory belongs to the provider: do not
/// write to the source, nor use the destination, before the completion.
///
/// Raises:
///     ValueError: If the length is 0 or the kind is unknown.
///     MemoryError: If there is not enough memory.
#[pyclass(frozen, module = "shotline")]
pub struct Region {
    memory: Memory,
    registration: Option<Arc<LocalRegion>>,
}

impl Region {
    pub fn registered(registration: LocalRegion) -> Self {
        Self { memory: registration.memory().clone(), registration: Some(Arc::new(registration)) }
    }

    pub fn unregistered(memory: Memory) -> Self {
        Self { memory, registration: None }
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    fn registration(&self) -> PyResult<&Arc<LocalRegion>> {
        self.registration
            .as_ref()
            .ok_or_else(|| PyValueError::new_err("the region is not registered: use what Target.register returns"))
    }

    /// Returns an element of this region.
    pub fn element(&self, offset: u64, len: u64) -> PyResult<Element> {
        let region = self.registration()?;
        let element = region.element(offset, len).map_err(Failed::from)?;
        Ok(Element { region: Arc::clone(region), element, offset: offset as usize })
    }
}

#[pymethods]
impl Region {
    #[new]
    #[pyo3(signature = (length, kind = "heap"))]
    fn new(py: Python<'_>, length: usize, kind: &str) -> Result<Self, Failed> {
        Ok(Self::unregistered(py.detach(|| Memory::allocate(length, kind))?))
    }

    /// The memory: a numpy array of uint8 of shape (length,), without a copy. Views of it have other types and shapes:
    /// `region.array.view(np.float32).reshape(-1, 4)`.
    #[getter]
    fn array<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u8>>> {
        array(py, &self.memory, 0, self.memory.len())
    }

    /// Length in bytes.
    #[getter]
    fn length(&self) -> usize {
        self.memory.len()
    }

    /// Local key.
    #[getter]
    fn lkey(&self) -> PyResult<u32> {
        Ok(self.registration()?.lkey())
    }

    /// Remote key, for the target.
    #[getter]
    fn rkey(&self) -> PyResult<u32> {
        Ok(self.registration()?.rkey())
    }

    /// Address of the first byte with either key. It is not an address of the process.
    #[getter]
    fn address(&self) -> PyResult<u64> {
        Ok(self.registration()?.address())
    }

    /// Rights of the target: "", "r", "w", "rw" or "atomic".
    #[getter]
    fn rights(&self) -> &'static str {
        self.registration.as_ref().map_or("", |region| rights_name(region.access()))
    }

    /// True if the memory is registered at an open endpoint.
    #[getter]
    fn is_registered(&self) -> bool {
        self.registration.as_ref().is_some_and(|region| !region.is_closed())
    }

    /// Ends the registration. Its keys are invalid from now on; requests that were posted before still complete.
    fn close(&self, py: Python<'_>) -> Result<(), Failed> {
        match &self.registration {
            Some(region) => Ok(py.detach(|| region.close())?),
            None => Ok(()),
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> Result<(), Failed> {
        self.close(py)
    }

    fn __len__(&self) -> usize {
        self.memory.len()
    }

    fn __getitem__(&self, part: &Bound<'_, PyAny>) -> PyResult<Element> {
        let Ok(part) = part.cast::<PySlice>() else {
            return Err(PyTypeError::new_err("expected a slice of bytes, region[start:stop], or region.array[index]"));
        };
        let len = self.memory.len() as i64;
        let bound = |name: &str, default: i64| -> PyResult<i64> {
            match part.getattr(name)?.extract::<Option<i64>>()? {
                Some(value) => Ok(if value < 0 { value + len } else { value }),
                None => Ok(default),
            }
        };
        if bound("step", 1)? != 1 {
            return Err(PyValueError::new_err("expected a slice without a step: elements are contiguous bytes"));
        }
        let (start, stop) = (bound("start", 0)?, bound("stop", len)?);
        if start < 0 || stop < start || stop > len {
            // A slice of a list would be cut off, and a request would transfer less than it says.
            return Err(PyIndexError::new_err(format!(
                "expected bytes inside a region of {len}, found {start}:{stop}"
            )));
        }
        self.element(start as u64, (stop - start) as u64)
    }

    fn __repr__(&self) -> String {
        let len = self.memory.len();
        match &self.registration {
            Some(region) if region.is_closed() => format!("<region of {len} bytes, closed>"),
            Some(region) => {
                format!("<region of {len} bytes, lkey {}, rkey {}>", hex(region.lkey()), hex(region.rkey()))
            }
            None => format!("<region of {len} bytes, not registered>"),
        }
    }
}

/// A scatter/gather element of a request: contiguous bytes of a registered region, `region[start:stop]`.
///
/// The registration exists at least as long as the element, unless it is closed.
#[pyclass(frozen, module = "shotline")]
pub struct Element {
    region: Arc<LocalRegion>,
    element: api::Element,
    offset: usize,
}

impl Element {
    /// Returns the element, and the registration that it is of.
    pub fn parts(&self) -> (api::Element, &Arc<LocalRegion>) {
        (self.element, &self.region)
    }
}

#[pymethods]
impl Element {
    /// The bytes: a numpy array of uint8 of shape (length,), without a copy.
    #[getter]
    fn array<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u8>>> {
        array(py, self.region.memory(), self.offset, self.element.len as usize)
    }

    /// Offset of the first byte in the region.
    #[getter]
    fn offset(&self) -> usize {
        self.offset
    }

    /// Length in bytes.
    #[getter]
    fn length(&self) -> u32 {
        self.element.len
    }

    /// Local key.
    #[getter]
    fn lkey(&self) -> u32 {
        self.element.lkey
    }

    fn __len__(&self) -> usize {
        self.element.len as usize
    }

    fn __repr__(&self) -> String {
        format!("<element: {} bytes from offset {} of a region>", self.element.len, self.offset)
    }
}

/// Returns the memory for a length in bytes, or that of another region.
pub fn memory_of(py: Python<'_>, what: &Bound<'_, PyAny>, kind: &str) -> PyResult<Memory> {
    if let Ok(region) = what.cast::<Region>() {
        return Ok(region.get().memory().clone());
    }
    let len: usize = what.extract().map_err(|_| PyTypeError::new_err("expected a length in bytes, or a Region"))?;
    Ok(py.detach(|| Memory::allocate(len, kind)).map_err(|error: EndpointError| Failed::from(error))?)
}
