//! Why a run ended.

use crate::stream::Ended;
use serde::Serialize;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// All shots have come that were asked for, or that the sender had.
    Shots,
    /// The time is over.
    Time,
    /// The user stopped it.
    Signal,
    /// Nothing came for `--idle-s`.
    Silence,
    /// The file, or the drive, has no room for more.
    Full,
    /// The sender's shots have used up their numbers.
    NumbersOver,
    /// The probe stopped before the shots or the time that were asked for. (Where neither was, its end is the run's.)
    ProbeStopped,
    /// The probe does not answer any more.
    ProbeLost,
    /// Another receiver has taken the probe over.
    TakenOver,
    /// The sender said that it stops, before the shots or the time that were asked for.
    SenderStopped,
    /// The sender's context tells another sample rate or format.
    SenderChanged,
    /// The sender began to count anew, with numbers that the run has already.
    SenderRestarted,
    /// The network, or the device that receives, failed.
    TransportFailed,
    /// The recorder failed.
    RecorderFailed,
}

impl Cause {
    /// Whether the run was cut off: what was asked for would have been more.
    pub fn is_early(self) -> bool {
        !matches!(self, Self::Shots | Self::Time | Self::Signal | Self::Silence)
    }

    /// In words that follow "ended after 0.7 of 10 s:".
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Shots => "all shots have come",
            Self::Time => "the time is over",
            Self::Signal => "it was stopped",
            Self::Silence => "nothing came any more",
            Self::Full => "the file is full",
            Self::NumbersOver => "the numbers of shots end at 2^48: reset the sender",
            Self::ProbeStopped => "the probe has stopped, and not at this run's word",
            Self::ProbeLost => "the probe does not answer any more",
            Self::TakenOver => "another receiver has taken the probe over",
            Self::SenderStopped => "the sender has stopped",
            Self::SenderChanged => "the sender has changed its sample rate or format",
            Self::SenderRestarted => "the sender has begun to count anew",
            Self::TransportFailed => "the transport failed",
            Self::RecorderFailed => "the recorder failed",
        }
    }
}

impl From<Ended> for Cause {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Other => Self::SenderChanged,
            Ended::Anew => Self::SenderRestarted,
        }
    }
}
