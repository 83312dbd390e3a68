//! Completions.

use super::error::{completion_class, exception};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use shotline_library::endpoint::{CompletionFailure, kind_name, status_name};
use shotline_verbs::api::{self, Status};

/// Completion of a work request, from `CompletionQueue.poll` or `wait`.
///
/// `bytes`, `imm` and `operation` are valid only if `ok`; `check()` raises an exception if it is not.
#[pyclass(frozen, module = "shotline")]
pub struct Completion(pub api::Completion);

/// Classes `Status` and `Operation` of the package.
static CLASSES: PyOnceLock<[Py<PyAny>; 2]> = PyOnceLock::new();

/// Returns a member of an enumeration of the package.
fn member<'py>(py: Python<'py>, class: usize, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let classes = CLASSES.get_or_try_init(py, || {
        let module = py.import("shotline._status")?;
        PyResult::Ok([module.getattr("Status")?.unbind(), module.getattr("Operation")?.unbind()])
    })?;
    classes[class].bind(py).call1((name,))
}

#[pymethods]
impl Completion {
    /// Id of the request.
    #[getter]
    fn id(&self) -> u64 {
        self.0.id
    }

    /// Status: a member of `shotline.Status`.
    #[getter]
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        member(py, 0, status_name(self.0.status))
    }

    /// True if the request succeeded.
    #[getter]
    fn ok(&self) -> bool {
        self.0.status == Status::Success
    }

    /// What was done: a member of `shotline.Operation`.
    #[getter]
    fn operation<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        member(py, 1, kind_name(self.0.kind))
    }

    /// Bytes received by a receive or a READ; 0 otherwise.
    #[getter]
    fn bytes(&self) -> u32 {
        self.0.bytes
    }

    /// Immediate data of a received message, or None.
    #[getter]
    fn imm(&self) -> Option<u32> {
        self.0.imm
    }

    /// Number of the local queue pair.
    #[getter]
    fn qp(&self) -> u32 {
        self.0.qp
    }

    /// Returns the completion itself if the request succeeded.
    ///
    /// A key, range or right that the target refuses has the status REMOTE_ACCESS at once if the target was started with
    /// `--strict-ib`, and over shared memory and RDMA devices. Otherwise the target drops the request without an answer, so
    /// that it cannot be broken by others, and the status is RETRY_EXCEEDED after all retransmissions: with the defaults of
    /// a queue pair after some 3 seconds.
    ///
    /// Raises:
    ///     RemoteAccessError: The target refused key, range or rights.
    ///     RetryExceededError: The target did not answer.
    ///     FlushedError: An earlier request of the queue pair failed, or the target has ended.
    ///     CompletionError: Any other failure: the base class of these.
    fn check(slf: &Bound<'_, Self>) -> PyResult<Py<Self>> {
        let completion = &slf.get().0;
        let Some(failure) = CompletionFailure::of(completion.status) else { return Ok(slf.clone().unbind()) };
        let words = format!("request {}: {}: {failure}", completion.id, status_name(completion.status));
        Err(exception(completion_class(failure), (words, slf.clone().unbind())))
    }

    fn __repr__(&self) -> String {
        let api::Completion { id, status, kind, bytes, imm, .. } = self.0;
        match status {
            Status::Success => {
                let bytes = if bytes > 0 { format!(", {bytes} bytes") } else { String::new() };
                let imm = imm.map_or(String::new(), |imm| format!(", imm 0x{imm:08x}"));
                format!("<completion {id}: {}{bytes}{imm}>", kind_name(kind))
            }
            status => format!("<completion {id}: {}>", status_name(status)),
        }
    }
}
