//! Watching a probe while its shots are received.

use super::cause::Cause;
use super::error::RunError;
use crate::control::{Control, ControlError};
use shotline_wire::setup::Report;
use shotline_wire::shot::MAX_SHOTS;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(50);
/// Looks between two questions to a probe that runs.
const ASK_EVERY: u32 = 4;

/// The number after the last shot of a link whose probe has ended.
pub(super) fn after_last(report: &Report) -> u64 {
    report.next_shot.min(MAX_SHOTS)
}

/// What the watch thread has found out, for the receive thread to read at any time.
pub(super) struct Watch {
    /// Links of the probe, 0 if there is none to be asked.
    links: u8,
    stop: AtomicBool,
    gone: OnceLock<Cause>,
    reports: OnceLock<Vec<Report>>,
    warning: OnceLock<String>,
}

impl Watch {
    pub(super) fn new(links: u8) -> Self {
        Self {
            links,
            stop: AtomicBool::new(false),
            gone: OnceLock::new(),
            reports: OnceLock::new(),
            warning: OnceLock::new(),
        }
    }

    /// Whether there is a probe to be asked.
    pub(super) fn has_probe(&self) -> bool {
        self.links > 0
    }
    /// Asks for the probe to be stopped.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
    /// Why the probe is not this run's any more, if it is not.
    pub(super) fn gone(&self) -> Option<Cause> {
        self.gone.get().copied()
    }
    /// What the probe reported in the end, of each link.
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
        // What the threads share is set once or atomic: a panic leaves nothing half-changed.
        catch_unwind(AssertUnwindSafe(follow)).map_err(|_| {
            let _ = self.gone.set(Cause::ProbeLost);
            RunError::Panicked("watch")
        })
    }

    /// Asks the probe how it does until the probe has ended by itself, was stopped, or is gone.
    pub(super) fn follow(&self, mut control: Control<'_>) {
        let mut looks = 0;
        loop {
            let stop = self.stop.load(Ordering::Relaxed);
            if stop || looks == ASK_EVERY {
                looks = 0;
                match self.ask(&mut control, stop) {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(error) => {
                        let _ =
                            self.warning.set(format!("{error}; shots that never came after the last one are unknown"));
                        let _ = self.gone.set(Cause::ProbeLost);
                        return;
                    }
                }
            }
            looks += 1;
            std::thread::sleep(INTERVAL);
        }
    }

    /// Whether the probe has ended.
    fn ask(&self, control: &mut Control<'_>, stop: bool) -> Result<bool, ControlError> {
        let mut reports = Vec::with_capacity(self.links.into());
        for link in 0..self.links {
            reports.push(if stop { control.stop(link)? } else { control.status(link)? });
        }
        if reports.iter().any(|report| report.taken) {
            let words = "another receiver has taken the probe over: what it sends now is not this run's";
            let _ = self.warning.set(words.into());
            let _ = self.gone.set(Cause::TakenOver);
            return Ok(true);
        }
        if reports.iter().any(|report| report.running) {
            return Ok(false);
        }
        let _ = self.reports.set(reports);
        Ok(true)
    }
}
