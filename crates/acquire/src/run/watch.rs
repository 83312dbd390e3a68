//! Monitors a probe while its shots are received.

use super::cause::Cause;
use super::error::RunError;
use crate::control::{Control, ControlError};
use shotline_wire::setup::Report;
use shotline_wire::shot::MAX_SHOTS;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Interval of checks.
const INTERVAL: Duration = Duration::from_millis(50);
/// Number of checks between two status requests to a running probe.
const CHECKS_PER_REQUEST: u32 = 4;

/// Returns the number after the last shot of a link whose probe has ended.
pub(super) fn after_last(report: &Report) -> u64 {
    report.next_shot.min(MAX_SHOTS)
}

/// Results of the watch thread, which the receive thread can read at any time.
pub(super) struct Watch {
    /// Number of links of the probe, 0 without a probe.
    links: u8,
    stop: AtomicBool,
    lost: OnceLock<Cause>,
    reports: OnceLock<Vec<Report>>,
    warning: OnceLock<String>,
}

impl Watch {
    pub(super) fn new(links: u8) -> Self {
        Self {
            links,
            stop: AtomicBool::new(false),
            lost: OnceLock::new(),
            reports: OnceLock::new(),
            warning: OnceLock::new(),
        }
    }

    /// Returns `true` if there is a probe.
    pub(super) fn has_probe(&self) -> bool {
        self.links > 0
    }
    /// Requests a stop of the probe.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
    /// Returns the cause if the probe no longer serves this run.
    pub(super) fn lost(&self) -> Option<Cause> {
        self.lost.get().copied()
    }
    /// Returns the final reports of the probe, one for each link.
    pub(super) fn reports(&self) -> Option<&[Report]> {
        self.reports.get().map(Vec::as_slice)
    }
    pub(super) fn warnings(&self) -> Option<String> {
        self.warning.get().cloned()
    }

    /// Runs the watch thread, which calls `follow`. If it panics, the probe counts as lost.
    ///
    /// # Errors
    /// If it has panicked.
    pub(super) fn run(&self, follow: impl FnOnce()) -> Result<(), RunError> {
        // The shared state is set once or atomic: a panic does not leave it inconsistent.
        catch_unwind(AssertUnwindSafe(follow)).map_err(|_| {
            let _ = self.lost.set(Cause::ProbeLost);
            RunError::Panicked("watch")
        })
    }

    /// Polls the probe until it has ended, was stopped, or is unreachable.
    pub(super) fn follow(&self, mut control: Control<'_>) {
        let mut checks = 0;
        loop {
            let stop = self.stop.load(Ordering::Relaxed);
            if stop || checks == CHECKS_PER_REQUEST {
                checks = 0;
                match self.query(&mut control, stop) {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(error) => {
                        let _ = self.warning.set(format!("{error}; shots lost after the last one are unknown"));
                        let _ = self.lost.set(Cause::ProbeLost);
                        return;
                    }
                }
            }
            checks += 1;
            std::thread::sleep(INTERVAL);
        }
    }

    /// Queries or stops the probe. Returns `true` if it has ended.
    fn query(&self, control: &mut Control<'_>, stop: bool) -> Result<bool, ControlError> {
        let mut reports = Vec::with_capacity(self.links.into());
        for link in 0..self.links {
            reports.push(if stop { control.stop(link)? } else { control.status(link)? });
        }
        if reports.iter().any(|report| report.is_owned_by_other) {
            let words = "another receiver has taken over the probe: its packets no longer belong to this run";
            let _ = self.warning.set(words.into());
            let _ = self.lost.set(Cause::TakenOver);
            return Ok(true);
        }
        if reports.iter().any(|report| report.running) {
            return Ok(false);
        }
        let _ = self.reports.set(reports);
        Ok(true)
    }
}
