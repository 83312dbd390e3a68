//! Work requests.

use super::memory::{Element, Region};
use super::remote::RemoteAddress;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shotline_library::endpoint::LocalRegion;
use shotline_verbs::api::{self, Data, Operation, RecvWr, SendWr};
use std::sync::Arc;

/// Local data of a request, with the registrations that it is of.
struct Local {
    elements: Vec<api::Element>,
    inline: Option<Vec<u8>>,
    regions: Vec<Arc<LocalRegion>>,
}

impl Local {
    /// Converts an element, a region, a list of elements, or bytes.
    fn of(what: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut local = Self { elements: Vec::with_capacity(1), inline: None, regions: Vec::with_capacity(1) };
        if let Ok(bytes) = what.cast::<PyBytes>() {
            local.inline = Some(bytes.as_bytes().to_vec());
        } else if !local.push(what)? {
            let expected = "expected an Element (region[start:stop]), a registered Region, a list of these, or bytes";
            for one in what.try_iter().map_err(|_| PyTypeError::new_err(expected))? {
                if !local.push(&one?)? {
                    return Err(PyTypeError::new_err(expected));
                }
            }
        }
        Ok(local)
    }

    /// Adds an element, if it is one.
    fn push(&mut self, what: &Bound<'_, PyAny>) -> PyResult<bool> {
        let whole;
        let element = if let Ok(element) = what.cast::<Element>() {
            element.get()
        } else if let Ok(region) = what.cast::<Region>() {
            let region = region.get();
            whole = region.element(0, region.memory().len() as u64)?;
            &whole
        } else {
            return Ok(false);
        };
        let (element, region) = element.parts();
        self.elements.push(element);
        self.regions.push(Arc::clone(region));
        Ok(true)
    }

    fn len(&self) -> u64 {
        let elements = self.elements.iter().map(|element| u64::from(element.len)).sum();
        self.inline.as_ref().map_or(elements, |bytes| bytes.len() as u64)
    }
}

/// A work request for `QueuePair.post`. It may be posted any number of times.
///
/// `local` is an `Element` (`region[start:stop]`), a whole registered `Region`, or a list of these, which is gathered or
/// scattered in order; for `write` and `send` also bytes (at most the `max_inline` of the queue pair, 64), which are copied
/// when the request is posted. All other memory belongs to the provider until the completion: do not change what is sent,
/// and do not read what is received, before.
///
/// Options of every request:
///
/// - `id`: any number of 64 bits, returned in the completion.
/// - `signalled`: False: there is a completion only if the request fails. Requests of a queue pair are executed in order,
///   so one signalled request at the end of a list reports for all.
/// - `fence`: the request starts only when all reads and atomic operations before it are done.
#[pyclass(frozen, module = "shotline")]
pub struct Request {
    id: u64,
    operation: Operation,
    local: Local,
    signalled: bool,
    solicited: bool,
    fence: bool,
}

impl Request {
    /// Returns the request for the provider.
    pub fn wr(&self) -> SendWr<'_> {
        let data = match &self.local.inline {
            Some(bytes) => Data::Inline(bytes),
            None => Data::Elements(&self.local.elements),
        };
        let Self { id, operation, signalled, solicited, fence, .. } = *self;
        SendWr { signalled, solicited, fence, ..SendWr::new(id, operation, data) }
    }

    /// Returns the registrations that it uses.
    pub fn regions(&self) -> &[Arc<LocalRegion>] {
        &self.local.regions
    }

    fn one_sided(
        local: &Bound<'_, PyAny>,
        operation: Operation,
        (id, signalled, fence): (u64, bool, bool),
    ) -> PyResult<Self> {
        Ok(Self { id, operation, local: Local::of(local)?, signalled, solicited: false, fence })
    }
}

#[pymethods]
impl Request {
    /// Returns a WRITE of local memory to memory of the target.
    ///
    /// With `imm`, a number of 32 bits, it also consumes a receive of the target, whose completion has the number.
    #[staticmethod]
    #[pyo3(signature = (local, remote, *, id = 0, imm = None, signalled = true, fence = false, solicited = false))]
    fn write(
        local: &Bound<'_, PyAny>,
        remote: &Bound<'_, RemoteAddress>,
        id: u64,
        imm: Option<u32>,
        signalled: bool,
        fence: bool,
        solicited: bool,
    ) -> PyResult<Self> {
        let remote = remote.get().0;
        let operation = imm.map_or(Operation::Write(remote), |imm| Operation::WriteImm(remote, imm));
        Ok(Self { solicited, ..Self::one_sided(local, operation, (id, signalled, fence))? })
    }

