//! Headers of one 32-bit word: immediate data (IBTA volume 1, clause 9.3.6), key to invalidate (9.3.7) and
//! flush (annex A19).

use crate::{ParseError, bytes};

/// Immediate data: 32 bits that are delivered in the receiver's completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ImmDt(
    /// The value, in host byte order.
    pub u32,
);

/// The remote key that a SEND invalidates at its receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ieth(
    /// The remote key.
    pub u32,
);

/// Placement type and selection of a FLUSH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Feth {
    /// Placement type, bits 3:0: bit 0 global visibility, bit 1 persistence.
    pub placement: u8,
    /// Selection, bits 5:4: 0 the range of the RETH, 1 the whole memory region.
    pub selection: u8,
}

impl ImmDt {
    /// Length of the header, in bytes.
    pub const LEN: usize = 4;

    /// Parses a header and returns it with the remaining bytes.
    ///
    /// # Errors
    /// If the packet is shorter than [`Self::LEN`].
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("ImmDt", packet);
        Ok((Self(fields.u32()?), fields.rest()))
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        self.0.to_be_bytes()
    }
}

impl Ieth {
    /// Length of the header, in bytes.
    pub const LEN: usize = 4;

    /// Parses a header and returns it with the remaining bytes.
    ///
    /// # Errors
    /// If the packet is shorter than [`Self::LEN`].
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("IETH", packet);
        Ok((Self(fields.u32()?), fields.rest()))
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        self.0.to_be_bytes()
    }
}

impl Feth {
    /// Length of the header, in bytes.
    pub const LEN: usize = 4;

    /// Parses a header and returns it with the remaining bytes. Reserved bits are ignored.
    ///
    /// # Errors
    /// If the packet is shorter than [`Self::LEN`].
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("FETH", packet);
        let word = fields.u32()?;
        Ok((Self { placement: word as u8 & 0xF, selection: (word >> 4) as u8 & 3 }, fields.rest()))
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        (u32::from(self.selection & 3) << 4 | u32::from(self.placement & 0xF)).to_be_bytes()
    }
}
