//! Causes of a run's end.

use crate::stream::EndReason;
use serde::Serialize;
use shotline_wire::shot::NO_REMEDY;

/// Defines [`Cause`] from a table of variant, name and meaning.
macro_rules! causes {
    ($($cause:ident = $name:literal, $meaning:literal;)+) => {
        /// Cause of a run's end.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        pub enum Cause {
            $(#[doc = $meaning] #[serde(rename = $name)] $cause,)+
        }

        impl Cause {
            /// All causes.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$cause),+];

            /// Returns the name used in summaries.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$cause => $name,)+
                }
            }

            /// Returns a description of what happened.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$cause => $meaning,)+
                }
            }
        }
    };
}

causes! {
    Shots = "shots", "All requested shots have arrived, or all that the sender had.";
    Time = "time", "The requested time is over.";
    Signal = "signal", "The user stopped it.";
    Idle = "idle", "No packet arrived for `--idle-s`.";
    Full = "full", "The file or the drive is full.";
    NumbersExhausted = "numbers-exhausted", "The sender's shots have used up their numbers.";
    ProbeStopped = "probe-stopped", "The probe stopped before the requested shots or time. If neither was requested, the cause is `shots`.";
    ProbeLost = "probe-lost", "The probe does not answer any more.";
    TakenOver = "taken-over", "Another receiver has taken over the probe.";
    SenderStopped = "sender-stopped", "The sender announced its stop before the requested shots or time.";
    SenderChanged = "sender-changed", "The sender's context has another sample rate or format.";
    SenderRestarted = "sender-restarted", "The sender was restarted, with numbers that the run already has.";
    TransportFailed = "transport-failed", "The transport failed.";
    RecorderFailed = "recorder-failed", "The recorder failed.";
}

/// Place where ends are reported.
const ENDED: &str = "`ended` of the summary in JSON";
/// Place where early ends are reported.
const EARLY: &str = "the last line of the run, whose exit code is 1, and `ended` of the summary in JSON";
const STATUS: (&str, &str) = ("see the state of the probe", "shotline probe status 192.168.1.20");
const AGAIN: (&str, &str) = ("record again", "shotline record --probe 192.168.1.20:47910 --out run-2.h5");
const LISTEN_AGAIN: (&str, &str) =
    ("record again", "shotline record --listen 10.0.0.2:7148 --framing spead --out run-2.h5");
const DOCTOR: (&str, &str) = ("check this machine", "shotline doctor --probe 192.168.1.20:47910 --out /data/run.h5");

shotline_wire::explanations! {
    Cause {
        Shots = ENDED,
            "As requested by `--shots`, or the sender has no more shots.",
            NO_REMEDY;
        Time = ENDED,
            "As requested by `--seconds`.",
            NO_REMEDY;
        Signal = ENDED,
            "Ctrl-C, SIGTERM or a closed terminal. Everything received is in the file.",
            NO_REMEDY;
        Idle = ENDED,
            "As requested by `--idle-s`.",
            NO_REMEDY;
        Full = EARLY,
            "All rows of the file are in use, or the drive has no space for the next file.",
            &[
                ("see the free space", "df -h"),
                (
                    "allocate more rows",
                    "shotline record --probe 192.168.1.20:47910 --out run-2.h5 --capacity 100000",
                ),
                (
                    "keep the newest data only",
                    "shotline record --probe 192.168.1.20:47910 --out run-2.h5 --keep 400GiB",
                ),
            ];
        NumbersExhausted = EARLY,
            "Shot numbers have 48 bits, and the sender has reached the last one: reset the sender.",
            &[AGAIN];
        ProbeStopped = EARLY,
            "Another program, a person or the probe itself stopped it; or it was restarted.",
            &[STATUS, AGAIN];
        ProbeLost = EARLY,
            "The probe was switched off or crashed, a cable was unplugged, or a firewall drops its replies.",
            &[
                ("see whether the host answers", "ping -c 3 192.168.1.20"),
                ("find the probe", "shotline probe discover 192.168.1.20"),
                STATUS,
                (
                    "take the probe over, if it still sends to this run",
                    "shotline record --probe 192.168.1.20:47910 --out run-2.h5 --take-over",
                ),
            ];
        TakenOver = EARLY,
            "Another receiver was started with `--take-over`, or another program configured the probe.",
            &[STATUS, ("take it back", "shotline record --probe 192.168.1.20:47910 --out run-2.h5 --take-over")];
        SenderStopped = EARLY,
            "The sender ended its stream, with a stop heap of SPEAD.",
            &[LISTEN_AGAIN];
        SenderChanged = EARLY,
            "The sender was configured again during the run. One file has one sample rate and one format.",
            &[LISTEN_AGAIN];
        SenderRestarted = EARLY,
            "The sender's packets carry its own numbers, which began again, so they would occur twice in the file.",
            &[LISTEN_AGAIN];
        TransportFailed = EARLY,
            "The interface was removed or went down, or its driver failed: `error` has the reason.",
            &[
                ("see the state of the interfaces", "ip link"),
                ("see the errors of the kernel", "sudo dmesg"),
                DOCTOR,
            ];
        RecorderFailed = EARLY,
            "The drive failed, or the file system was removed: `error` has the reason. `rows` is the number of rows that readers see.",
            &[
                ("see the errors of the kernel", "sudo dmesg"),
                ("repair the recording", "shotline recover run.h5"),
                ("check what was recorded", "shotline verify run.h5"),
                DOCTOR,
            ];
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_ends_have_remedies_and_requested_ones_none() {
        for cause in Cause::ALL {
            assert_eq!(cause.is_early(), !cause.explanation().remedies.is_empty(), "{}", cause.name());
            assert!(!cause.meaning().is_empty() && !cause.explanation().reason.is_empty());
        }
    }
}
