//! Errors as Python exceptions.

use numpy::BorrowError;
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};
use shotline_store::StoreError;

/// Error of a call, which becomes a Python exception.
#[derive(Debug)]
pub enum Failure {
    /// The recording could not be read.
    Store(StoreError),
    /// An argument is invalid; the text states what was expected.
    Value(String),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
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
            Failure::Value(words) => PyValueError::new_err(words),
        }
    }
}
