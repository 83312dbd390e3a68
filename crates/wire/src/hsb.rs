//! NVIDIA Holoscan Sensor Bridge: end-of-frame metadata of its RoCE data plane.
//!
//! The bridge writes each frame into a page of the receiver's memory with UC RDMA WRITE_ONLY packets, the last
//! one WRITE_ONLY_WITH_IMMEDIATE. 128 bytes of metadata follow the frame at the next multiple of 128. Sources: the
//! bridge's user guide (dataplane), its RTL and host decoder, and captures of its emulator. The guide's table says
//! little-endian, but the RTL, the decoder and the captures are big-endian.

use crate::{ParseError, bytes};

/// Alignment, in bytes, of pages, their frames and metadata.
pub const PAGE_UNIT: u32 = 128;
/// Number of bits of the bridge's packet sequence number, which wraps at 2^20, not at 2^24.
pub const PSN_BITS: u32 = 20;

/// End-of-frame metadata.
///
/// | byte | field | type |
/// |---|---|---|
/// | 0 | flags: bit 0 the sensor ended the frame early, bit 1 it ended by its byte count only | u32 |
/// | 4 | packet sequence number, 24 bits | u32 |
/// | 8 | CRC of the frame, 0 if not computed | u32 |
/// | 12 | time of the first data: PTP seconds u64, nanoseconds u32 | 12 bytes |
/// | 24 | valid bytes of the frame | u64 |
/// | 32 | zeros u16, frame number u16 | 4 bytes |
/// | 36 | time of this metadata: PTP seconds u64, nanoseconds u32 | 12 bytes |
/// | 48 | reserved | 80 bytes |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Metadata {
    /// Flags: bit 0 the sensor ended the frame early, bit 1 it ended by its byte count only.
    pub flags: u32,
    /// Packet sequence number.
    pub psn: u32,
    /// CRC of the frame, 0 if not computed.
    pub crc: u32,
    /// Time of the frame's first data, in PTP (TAI) nanoseconds since 1970.
    pub first_ns: u64,
    /// Number of valid bytes of the frame.
    pub valid_bytes: u64,
    /// Frame number, which wraps at 2^16.
    pub frame: u16,
    /// Time of the metadata, in PTP (TAI) nanoseconds since 1970.
    pub made_ns: u64,
}

impl Metadata {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 128;

    /// Parses metadata of [`Self::LEN`] bytes.
    ///
    /// # Errors
    /// If `bytes` has another length, or a time is not a valid PTP time.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        if bytes.len() != Self::LEN {
            let (expected, found) = (Self::LEN as u64, bytes.len() as u64);
            return Err(ParseError::Length { what: "frame metadata", expected, found });
        }
        let mut fields = bytes::Fields::new("frame metadata", bytes);
        let (flags, psn, crc) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let first_ns = time(&mut fields)?;
        let valid_bytes = fields.u64()?;
        let _zeros = fields.u16()?;
        let frame = fields.u16()?;
        Ok(Self { flags, psn, crc, first_ns, valid_bytes, frame, made_ns: time(&mut fields)? })
    }

    /// Encodes the metadata.
    pub fn emit(&self) -> [u8; Self::LEN] {
        const SECOND: u64 = 1_000_000_000;
        bytes::Header::new()
            .u32(self.flags)
            .u32(self.psn)
            .u32(self.crc)
            .u64(self.first_ns / SECOND)
            .u32((self.first_ns % SECOND) as u32)
            .u64(self.valid_bytes)
            .zeros(2)
            .u16(self.frame)
            .u64(self.made_ns / SECOND)
            .u32((self.made_ns % SECOND) as u32)
            .padded()
    }
}

fn time(fields: &mut bytes::Fields<'_>) -> Result<u64, ParseError> {
    let (seconds, nanoseconds) = (fields.u64()?, fields.u32()?);
    let max = u64::MAX / 1_000_000_000 - 1;
    if seconds > max || nanoseconds >= 1_000_000_000 {
        let found = seconds.max(nanoseconds.into());
        return Err(ParseError::Range { what: "PTP time of frame metadata", min: 0, max, found });
    }
    Ok(seconds * 1_000_000_000 + u64::from(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parse_inverts_emit(
            flags: u32, psn: u32, crc: u32, first_ns in 0_u64..1 << 62, valid_bytes: u64, frame: u16,
        ) {
            let metadata = Metadata { flags, psn, crc, first_ns, valid_bytes, frame, made_ns: first_ns / 2 };
            prop_assert_eq!(Metadata::parse(&metadata.emit()), Ok(metadata));
            prop_assert!(Metadata::parse(&metadata.emit()[..127]).is_err());
        }

        #[test]
        fn times_out_of_range_are_refused(seconds in u64::MAX / 1_000_000_000.., nanoseconds in 1_000_000_000_u32..) {
            let mut bytes = Metadata::default().emit();
            bytes[20..24].copy_from_slice(&nanoseconds.to_be_bytes());
            prop_assert!(Metadata::parse(&bytes).is_err());
            bytes[20..24].fill(0);
            bytes[12..20].copy_from_slice(&seconds.to_be_bytes());
            prop_assert!(Metadata::parse(&bytes).is_err());
        }
    }
}
