//! Errors as Python exceptions.

use numpy::BorrowError;
use pyo3::PyErr;
use pyo3::exceptions::{PyConnectionRefusedError, PyOSError, PyRuntimeError, PyTimeoutError, PyValueError};
use shotline_library::ErrorKind;
use shotline_store::StoreError;

pyo3::create_exception!(
    shotline,
    RunError,
    PyRuntimeError,
    "A run was cut off: its sender, its transport or its recorder failed. What had arrived before is not affected."
);

/// Error of a call, which becomes a Python exception.
#[derive(Debug)]
pub enum Failure {
    /// The recording could not be read.
    Store(StoreError),
    /// A run, an emulator, a probe or an endpoint has failed.
    Library(shotline_library::Error),
    /// An argument is invalid; the text states what was expected.
    Value(String),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<shotline_library::Error> for Failure {
    fn from(error: shotline_library::Error) -> Self {
        Self::Library(error)
    }
}

impl From<String> for Failure {
    fn from(words: String) -> Self {
        Self::Value(words)
    }
}

impl From<numpy::AsSliceError> for Failure {
    fn from(_: numpy::AsSliceError) -> Self {
        Self::Value("expected a contiguous array, found one with gaps".into())
    }
}

impl From<BorrowError> for Failure {
    fn from(error: BorrowError) -> Self {
        Self::Value(error.to_string())
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            // Python derives FileNotFoundError, PermissionError and similar from the error number.
            Failure::Store(StoreError::Io { what, path, source }) => {
                let reason = std::io::Error::from(source).to_string();
                let reason = reason.split(" (os error").next().unwrap_or_default();
                PyOSError::new_err((source.raw_os_error(), format!("cannot {what}: {reason}"), path.into_os_string()))
            }
            Failure::Store(error @ StoreError::InUse { .. }) => PyOSError::new_err(error.to_string()),
            Failure::Store(error) => PyValueError::new_err(error.to_string()),
            Failure::Library(error) => library(&error),
            Failure::Value(words) => PyValueError::new_err(words),
        }
    }
}

/// Returns the exception for the class of an error.
fn library(error: &shotline_library::Error) -> PyErr {
    let words = error.to_string();
    match error.kind {
        ErrorKind::Invalid | ErrorKind::Closed => PyValueError::new_err(words),
        // As for files, Python derives the class of the exception from the number.
        ErrorKind::Io(Some(number)) => PyOSError::new_err((number, words)),
        ErrorKind::Io(None) => PyOSError::new_err(words),
        ErrorKind::Refused => PyConnectionRefusedError::new_err(words),
        ErrorKind::TimedOut => PyTimeoutError::new_err(words),
        ErrorKind::CutOff => RunError::new_err(words),
        ErrorKind::Forked | ErrorKind::Defect => PyRuntimeError::new_err(words),
    }
}
