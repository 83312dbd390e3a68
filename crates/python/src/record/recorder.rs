//! A run that hands its shots to a program.

use super::event::Event;
use super::{duration, parse};
use crate::error::Failure;
use pyo3::prelude::*;
use shotline_acquire::config::Settings;
use shotline_acquire::live::LiveCounters;
use shotline_acquire::summary::Summary;
use shotline_library::reading::geometry;
use shotline_library::{Next, Recorder as Handle, check_end};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

/// Maximum time without a check for signals, such as Ctrl-C.
const SLICE: Duration = Duration::from_millis(100);

/// A run on a thread of its own. Several threads may use it at once.
#[pyclass(frozen, module = "shotline._native")]
pub struct Recorder(Handle);

impl Recorder {
    /// Waits in slices with the interpreter's lock released, and handles signals in between. `slice` returns what was
    /// waited for. None if the time is over.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        mut slice: impl FnMut(&Handle, Duration) -> Result<Option<T>, Failure> + Send,
    ) -> PyResult<Option<T>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = deadline.map_or(SLICE, |deadline| deadline.saturating_duration_since(Instant::now()).min(SLICE));
            if let Some(value) = py.detach(|| slice(&self.0, left))? {
                return Ok(Some(value));
            }
            py.check_signals()?;
            if left.is_zero() {
                return Ok(None);
            }
        }
    }
}

#[pymethods]
impl Recorder {
    #[new]
    fn start(py: Python<'_>, settings: &str) -> Result<Self, Failure> {
        // Also the parser waits: for the resolver, if the probe has a name.
        py.detach(|| {
            let settings: Settings = parse(settings)?;
            Ok(Self(Handle::start(settings)?))
        })
    }

    /// Waits until packets are received, or the run has ended before.
    fn wait_started(&self, py: Python<'_>) -> PyResult<()> {
        self.wait(py, None, |handle, slice| Ok(handle.wait_started(slice)?.then_some(()))).map(drop)
    }

    /// Takes the next shots; none if the time is over, or the run (`ended`).
    fn take(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Event>> {
        let next = self.wait(py, duration(timeout)?, |handle, slice| {
            Ok(match handle.next(slice)? {
                Next::Shots(lent) => Some(Some(lent)),
                Next::Ended => Some(None),
                Next::TimedOut => None,
            })
        })?;
        let Some(Some(lent)) = next else { return Ok(None) };
        let about = self.0.about().ok_or_else(|| Failure::Value("the run has not begun".into()))?;
        Ok(Some(Event::new(*lent, about.geometry, !self.0.has_file())))
    }

    /// True if the run is over and all shots were taken.
    #[getter]
    fn ended(&self) -> bool {
        self.0.is_ended()
    }

    /// True if the program holds as many shots as it may, so that none can follow.
    #[getter]
    fn exhausted(&self) -> bool {
        let (_, held, most) = self.0.held();
        most > 0 && held >= most
    }

    /// Begins to wait on the descriptor. Returns true if there is something to take already.
    fn start_waiting(&self) -> bool {
        self.0.start_waiting()
    }

    fn stop_waiting(&self) {
        self.0.stop_waiting();
    }

    fn fileno(&self) -> Result<i32, Failure> {
        Ok(self.0.fd()?.as_raw_fd())
    }

    /// Waits until the run is over. Raises if it was cut off. Returns false if the time is over.
    fn wait_ended(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let outcome = self.wait(py, duration(timeout)?, |handle, slice| Ok(handle.wait_ended(slice)?))?;
        let Some(outcome) = outcome else { return Ok(false) };
        check_end(&outcome).map_err(Failure::from)?;
        Ok(true)
    }

    /// Returns the summary of the run, as JSON; none before it is over.
    fn summary(&self, py: Python<'_>) -> Result<Option<String>, Failure> {
        py.detach(|| {
            let outcome = self.0.outcome()?;
            let summary = outcome.map(|outcome| serde_json::to_string(&Summary::of(&outcome)));
            summary.transpose().map_err(|error| Failure::Value(error.to_string()))
        })
    }

    /// Returns what the run receives, as JSON; none before it has begun.
    fn about(&self) -> Option<String> {
        let about = self.0.about()?;
        let about = serde_json::json!({
            "instrument": about.instrument,
            "framing": about.framing,
            "links": about.links,
            "address": about.local.to_string(),
            "geometry": geometry(&about.geometry),
            "tai_minus_utc_s": about.tai_minus_utc_s,
        });
        Some(about.to_string())
    }

    /// Returns counters of the run so far.
    fn counters(&self) -> Result<BTreeMap<&'static str, u64>, Failure> {
        let LiveCounters { packets, bytes, packets_dropped, complete, partial, shots_dropped, rows } =
            self.0.live().read();
        let (taken, held, max_held) = self.0.held();
        let (lost, _) = self.0.lost()?;
        Ok([
            ("lost", lost),
            ("packets", packets),
            ("bytes", bytes),
            ("packets_dropped", packets_dropped),
            ("shots_complete", complete),
            ("shots_partial", partial),
            ("shots_dropped", shots_dropped),
            ("rows", rows),
            ("taken", taken),
            ("untaken", self.0.untaken()),
            ("held", held as u64),
            ("max_held", max_held as u64),
        ]
        .into())
    }

    /// Returns the shots that the program did not get: stream, number of the cause, first shot number, number of shots.
    fn losses(&self) -> Result<Vec<(u32, u8, u64, u64)>, Failure> {
        let losses = self.0.losses()?;
        Ok(losses.ranges.iter().map(|loss| (loss.stream, loss.cause as u8, loss.first, loss.count)).collect())
    }

    fn trigger(&self) -> Result<(), Failure> {
        Ok(self.0.trigger()?)
    }

    fn stop(&self) {
        self.0.stop();
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}
