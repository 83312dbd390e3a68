//! Atomic operation headers (IBTA volume 1, clauses 9.3.4 and 9.5.3).

use crate::{ParseError, bytes};

/// An atomic request: address u64, remote key u32, swap or add u64, compare u64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AtomicEth {
    /// Virtual address in the responder's memory region, a multiple of 8.
    pub address: u64,
    /// Remote key (R_Key) that authorises the access.
    pub r_key: u32,
    /// New value for compare and swap; addend for fetch and add.
    pub swap_or_add: u64,
    /// Expected value for compare and swap; unused by fetch and add.
    pub compare: u64,
}

impl AtomicEth {
    /// Length of the header, in bytes.
    pub const LEN: usize = 28;

    /// Parses a header and returns it with the remaining bytes.
    ///
    /// # Errors
    /// If the packet is shorter than [`Self::LEN`].
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("AtomicETH", packet);
        let header =
            Self { address: fields.u64()?, r_key: fields.u32()?, swap_or_add: fields.u64()?, compare: fields.u64()? };
        Ok((header, fields.rest()))
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        bytes::Header::new().u64(self.address).u32(self.r_key).u64(self.swap_or_add).u64(self.compare).done()
    }
}

/// An atomic response: the original value u64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AtomicAckEth {
    /// Value in memory before the operation.
    pub original: u64,
}

impl AtomicAckEth {
    /// Length of the header, in bytes.
    pub const LEN: usize = 8;

    /// Parses a header and returns it with the remaining bytes.
    ///
    /// # Errors
    /// If the packet is shorter than [`Self::LEN`].
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("AtomicAckETH", packet);
        let header = Self { original: fields.u64()? };
        Ok((header, fields.rest()))
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        self.original.to_be_bytes()
    }
}
