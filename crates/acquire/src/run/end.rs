//! End of a run, and whether it was early.

use super::cause::Cause;
use super::error::RunError;
use crate::config::Settings;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Requested end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RequestedEnd {
    /// Maximum number of shots (events of all links).
    #[serde(rename = "requested_shots", skip_serializing_if = "Option::is_none")]
    pub shots: Option<u64>,
    /// Maximum duration in seconds.
    #[serde(rename = "requested_s", skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl RequestedEnd {
    /// Returns the requested end in the settings.
    pub(super) fn of(settings: &Settings) -> Self {
        Self { shots: settings.shots, seconds: settings.seconds }
    }

    /// Returns `true` if a sender that stops after this number of shots stops before the requested end.
    pub(super) fn is_early_after(&self, events: u64) -> bool {
        self.shots.map_or(self.seconds.is_some(), |shots| events < shots)
    }

    /// Returns `true` if the run continues after this time.
    pub(super) fn continues_after(&self, elapsed: Duration) -> bool {
        self.seconds.is_none_or(|seconds| elapsed.as_secs_f64() <= seconds)
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Counters of a run's shots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shots {
    /// Events received.
    pub(super) received: u64,
    /// Events dropped because the file had no space.
    pub(super) without_space: u64,
    /// Set if a requested shot is among these.
    pub(super) lacked_space: bool,
}

/// End of a run.
#[derive(Clone, Debug, Serialize)]
pub struct End {
    /// Cause of the end.
    pub cause: Cause,
    /// Set if the run was cut off.
    pub early: bool,
    /// Number of events received by then.
    pub after_shots: u64,
    /// Of these, events without space in the file.
    #[serde(skip_serializing_if = "is_zero")]
    pub shots_without_space: u64,
    /// Duration of the run, in seconds.
    pub after_s: f64,
    /// Requested end.
    #[serde(flatten)]
    pub requested: RequestedEnd,
    /// Error of the transport or the recorder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl End {
    /// Combines the last state of the receive thread with the shots handled since. A failure takes precedence over any
    /// other cause.
    pub(super) fn of(
        requested: RequestedEnd,
        shots: Shots,
        after: Duration,
        ended: Result<Cause, (Cause, RunError)>,
    ) -> Self {
        let Shots { received: after_shots, without_space, lacked_space } = shots;
        let (cause, error) = match ended {
            Ok(Cause::SenderStopped) if !requested.is_early_after(after_shots) => (Cause::Shots, None),
            Ok(cause) => (cause, None),
            Err((cause, error)) => (cause, Some(error.to_string())),
        };
        let cause = if lacked_space && !cause.is_early() { Cause::Full } else { cause };
        let after_s = after.as_secs_f64();
        // Shots after the last one requested need no space.
        let shots_without_space = if cause == Cause::Full { without_space } else { 0 };
        Self { cause, early: cause.is_early(), after_shots, shots_without_space, after_s, requested, error }
    }

    /// Checks that the run was not cut off.
    ///
    /// # Errors
    /// Describes the end if it was.
    pub fn check(&self) -> Result<(), String> {
        if self.early { Err(self.to_string()) } else { Ok(()) }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after_s, after_shots, shots_without_space, .. } = self;
        match self.requested {
            RequestedEnd { shots: Some(shots), .. } => {
                write!(f, "ended after {} of {shots} shots", after_shots.saturating_sub(*shots_without_space))?;
            }
            RequestedEnd { seconds: Some(seconds), .. } => write!(f, "ended after {after_s:.1} of {seconds} s")?,
            _ => write!(f, "ended after {after_s:.1} s")?,
        }
        match &self.error {
            Some(error) => write!(f, ": {error}"),
            None => write!(f, ": {}", self.cause.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_reports_the_progress_of_the_run() {
        let end = |cause, requested| {
            let shots = Shots { received: 412, without_space: 12, lacked_space: false };
            End::of(requested, shots, Duration::from_millis(700), Ok(cause)).to_string()
        };
        let seconds = RequestedEnd { seconds: Some(10.0), shots: None };
        assert_eq!(end(Cause::Full, seconds), "ended after 0.7 of 10 s: the file is full");
        let shots = RequestedEnd { seconds: Some(10.0), shots: Some(1000) };
        let lost = "ended after 412 of 1000 shots: the probe does not answer any more";
        assert_eq!(end(Cause::ProbeLost, shots), lost);
        let full = "ended after 400 of 1000 shots: the file is full";
        assert_eq!(end(Cause::Full, shots), full);
        assert_eq!(end(Cause::Full, RequestedEnd::default()), "ended after 0.7 s: the file is full");
    }

    #[test]
    fn the_last_shots_decide_whether_an_end_is_early() {
        let requested = RequestedEnd { seconds: None, shots: Some(10) };
        let cause = |cause, received, lacked_space| {
            End::of(requested, Shots { received, without_space: 1, lacked_space }, Duration::ZERO, Ok(cause)).cause
        };
        assert_eq!(cause(Cause::Shots, 10, false), Cause::Shots);
        assert_eq!(cause(Cause::Shots, 10, true), Cause::Full);
        assert_eq!(cause(Cause::SenderStopped, 9, false), Cause::SenderStopped);
        assert_eq!(cause(Cause::SenderStopped, 10, false), Cause::Shots);
        assert_eq!(cause(Cause::SenderStopped, 10, true), Cause::Full);
        assert_eq!(cause(Cause::ProbeLost, 10, true), Cause::ProbeLost);
    }
}
