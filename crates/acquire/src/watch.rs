//! Watching a probe while its shots are received.

use crate::control::{Control, ControlError};
use crate::run::Cause;
use shotline_wire::setup::Report;
use shotline_wire::shot::MAX_SHOTS;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(50);
/// Looks between two questions to a probe that runs.
const ASK_EVERY: u32 = 4;

/// What the watch thread has found out, for the receive thread to read at any time.
pub(crate) struct Watch {
    /// Links of the probe, 0 if there is none to be asked.
    links: u8,
    stop: AtomicBool,
    gone: OnceLock<Cause>,
    reports: OnceLock<Vec<Report>>,
    ends: OnceLock<Vec<u64>>,
    warning: OnceLock<String>,
}

impl Watch {
    pub(crate) fn new(links: u8) -> Self {
        Self {
            links,
            stop: AtomicBool::new(false),
            gone: OnceLock::new(),
            reports: OnceLock::new(),
            ends: OnceLock::new(),
            warning: OnceLock::new(),
        }
    }

    /// Whether there is a probe to be asked.
    pub(crate) fn has_probe(&self) -> bool {
        self.links > 0
    }
    /// Asks for the probe to be stopped.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
    /// Why the probe is not this run's any more, if it is not.
    pub(crate) fn gone(&self) -> Option<Cause> {
        self.gone.get().copied()
    }
    /// For each link the number after its last shot, once the probe has ended.
    pub(crate) fn ends(&self) -> Option<&[u64]> {
        self.ends.get().map(Vec::as_slice)
    }
    /// What the probe reported in the end.
    pub(crate) fn reports(&self) -> &[Report] {
        self.reports.get().map_or(&[], Vec::as_slice)
    }
    pub(crate) fn warnings(&self) -> Option<String> {
        self.warning.get().cloned()
    }

    /// The watch thread: until the probe has ended by itself, was stopped, or is gone.
    pub(crate) fn follow(&self, mut control: Control) {
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
    fn ask(&self, control: &mut Control, stop: bool) -> Result<bool, ControlError> {
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
        let _ = self.ends.set(reports.iter().map(|report| report.next_shot.min(MAX_SHOTS)).collect());
        let _ = self.reports.set(reports);
        Ok(true)
    }
}
