//! What follows a header: data and their CRC-32, and the operands of atomic operations.

use super::head::expect;
use crate::{ParseError, bytes, crc};

/// Length of the CRC that follows data, in bytes.
pub const DATA_CRC_LEN: usize = 4;

/// Data of a packet. The lengths are correct; [`Self::verify`] checks the CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// The data.
    pub bytes: &'a [u8],
    /// CRC-32 that the packet states; 0, the CRC of no bytes, in a packet without data. A receiver that computes the
    /// CRC while it copies the data compares it with this one.
    pub crc: u32,
}

impl<'a> Data<'a> {
    /// Splits the bytes after a header. `data_len` is the data length that the header states.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if bytes are missing: the packet was cut on its way and ended by an EEP, or its sender
    /// ended it early. [`ParseError::Length`] if there are too many.
    pub(super) fn split(rest: &'a [u8], data_len: u32) -> Result<Self, ParseError> {
        let needed = len_with_crc(data_len);
        if rest.len() < needed {
            return Err(ParseError::Truncated { what: "RDMA data with its CRC", needed, found: rest.len() });
        }
        if rest.len() > needed {
            let (expected, found) = (needed as u64, rest.len() as u64);
            return Err(ParseError::Length { what: "RDMA data with its CRC", expected, found });
        }
        Ok(match rest.split_last_chunk() {
            Some((bytes, crc)) => Self { bytes, crc: u32::from_le_bytes(*crc) },
            None => Self { bytes: &[], crc: 0 },
        })
    }

    /// Checks the CRC and returns the data.
    ///
    /// # Errors
    /// If the CRC does not match.
    pub fn verify(self) -> Result<&'a [u8], ParseError> {
        expect("CRC of the RDMA data", crc::crc32(self.bytes).into(), self.crc.into())?;
        Ok(self.bytes)
    }
}

/// Returns the number of bytes that follow the header of a packet with `data_len` bytes of data.
pub(super) fn len_with_crc(data_len: u32) -> usize {
    match data_len as usize {
        0 => 0,
        len => len + DATA_CRC_LEN,
    }
}

/// Data of a compare and swap command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CompareSwap {
    /// Expected value.
    pub compare: u64,
    /// New value, written if memory has the expected one.
    pub swap: u64,
}

impl CompareSwap {
    /// Length of the data, in bytes.
    pub const LEN: usize = 16;

    /// Parses the operands and returns them with the remaining bytes.
    ///
    /// # Errors
    /// If there are fewer than [`Self::LEN`] bytes.
    pub fn parse(data: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("operands of an RDMA compare and swap", data);
        let operands = Self { compare: fields.u64()?, swap: fields.u64()? };
        Ok((operands, fields.rest()))
    }

    /// Encodes the operands.
    pub fn emit(&self) -> [u8; Self::LEN] {
        bytes::Header::new().u64(self.compare).u64(self.swap).done()
    }
}

/// Data of a fetch and add command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FetchAdd {
    /// Addend, modulo 2^64.
    pub add: u64,
}

impl FetchAdd {
    /// Length of the data, in bytes.
    pub const LEN: usize = 8;

    /// Parses the operand and returns it with the remaining bytes.
    ///
    /// # Errors
    /// If there are fewer than [`Self::LEN`] bytes.
    pub fn parse(data: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("operand of an RDMA fetch and add", data);
        let operand = Self { add: fields.u64()? };
        Ok((operand, fields.rest()))
    }

    /// Encodes the operand.
    pub fn emit(&self) -> [u8; Self::LEN] {
        self.add.to_be_bytes()
    }
}
