//! The trigger command.

use crate::{ParseError, bytes};

/// Tells a probe to take one shot now: a 64-byte datagram to the set-up port, not answered.
///
/// | byte | field | type |
/// |---|---|---|
/// | 0 | magic `SHTR` | 4 bytes |
/// | 4 | version, 1 | u8 |
/// | 5 | zeros | 3 bytes |
/// | 8 | sequence number | u32 |
/// | 12 | zeros | 4 bytes |
/// | 16 | stamp | u64 |
/// | 24 | zeros | 40 bytes |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Trigger {
    /// One more with each trigger, wrapping. A number seen before is not obeyed again; a number left out is
    /// a missed trigger in the probe's report.
    pub sequence: u32,
    /// When it was sent, in the sender's TAI nanoseconds; 0 if unknown.
    pub stamp: u64,
}

impl Trigger {
    /// Bytes of the datagram.
    pub const LEN: usize = 64;
    /// The datagram's first four bytes.
    pub const MAGIC: [u8; 4] = *b"SHTR";
    /// The version that this crate writes and reads.
    pub const VERSION: u8 = 1;

    /// Reads a datagram. Reserved bytes are ignored.
    pub fn parse(datagram: &[u8]) -> Result<Self, ParseError> {
        if datagram.len() != Self::LEN {
            let (expected, found) = (Self::LEN as u64, datagram.len() as u64);
            return Err(ParseError::Length { what: "a trigger", expected, found });
        }
        let mut fields = bytes::Fields::of("trigger", datagram);
        let magic = fields.array()?;
        if magic != Self::MAGIC {
            let (expected, found) = (u32::from_be_bytes(Self::MAGIC).into(), u32::from_be_bytes(magic).into());
            return Err(ParseError::Value { what: "trigger's magic", expected, found });
        }
        let version = fields.u8()?;
        if version != Self::VERSION {
            let (expected, found) = (Self::VERSION.into(), version.into());
            return Err(ParseError::Value { what: "trigger's version", expected, found });
        }
        let _reserved: [u8; 3] = fields.array()?;
        let sequence = fields.u32()?;
        let _reserved = fields.u32()?;
        Ok(Self { sequence, stamp: fields.u64()? })
    }

    /// The datagram's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        bytes::Header::new()
            .put(&Self::MAGIC)
            .u8(Self::VERSION)
            .zeros(3)
            .u32(self.sequence)
            .zeros(4)
            .u64(self.stamp)
            .padded()
    }
}
