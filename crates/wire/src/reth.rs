//! RDMA Extended Transport Header (IBTA volume 1, clause 9.3.3): address u64, remote key u32, length u32.

use crate::{ParseError, bytes};

/// An RDMA header: where in the responder's memory a WRITE or READ goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reth {
    /// Virtual address in the responder's terms.
    pub address: u64,
    /// The key that gives the requester its right to that memory.
    pub r_key: u32,
    /// Bytes of the whole message, at most 2^31.
    pub length: u32,
}

impl Reth {
    /// Bytes of the header.
    pub const LEN: usize = 16;

    /// Reads a header and returns it and what follows. The length is the peer's word: whether it fits key
    /// and packet is for the responder to check.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::of("RETH", packet);
        let header = Self { address: fields.u64()?, r_key: fields.u32()?, length: fields.u32()? };
        Ok((header, fields.rest()))
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        bytes::Header::new().u64(self.address).u32(self.r_key).u32(self.length).done()
    }
}
