//! Reasons for which a probe refuses a request.

use crate::ParseError;

/// Name of the kind field in errors, by which [`Refusal::from_error`] recognises them.
pub(super) const KIND: &str = "set-up message's kind";

/// Reason for which a probe did not execute a request, and how to fix it. The number is the status of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// 1: the probe has another protocol version, which its reply carries.
    #[error("the probe uses another version of the set-up protocol: update the older of the two")]
    Version,
    /// 2: the probe does not support this kind of request.
    #[error("the probe does not support this kind of request: update its firmware, or do not use it")]
    Kind,
    /// 3: a field has an invalid value.
    #[error("the probe found a field with an invalid value: check the request against docs/wire-formats.md")]
    Malformed,
    /// 4: another token owns the probe.
    #[error("another receiver controls the probe: stop that one, or take over (--take-over)")]
    Owned,
    /// 5: the request is not allowed while shots are being sent.
    #[error("the probe is sending shots: stop it first")]
    Running,
    /// 6: no link has been configured.
    #[error("the probe is not configured: configure at least one link first")]
    NotConfigured,
    /// 7: the link does not exist.
    #[error("the probe has no such link: query its number of links")]
    Link,
    /// 8: shots of this geometry cannot be acquired or sent.
    #[error("the probe cannot acquire shots of this geometry: query its channels, bits, packing, rate and samples")]
    Geometry,
    /// 9: the probe does not support this framing.
    #[error("the probe does not support this framing: query its framings")]
    Framing,
    /// 10: the probe cannot send to this destination.
    #[error("the probe cannot send to this address: specify one that its link reaches, with a port")]
    Destination,
    /// 11: the probe does not support this start mode, or not at this rate.
    #[error("the probe cannot start in this mode or at this rate: try another mode or a lower rate")]
    Mode,
    /// 12: the probe has an internal fault.
    #[error("the probe has an internal fault: check its log or restart it")]
    Fault,
    /// Any other number: a status that a later version defines.
    #[error("the probe refused with status {0}, which this version does not define: see the probe's manual")]
    Other(
        /// The status number.
        u8,
    ),
}

impl Refusal {
    /// Returns the refusal with this status, or `None` if the request was executed.
    pub fn from_code(status: u8) -> Option<Self> {
        Some(match status {
            0 => return None,
            1 => Self::Version,
            2 => Self::Kind,
            3 => Self::Malformed,
            4 => Self::Owned,
            5 => Self::Running,
            6 => Self::NotConfigured,
            7 => Self::Link,
            8 => Self::Geometry,
            9 => Self::Framing,
            10 => Self::Destination,
            11 => Self::Mode,
            12 => Self::Fault,
            other => Self::Other(other),
        })
    }

    /// Returns the status, never 0.
    pub fn code(self) -> u8 {
        match self {
            Self::Version => 1,
            Self::Kind => 2,
            Self::Malformed => 3,
            Self::Owned => 4,
            Self::Running => 5,
            Self::NotConfigured => 6,
            Self::Link => 7,
            Self::Geometry => 8,
            Self::Framing => 9,
            Self::Destination => 10,
            Self::Mode => 11,
            Self::Fault => 12,
            // Status 0 means success.
            Self::Other(code) => code.max(1),
        }
    }

    /// Returns the refusal of a request that failed to parse with this error.
    pub(super) fn from_error(error: &ParseError) -> Self {
        match error {
            ParseError::Geometry(_) => Self::Geometry,
            ParseError::Unknown { what, .. } if *what == KIND => Self::Kind,
            _ => Self::Malformed,
        }
    }
}
