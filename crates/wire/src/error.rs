//! The error type of all parsers.

use crate::shot::GeometryError;

/// Reason why bytes were rejected, with the expected and the found value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The input is too short.
    #[error("{what} ends early: needs {needed} bytes, found {found}")]
    Truncated {
        /// Name of the header or field.
        what: &'static str,
        /// Bytes needed.
        needed: usize,
        /// Bytes available.
        found: usize,
    },
    /// A length differs from the only valid one.
    #[error("{what} must be {expected} bytes, found {found}")]
    Length {
        /// Name of what has this length.
        what: &'static str,
        /// Expected length in bytes.
        expected: u64,
        /// Actual length in bytes.
        found: u64,
    },
    /// A field differs from its only valid value.
    #[error("{what} must be {expected:#x}, found {found:#x}")]
    Value {
        /// Name of the field.
        what: &'static str,
        /// Expected value.
        expected: u64,
        /// Actual value.
        found: u64,
    },
    /// A field is out of its range.
    #[error("{what} must be {min} to {max}, found {found}")]
    Range {
        /// Name of the field.
        what: &'static str,
        /// Minimum value.
        min: u64,
        /// Maximum value.
        max: u64,
        /// Actual value.
        found: u64,
    },
    /// A field has an undefined value.
    #[error("{what} {found:#x} is unknown")]
    Unknown {
        /// Name of the field.
        what: &'static str,
        /// Actual value.
        found: u64,
    },
    /// A required field is missing.
    #[error("{what} is missing")]
    Missing {
        /// Name of the field.
        what: &'static str,
    },
    /// The packet is valid, but uses a feature that this crate does not support.
    #[error("{what} is not supported")]
    Unsupported {
        /// The feature.
        what: &'static str,
    },
    /// A floating-point field is infinite or not a number.
    #[error("{what} must be a finite number")]
    NotFinite {
        /// Name of the field.
        what: &'static str,
    },
    /// No packet of the shot begins at this byte offset.
    #[error("no packet of the shot begins at offset {offset}")]
    Offset {
        /// Byte offset in the shot.
        offset: u32,
    },
    /// A timestamp cannot be converted to a number of samples since the stream's first block.
    #[error("timestamp must be on the clock of the first block, and not before it")]
    TimeStamp,
    /// A text field is not printable ASCII padded with zeros.
    #[error("{what} must be printable ASCII padded with zeros")]
    Text {
        /// Name of the field.
        what: &'static str,
    },
    /// An IP fragment. None of the supported protocols may be fragmented, so fragments are not reassembled.
    #[error(
        "IP fragment (offset {offset}, more fragments: {more}): make the path's MTU larger than the packets, and send with DF"
    )]
    Fragment {
        /// Offset of the fragment in bytes.
        offset: u32,
        /// The MF flag: more fragments follow.
        more: bool,
    },
    /// An Internet checksum (RFC 1071) does not match.
    #[error("{what} checksum must be {expected:#06x}, found {found:#06x}")]
    Checksum {
        /// Name of the header.
        what: &'static str,
        /// Checksum as computed.
        expected: u16,
        /// Checksum as received.
        found: u16,
    },
    /// A shot geometry that is not valid.
    #[error("shot geometry: {0}")]
    Geometry(#[from] GeometryError),
}
