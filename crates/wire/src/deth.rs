//! Datagram Extended Transport Header (IBTA volume 1, clause 9.3.2): Q_Key u32, reserved u8, source queue
//! pair u24.

use crate::{ParseError, bytes};

/// A Datagram Extended Transport Header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Deth {
    /// Queue key: the receiving queue pair drops packets whose key is not its own.
    pub q_key: u32,
    /// The sender's queue pair number, 24 bits.
    pub src_qp: u32,
}

impl Deth {
    /// Length of the header, in bytes.
    pub const LEN: usize = 8;

    /// Parses a header and returns it with the remaining bytes.
    ///
    /// # Errors
    /// If the packet is shorter than [`Self::LEN`].
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("DETH", packet);
        let q_key = fields.u32()?;
        let _reserved = fields.u8()?;
        let src_qp = fields.u24()?;
        Ok((Self { q_key, src_qp }, fields.rest()))
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        bytes::Header::new().u32(self.q_key).zeros(1).u24(self.src_qp).done()
    }
}
