//! The one error of parsing.

use crate::shot::GeometryError;

/// Why bytes are not what they should be: what was expected and what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The bytes end before the thing does.
    #[error("{what} ends early: needs {needed} bytes, found {found}")]
    Truncated {
        /// The header or field.
        what: &'static str,
        /// Bytes that it takes.
        needed: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// A length that must be exactly so is not.
    #[error("{what} must be {expected} bytes, found {found}")]
    Length {
        /// The thing measured.
        what: &'static str,
        /// Bytes that it must have.
        expected: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// A field has one right value and this is another.
    #[error("{what} must be {expected:#x}, found {found:#x}")]
    Value {
        /// The field.
        what: &'static str,
        /// Its right value.
        expected: u64,
        /// Its value.
        found: u64,
    },
    /// A field is out of its range.
    #[error("{what} must be {least} to {most}, found {found}")]
    Range {
        /// The field.
        what: &'static str,
        /// Its smallest value.
        least: u64,
        /// Its largest value.
        most: u64,
        /// Its value.
        found: u64,
    },
    /// A field names one of several things, and this names none of them.
    #[error("{what} {found:#x} is unknown")]
    Unknown {
        /// The field.
        what: &'static str,
        /// Its value.
        found: u64,
    },
    /// A text field holds something other than printable ASCII padded with zeros.
    #[error("{what} must be printable ASCII padded with zeros")]
    Text {
        /// The field.
        what: &'static str,
    },
    /// A piece of a larger IP packet. Nothing that Shotline speaks may be fragmented, so nobody reassembles.
    #[error(
        "IP fragment (offset {offset}, more to come: {more}): make the path's MTU larger than the packets, and send with DF"
    )]
    Fragment {
        /// Its offset in bytes.
        offset: u32,
        /// Whether others follow.
        more: bool,
    },
    /// An Internet checksum (RFC 1071) does not match.
    #[error("{what} checksum must be {expected:#06x}, found {found:#06x}")]
    Checksum {
        /// The header.
        what: &'static str,
        /// As computed.
        expected: u16,
        /// As received.
        found: u16,
    },
    /// A shot that cannot exist.
    #[error("shot geometry: {0}")]
    Geometry(#[from] GeometryError),
}