    /// Returns a READ of memory of the target into local memory.
    #[staticmethod]
    #[pyo3(signature = (local, remote, *, id = 0, signalled = true, fence = false))]
    fn read(
        local: &Bound<'_, PyAny>,
        remote: &Bound<'_, RemoteAddress>,
        id: u64,
        signalled: bool,
        fence: bool,
    ) -> PyResult<Self> {
        Self::one_sided(local, Operation::Read(remote.get().0), (id, signalled, fence))
    }

    /// Returns a SEND of a message, which the target's next posted receive takes; `imm` as for `write`.
    #[staticmethod]
    #[pyo3(signature = (local, *, id = 0, imm = None, signalled = true, fence = false, solicited = false))]
    fn send(
        local: &Bound<'_, PyAny>,
        id: u64,
        imm: Option<u32>,
        signalled: bool,
        fence: bool,
        solicited: bool,
    ) -> PyResult<Self> {
        let operation = imm.map_or(Operation::Send, Operation::SendImm);
        Ok(Self { solicited, ..Self::one_sided(local, operation, (id, signalled, fence))? })
    }

    /// Returns a compare and swap: the target's 8 bytes, a number in its byte order, become `swap` if they equal `compare`.
    /// Their original value is written to `local`, which has 8 bytes.
    #[staticmethod]
    #[pyo3(signature = (local, remote, compare, swap, *, id = 0, signalled = true, fence = false))]
    fn compare_swap(
        local: &Bound<'_, PyAny>,
        remote: &Bound<'_, RemoteAddress>,
        compare: u64,
        swap: u64,
        id: u64,
        signalled: bool,
        fence: bool,
    ) -> PyResult<Self> {
        let operation = Operation::CompareSwap { remote: remote.get().0, compare, swap };
        Self::one_sided(local, operation, (id, signalled, fence))
    }

    /// Returns a fetch and add: `add` is added to the target's 8 bytes, modulo 2**64. Their original value is written to
    /// `local`, which has 8 bytes.
    #[staticmethod]
    #[pyo3(signature = (local, remote, add, *, id = 0, signalled = true, fence = false))]
    fn fetch_add(
        local: &Bound<'_, PyAny>,
        remote: &Bound<'_, RemoteAddress>,
        add: u64,
        id: u64,
        signalled: bool,
        fence: bool,
    ) -> PyResult<Self> {
        let operation = Operation::FetchAdd { remote: remote.get().0, add };
        Self::one_sided(local, operation, (id, signalled, fence))
    }

    /// Number that the completion has.
    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    /// Length of the local memory in bytes.
    #[getter]
    fn length(&self) -> u64 {
        self.local.len()
    }

    /// True if it has a completion on success.
    #[getter]
    fn signalled(&self) -> bool {
        self.signalled
    }

    fn __repr__(&self) -> String {
        let name = match self.operation {
            Operation::Send | Operation::SendImm(_) | Operation::SendInvalidate(_) => "send",
            Operation::Write(_) | Operation::WriteImm(..) => "write",
            Operation::Read(_) => "read",
            Operation::CompareSwap { .. } => "compare_swap",
            Operation::FetchAdd { .. } => "fetch_add",
        };
        let unsignalled = if self.signalled { "" } else { ", unsignalled" };
        format!("<request {}: {name} of {} bytes{unsignalled}>", self.id, self.local.len())
    }
}

/// A receive for `QueuePair.post_recv`: `Receive(local, id=0)`. The next message is written to `local`, a registered
/// `Element`, `Region` or list of these; a longer one fails with `Status.LOCAL_LENGTH`.
#[pyclass(frozen, module = "shotline")]
pub struct Receive {
    id: u64,
    local: Local,
}

impl Receive {
    /// Returns the request for the provider.
    pub fn wr(&self) -> RecvWr<'_> {
        RecvWr { id: self.id, elements: &self.local.elements }
    }

    /// Returns the registrations that it uses.
    pub fn regions(&self) -> &[Arc<LocalRegion>] {
        &self.local.regions
    }
}

#[pymethods]
impl Receive {
    #[new]
    #[pyo3(signature = (local, id = 0))]
    fn new(local: &Bound<'_, PyAny>, id: u64) -> PyResult<Self> {
        let local = Local::of(local)?;
        if local.inline.is_some() {
            return Err(PyTypeError::new_err("expected registered memory for a receive, found bytes"));
        }
        Ok(Self { id, local })
    }

    /// Number that the completion has.
    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    /// Length of the local memory in bytes.
    #[getter]
    fn length(&self) -> u64 {
        self.local.len()
    }

    fn __repr__(&self) -> String {
        format!("<receive {}: at most {} bytes>", self.id, self.local.len())
    }
}
