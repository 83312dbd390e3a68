//! Errors of endpoints as exceptions of `shotline._errors`.

use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use shotline_library::endpoint::{CompletionFailure, EndpointError};
use shotline_memory::MemoryError;
use shotline_verbs::api::PostError;

/// Error of a call, which becomes an exception.
pub struct Failed(EndpointError);

impl<E: Into<EndpointError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

/// Returns an exception of the package, by the name of its class.
pub fn exception(name: &str, arguments: impl for<'py> pyo3::call::PyCallArgs<'py>) -> PyErr {
    Python::attach(|py| {
        let made = py.import("shotline._errors").and_then(|errors| errors.getattr(name)?.call1(arguments));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}

/// Returns the exception for a request that has failed.
pub fn completion_class(failure: CompletionFailure) -> &'static str {
    match failure {
        CompletionFailure::RemoteAccess => "RemoteAccessError",
        CompletionFailure::RetryExceeded => "RetryExceededError",
        CompletionFailure::Flushed => "FlushedError",
        CompletionFailure::LocalLength
        | CompletionFailure::LocalOperation
        | CompletionFailure::LocalProtection
        | CompletionFailure::BadResponse
        | CompletionFailure::RemoteInvalid
        | CompletionFailure::RemoteOperation
        | CompletionFailure::RnrRetryExceeded => "CompletionError",
    }
}

impl From<Failed> for PyErr {
    fn from(Failed(error): Failed) -> Self {
        let words = error.to_string();
        match error {
            EndpointError::Closed(_) => exception("ClosedError", (words,)),
            EndpointError::Forked { .. } => exception("ForkedError", (words,)),
            EndpointError::Disconnected => exception("DisconnectedError", (words,)),
            EndpointError::Connect(_) => exception("ConnectError", (words,)),
            EndpointError::Post { posted, source: PostError::Full } => exception("QueueFullError", (words, posted)),
            EndpointError::Post { posted, .. } => exception("PostError", (words, posted)),
            EndpointError::Completion(failure) => exception(completion_class(failure), (words,)),
            EndpointError::Memory(MemoryError::TooLarge { .. }) => PyMemoryError::new_err(words),
            EndpointError::Invalid(_) | EndpointError::Token(_) => PyValueError::new_err(words),
            EndpointError::Client(_)
            | EndpointError::Verbs(_)
            | EndpointError::Overrun { .. }
            | EndpointError::Memory(_)
            | EndpointError::Interrupted
            | EndpointError::Export(_)
            | EndpointError::System { .. } => exception("VerbsError", (words,)),
        }
    }
}
