//! Completion queues and queue pairs.

use super::completion::Completion;
use super::error::Failed;
use super::request::{Receive, Request};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shotline_library::endpoint::{CompletionQueue, EndpointError, LocalRegion, QueuePair};
use shotline_verbs::api;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two checks for signals of the process.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);
/// Completions that are taken at once.
const BATCH: usize = 32;

/// The native part of a completion queue.
#[pyclass(frozen, module = "shotline._native")]
pub struct Completions(pub CompletionQueue);

/// Completions of one call, which are not on the heap if they are few.
struct Taken {
    first: [api::Completion; BATCH],
    count: usize,
    more: Vec<api::Completion>,
}

impl Taken {
    fn into_objects(self) -> Vec<Completion> {
        self.first[..self.count].iter().copied().chain(self.more).map(Completion).collect()
    }
}

impl Completions {
    /// Takes up to `max` completions; waits for the first one.
    fn take(&self, max: usize, wait: Option<Duration>) -> Result<Taken, EndpointError> {
        let mut taken = Taken { first: [api::Completion::default(); BATCH], count: 0, more: Vec::new() };
        let first = &mut taken.first[..max.min(BATCH)];
        taken.count = match wait {
            Some(timeout) => self.0.wait(first, timeout)?,
            None => self.0.poll(first)?,
        };
        let mut is_full = taken.count == BATCH;
        while is_full && taken.count + taken.more.len() < max {
            let mut next = [api::Completion::default(); BATCH];
            let next = &mut next[..(max - taken.count - taken.more.len()).min(BATCH)];
            // An error is returned by the next call: the completions so far are not lost.
            let count = self.0.poll(next).unwrap_or(0);
            is_full = count == next.len();
            taken.more.extend_from_slice(&next[..count]);
        }
        Ok(taken)
    }
}

#[pymethods]
impl Completions {
    fn poll(&self, py: Python<'_>, max: usize) -> Result<Vec<Completion>, Failed> {
        Ok(py.detach(|| self.take(max, None))?.into_objects())
    }

    fn wait(&self, py: Python<'_>, timeout: Option<f64>, max: usize) -> PyResult<Vec<Completion>> {
        let limit = timeout.map(seconds).transpose()?;
        if max == 0 {
            return Err(PyValueError::new_err("expected a maximum of at least 1 completion, found 0"));
        }
        let began = Instant::now();
        loop {
            let left = limit.map_or(SIGNAL_INTERVAL, |limit| limit.saturating_sub(began.elapsed()));
            let taken = py.detach(|| self.take(max, Some(left.min(SIGNAL_INTERVAL)))).map_err(Failed::from)?;
            if taken.count > 0 || left.is_zero() {
                return Ok(taken.into_objects());
            }
            py.check_signals()?;
        }
    }

    fn arm(&self, py: Python<'_>) -> Result<bool, Failed> {
        Ok(py.detach(|| self.0.arm())?)
    }

    fn close(&self, py: Python<'_>) -> Result<(), Failed> {
        Ok(py.detach(|| self.0.close())?)
    }

    #[getter]
    fn depth(&self) -> u32 {
        self.0.depth()
    }
}

/// Returns a time from Python.
pub fn seconds(value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| PyValueError::new_err(format!("expected a time of 0 seconds or more, found {value}")))
}

/// The native part of a queue pair.
#[pyclass(frozen, module = "shotline._native")]
pub struct Pair(pub QueuePair);

impl Pair {
    fn check(&self, regions: &[Arc<LocalRegion>]) -> PyResult<()> {
        if regions.iter().all(|region| region.is_of(&self.0)) {
            return Ok(());
        }
        Err(PyValueError::new_err(
            "the memory is registered at another endpoint: register it at the endpoint of this queue pair",
        ))
    }
}

#[pymethods]
impl Pair {
    fn post(&self, py: Python<'_>, requests: Vec<Bound<'_, Request>>) -> PyResult<()> {
        let mut list = Vec::with_capacity(requests.len());
        for request in &requests {
            let request = request.get();
            self.check(request.regions())?;
            list.push(request.wr());
        }
        Ok(py.detach(|| self.0.post_send(&list)).map_err(Failed::from)?)
    }

    fn post_recv(&self, py: Python<'_>, receives: Vec<Bound<'_, Receive>>) -> PyResult<()> {
        let mut list = Vec::with_capacity(receives.len());
        for receive in &receives {
            let receive = receive.get();
            self.check(receive.regions())?;
            list.push(receive.wr());
        }
        Ok(py.detach(|| self.0.post_recv(&list)).map_err(Failed::from)?)
    }

    fn state(&self, py: Python<'_>) -> Result<String, Failed> {
        Ok(py.detach(|| self.0.state())?.to_string())
    }

    fn close(&self, py: Python<'_>) -> Result<(), Failed> {
        Ok(py.detach(|| self.0.close())?)
    }

    #[getter]
    fn number(&self) -> u32 {
        self.0.number()
    }

    #[getter]
    fn peer(&self) -> u32 {
        self.0.peer()
    }
}
