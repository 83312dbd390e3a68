//! What all headers have in common: the first four bytes, and the CRC in the last.

use crate::spacefibre::crc::crc8;
use crate::{ParseError, bytes};

/// Protocol identifier, of the range that ECSS-E-ST-50-51C leaves to projects.
pub const PROTOCOL: u8 = 0xF0;
/// Version that this crate writes and accepts.
pub const VERSION: u8 = 1;
/// Logical address of a node that has none of its own.
pub const DEFAULT_LOGICAL_ADDRESS: u8 = 0xFE;
/// Maximum number of data bytes in a packet.
pub const MAX_SEGMENT: u32 = 65_536;

/// Packet type of a command: bits 7:6 of the instruction.
pub(super) const COMMAND: u8 = 0b01;
/// Packet type of a reply.
pub(super) const REPLY: u8 = 0b00;

/// Returns the packet type as bits 3:0 of byte 3 repeat it.
///
/// The packet type determines which bytes the header CRC covers, so the CRC does not find every change of it.
const fn repeated(packet_type: u8) -> u8 {
    if packet_type == REPLY { 0xF } else { 0 }
}

/// Returns byte 3 of a header: version, and packet type again.
pub(super) const fn version_byte(packet_type: u8) -> u8 {
    VERSION << 4 | repeated(packet_type)
}

/// The first four bytes of every header, which determine its layout.
pub(super) struct Prefix {
    /// Bits 7:6 of the instruction.
    pub packet_type: u8,
    /// Bits 3:0 of byte 3.
    repeated_type: u8,
}

impl Prefix {
    /// Parses protocol identifier, packet type and version. They are not yet protected by the header CRC, whose position
    /// they determine.
    pub fn parse(packet: &[u8]) -> Result<Self, ParseError> {
        let mut fields = bytes::Fields::new("RDMA header", packet);
        let [_logical_address, protocol, instruction, version] = fields.array()?;
        expect("RDMA protocol identifier", PROTOCOL.into(), protocol.into())?;
        expect("RDMA version", VERSION.into(), (version >> 4).into())?;
        Ok(Self { packet_type: instruction >> 6, repeated_type: version & 0xF })
    }
}

/// Splits off a header of `N` bytes whose packet type and CRC are correct. Returns its fields and the bytes after it.
pub(super) fn intact<'a, const N: usize>(
    what: &'static str,
    packet_type: u8,
    packet: &'a [u8],
) -> Result<(bytes::Fields<'a>, &'a [u8]), ParseError> {
    let prefix = Prefix::parse(packet)?;
    expect("RDMA packet type", packet_type.into(), prefix.packet_type.into())?;
    expect("repeated RDMA packet type", repeated(packet_type).into(), prefix.repeated_type.into())?;
    let Some((header, rest)) = packet.split_first_chunk::<N>() else {
        return Err(ParseError::Truncated { what, needed: N, found: packet.len() });
    };
    if let Some((stored, covered)) = header.split_last() {
        expect("CRC of the RDMA header", crc8(covered).into(), (*stored).into())?;
    }
    Ok((bytes::Fields::new(what, header), rest))
}

/// Completes a header, all of which is written except the CRC in its last byte.
pub(super) fn seal<const N: usize>(header: bytes::Header<N>) -> [u8; N] {
    let mut bytes = header.u8(0).done();
    if let Some((crc, covered)) = bytes.split_last_mut() {
        *crc = crc8(covered);
    }
    bytes
}

/// Checks a field with one valid value.
pub(super) fn expect(what: &'static str, expected: u64, found: u64) -> Result<(), ParseError> {
    if found == expected { Ok(()) } else { Err(ParseError::Value { what, expected, found }) }
}

/// Checks a field with an inclusive range.
pub(super) fn expect_range(what: &'static str, min: u64, max: u64, found: u64) -> Result<(), ParseError> {
    if (min..=max).contains(&found) { Ok(()) } else { Err(ParseError::Range { what, min, max, found }) }
}
