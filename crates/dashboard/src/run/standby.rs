//! Runs that are started from the page.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What Start requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartRequest {
    /// Number of samples per channel and shot; none: as in the settings.
    pub samples: Option<u32>,
}

/// Hands the page's Start to the thread that runs.
#[derive(Debug, Default)]
pub struct Starter {
    request: Mutex<Option<StartRequest>>,
    requested: Condvar,
}

impl Starter {
    /// Requests a start. A request that is not taken yet is replaced.
    pub fn start(&self, request: StartRequest) {
        *self.request.lock().unwrap_or_else(PoisonError::into_inner) = Some(request);
        self.requested.notify_all();
    }

    /// Takes the request, for which it waits up to `timeout`.
    pub fn take(&self, timeout: Duration) -> Option<StartRequest> {
        let request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.requested.wait_timeout_while(request, timeout, |request| request.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_request_is_taken_once() {
        let starter = Starter::default();
        assert_eq!(starter.take(Duration::ZERO), None);
        for samples in [Some(500), None, Some(700)] {
            starter.start(StartRequest { samples });
        }
        assert_eq!(starter.take(Duration::ZERO), Some(StartRequest { samples: Some(700) }));
        assert_eq!(starter.take(Duration::ZERO), None);
    }

    #[test]
    fn a_request_wakes_the_thread_that_waits() {
        let starter = Starter::default();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| starter.take(Duration::from_secs(600)));
            starter.start(StartRequest::default());
            assert_eq!(waits.join().unwrap(), Some(StartRequest::default()));
        });
    }
}
