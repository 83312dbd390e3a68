//! How a run ended, and whether it did so earlier than it was asked to.

use super::cause::Cause;
use super::error::RunError;
use crate::config::Settings;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Where a run is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Asked {
    /// After so many shots (events of all links).
    #[serde(rename = "asked_shots", skip_serializing_if = "Option::is_none")]
    pub shots: Option<u64>,
    /// After so many seconds.
    #[serde(rename = "asked_s", skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl Asked {
    /// What the settings say of it.
    pub(super) fn of(settings: &Settings) -> Self {
        Self { shots: settings.shots, seconds: settings.seconds }
    }

    /// Whether a sender that stops after this number of shots stops before the requested end.
    pub(super) fn wants_more(&self, events: u64) -> bool {
        self.shots.map_or(self.seconds.is_some(), |shots| events < shots)
    }

    /// Whether the run is to last longer than this.
    pub(super) fn lasts(&self, elapsed: Duration) -> bool {
        self.seconds.is_none_or(|seconds| elapsed.as_secs_f64() <= seconds)
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What became of the shots of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shots {
    /// Events received.
    pub(super) received: u64,
    /// Events dropped for want of room in the file.
    pub(super) without_room: u64,
    /// Whether one that was requested is among these.
    pub(super) lacked_room: bool,
}

/// How a run ended.
#[derive(Clone, Debug, Serialize)]
pub struct End {
    /// Why.
    pub cause: Cause,
    /// Whether it was cut off.
    pub early: bool,
    /// Events that had been received by then.
    pub after_shots: u64,
    /// Of these, events that found no room in the file.
    #[serde(skip_serializing_if = "is_zero")]
    pub shots_without_room: u64,
    /// How long it had lasted, in seconds.
    pub after_s: f64,
    /// Where it was to end.
    #[serde(flatten)]
    pub asked: Asked,
    /// Why the transport or the recorder failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl End {
    /// Combines what the receive thread saw last with what became of the shots since. A failure takes precedence over any
    /// other cause.
    pub(super) fn of(asked: Asked, shots: Shots, after: Duration, ended: Result<Cause, (Cause, RunError)>) -> Self {
        let Shots { received: after_shots, without_room, lacked_room } = shots;
        let (cause, error) = match ended {
            Ok(Cause::SenderStopped) if !asked.wants_more(after_shots) => (Cause::Shots, None),
            Ok(cause) => (cause, None),
            Err((cause, error)) => (cause, Some(error.to_string())),
        };
        let cause = if lacked_room && !cause.is_early() { Cause::Full } else { cause };
        let after_s = after.as_secs_f64();
        // Shots behind the last one requested need no room.
        let shots_without_room = if cause == Cause::Full { without_room } else { 0 };
        Self { cause, early: cause.is_early(), after_shots, shots_without_room, after_s, asked, error }
    }

    /// An error, in words, if the run was cut off.
    pub fn check(&self) -> Result<(), String> {
        if self.early { Err(self.to_string()) } else { Ok(()) }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after_s, after_shots, shots_without_room, .. } = self;
        match self.asked {
            Asked { shots: Some(shots), .. } => {
                write!(f, "ended after {} of {shots} shots", after_shots.saturating_sub(*shots_without_room))?;
            }
            Asked { seconds: Some(seconds), .. } => write!(f, "ended after {after_s:.1} of {seconds} s")?,
            _ => write!(f, "ended after {after_s:.1} s")?,
        }
        match &self.error {
            Some(error) => write!(f, ": {error}"),
            None => write!(f, ": {}", self.cause.words()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_says_how_far_the_run_came() {
        let end = |cause, asked| {
            let shots = Shots { received: 412, without_room: 12, lacked_room: false };
            End::of(asked, shots, Duration::from_millis(700), Ok(cause)).to_string()
        };
        let seconds = Asked { seconds: Some(10.0), shots: None };
        assert_eq!(end(Cause::Full, seconds), "ended after 0.7 of 10 s: the file is full");
        let shots = Asked { seconds: Some(10.0), shots: Some(1000) };
        let lost = "ended after 412 of 1000 shots: the probe does not answer any more";
        assert_eq!(end(Cause::ProbeLost, shots), lost);
        let full = "ended after 400 of 1000 shots: the file is full";
        assert_eq!(end(Cause::Full, shots), full);
        assert_eq!(end(Cause::Full, Asked::default()), "ended after 0.7 s: the file is full");
    }

    #[test]
    fn the_last_shots_decide_whether_an_end_is_early() {
        let asked = Asked { seconds: None, shots: Some(10) };
        let cause = |cause, received, lacked_room| {
            End::of(asked, Shots { received, without_room: 1, lacked_room }, Duration::ZERO, Ok(cause)).cause
        };
        assert_eq!(cause(Cause::Shots, 10, false), Cause::Shots);
        assert_eq!(cause(Cause::Shots, 10, true), Cause::Full);
        assert_eq!(cause(Cause::SenderStopped, 9, false), Cause::SenderStopped);
        assert_eq!(cause(Cause::SenderStopped, 10, false), Cause::Shots);
        assert_eq!(cause(Cause::SenderStopped, 10, true), Cause::Full);
        assert_eq!(cause(Cause::ProbeLost, 10, true), Cause::ProbeLost);
    }
}
