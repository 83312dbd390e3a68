//! Causes of a run's end.

use crate::stream::EndReason;
use serde::Serialize;

/// Cause of a run's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// All requested shots have arrived, or all that the sender had.
    Shots,
    /// The requested time is over.
    Time,
    /// The user stopped it.
    Signal,
    /// No packet arrived for `--idle-s`.
    Idle,
    /// The file or the drive is full.
    Full,
    /// The sender's shots have used up their numbers.
    NumbersExhausted,
    /// The probe stopped before the requested shots or time. If neither was requested, the cause is [`Self::Shots`].
    ProbeStopped,
    /// The probe does not answer any more.
    ProbeLost,
    /// Another receiver has taken over the probe.
    TakenOver,
    /// The sender announced its stop before the requested shots or time.
    SenderStopped,
    /// The sender's context has another sample rate or format.
    SenderChanged,
    /// The sender was restarted, with numbers that the run already has.
    SenderRestarted,
    /// The transport failed.
    TransportFailed,
    /// The recorder failed.
    RecorderFailed,
}

impl Cause {
    /// Returns `true` if the run was cut off before its requested end.
    pub fn is_early(self) -> bool {
        !matches!(self, Self::Shots | Self::Time | Self::Signal | Self::Idle)
    }

    /// Returns words that follow "ended after 0.7 of 10 s:".
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Shots => "all shots have arrived",
            Self::Time => "the requested time is over",
            Self::Signal => "stopped by a signal",
            Self::Idle => "no more packets arrived",
            Self::Full => "the file is full",
            Self::NumbersExhausted => "shot numbers end at 2^48: reset the sender",
            Self::ProbeStopped => "the probe has stopped without a request of this run",
            Self::ProbeLost => "the probe does not answer any more",
            Self::TakenOver => "another receiver has taken over the probe",
            Self::SenderStopped => "the sender has stopped",
            Self::SenderChanged => "the sender has changed its sample rate or format",
            Self::SenderRestarted => "the sender has restarted its count",
            Self::TransportFailed => "the transport failed",
            Self::RecorderFailed => "the recorder failed",
        }
    }
}

impl From<EndReason> for Cause {
    fn from(ended: EndReason) -> Self {
        match ended {
            EndReason::FormatChanged => Self::SenderChanged,
            EndReason::Restarted => Self::SenderRestarted,
        }
    }
}
