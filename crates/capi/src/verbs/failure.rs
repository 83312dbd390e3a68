//! Errors of endpoints.

use crate::status::{Failure, shotline_status};
use shotline_library::endpoint::{CompletionFailure, EndpointError};
use shotline_memory::MemoryError;
use shotline_verbs::api::{PostError, VerbsError};
use shotline_verbs::cm::ClientError;
use shotline_verbs::connect::ConnectError;
use std::io;

use shotline_status::*;

impl From<EndpointError> for Failure {
    fn from(error: EndpointError) -> Self {
        let words = error.to_string();
        let status = match &error {
            EndpointError::Closed(_) => SHOTLINE_ERROR_CLOSED,
            EndpointError::Forked { .. } => SHOTLINE_ERROR_FORKED,
            EndpointError::Disconnected | EndpointError::Interrupted => SHOTLINE_ERROR_ENDED,
            EndpointError::Connect(ConnectError::Client(error)) | EndpointError::Client(error) => {
                return of_client(error, words);
            }
            EndpointError::Connect(ConnectError::Token { .. }) => SHOTLINE_ERROR_REFUSED,
            EndpointError::Connect(ConnectError::Route { source, .. }) | EndpointError::System { source, .. } => {
                return of_kernel(source, words);
            }
            EndpointError::Connect(ConnectError::Mismatch(_) | ConnectError::Path)
            | EndpointError::Token(_)
            | EndpointError::Export(_)
            | EndpointError::Invalid(_) => SHOTLINE_ERROR_INVALID_ARGUMENT,
            EndpointError::Connect(ConnectError::Verbs(error)) | EndpointError::Verbs(error) => of_verbs(error),
            EndpointError::Post { source: PostError::Full, .. } => SHOTLINE_ERROR_QUEUE_FULL,
            EndpointError::Post { .. } => SHOTLINE_ERROR_INVALID_ARGUMENT,
            EndpointError::Overrun { .. } => SHOTLINE_ERROR_CUT_OFF,
            EndpointError::Completion(CompletionFailure::RetryExceeded) => SHOTLINE_ERROR_TIMEOUT,
            EndpointError::Completion(CompletionFailure::Flushed) => SHOTLINE_ERROR_ENDED,
            EndpointError::Completion(_) => SHOTLINE_ERROR_REFUSED,
            EndpointError::Memory(error) => of_memory(error),
        };
        Self::new(status, words)
    }
}

fn of_kernel(source: &io::Error, words: String) -> Failure {
    Failure::kernel(source.raw_os_error().unwrap_or(libc::EIO), words)
}

fn of_client(error: &ClientError, words: String) -> Failure {
    match error {
        ClientError::Unreachable { source, .. } | ClientError::Disconnected(source) => of_kernel(source, words),
        ClientError::Verbs(error) => Failure::new(of_verbs(error), words),
        _ => Failure::new(SHOTLINE_ERROR_REFUSED, words),
    }
}

fn of_verbs(error: &VerbsError) -> shotline_status {
    match error {
        VerbsError::NoSuch(_) => SHOTLINE_ERROR_NOT_FOUND,
        VerbsError::InUse { .. } => SHOTLINE_ERROR_BUSY,
        VerbsError::Invalid(_) | VerbsError::Register(_) => SHOTLINE_ERROR_INVALID_ARGUMENT,
        VerbsError::Unsupported(_) => SHOTLINE_ERROR_UNSUPPORTED,
        VerbsError::Memory(error) => of_memory(error),
        VerbsError::Io(_) => SHOTLINE_ERROR_IO,
    }
}

fn of_memory(error: &MemoryError) -> shotline_status {
    match error {
        MemoryError::TooLarge { .. } => SHOTLINE_ERROR_INVALID_ARGUMENT,
        _ => SHOTLINE_ERROR_IO,
    }
}
