//! Atomic operations (IBTA volume 1, clauses 9.3.4 and 9.5.3).

use crate::{ParseError, bytes};

/// The request: address u64, remote key u32, swap or add u64, compare u64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AtomicEth {
    /// Virtual address in the responder's terms, a multiple of 8.
    pub address: u64,
    /// The key that gives the requester its right to that memory.
    pub r_key: u32,
    /// New value of a compare and swap, addend of a fetch and add.
    pub swap_or_add: u64,
    /// Value that a compare and swap must find; not used by a fetch and add.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes of the header.
    pub const LEN: usize = 28;

    /// Reads a header and returns it and what follows.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::of("AtomicETH", packet);
        let header =
            Self { address: fields.u64()?, r_key: fields.u32()?, swap_or_add: fields.u64()?, compare: fields.u64()? };
        Ok((header, fields.rest()))
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        bytes::Header::new().u64(self.address).u32(self.r_key).u64(self.swap_or_add).u64(self.compare).done()
    }
}

/// The answer: the value that was there before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AtomicAckEth {
    /// The eight bytes before the operation.
    pub original: u64,
}

impl AtomicAckEth {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// Reads a header and returns it and what follows.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::of("AtomicAckETH", packet);
        let header = Self { original: fields.u64()? };
        Ok((header, fields.rest()))
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        self.original.to_be_bytes()
    }
}
