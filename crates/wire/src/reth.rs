//! RDMA Extended Transport Header (IBTA volume 1, clause 9.3.3): address u64, remote key u32, length u32.

use crate::{ParseError, bytes};

/// An RDMA Extended Transport Header: the responder's memory that a WRITE or READ accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reth {
    /// Virtual address in the responder's memory region.
    pub address: u64,
    /// Remote key (R_Key) that authorises the access.
    pub r_key: u32,
    /// Length of the whole message in bytes, at most 2^31.
    pub length: u32,
}

impl Reth {
    /// Length of the header, in bytes.
    pub const LEN: usize = 16;

    /// Parses a header and returns it with the remaining bytes. The length is untrusted: the responder must check it
    /// against the memory region and the packet.
    ///
    /// # Errors
    /// If the packet is shorter than [`Self::LEN`].
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("RETH", packet);
        let header = Self { address: fields.u64()?, r_key: fields.u32()?, length: fields.u32()? };
        Ok((header, fields.rest()))
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        bytes::Header::new().u64(self.address).u32(self.r_key).u32(self.length).done()
    }
}
