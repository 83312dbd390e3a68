//! Plain UDP with Shotline's own header, for instruments without RoCE. Only the UDP checksum protects a packet; the
//! end-of-shot record still covers the shot.
//!
//! | byte | field | type |
//! |---|---|---|
//! | 0 | magic `SHPK` | 4 bytes |
//! | 4 | version, 1 | u8 |
//! | 5 | flags: bit 0 last packet of the shot | u8 |
//! | 6 | zeros | 2 bytes |
//! | 8 | stream | u32 |
//! | 12 | shot number | u64 |
//! | 20 | byte offset of the payload in the shot | u32 |
//! | 24 | payload bytes | u32 |
//! | 28 | bytes of the whole shot | u32 |

use super::description::{Completions, Description, Keys, Replay, SetUp};
use super::{Framing, Link, MAX_HEADER, NoExtras, Packet, Placement, Position};
use crate::shot::{Geometry, Trailer};
use crate::{ParseError, bytes};
use arrayvec::ArrayVec;

/// First four bytes of the header.
pub const MAGIC: [u8; 4] = *b"SHPK";
/// Version that this crate writes and accepts.
pub const VERSION: u8 = 1;
/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 32;

const LAST: u8 = 1 << 0;

/// A packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// `true` in the last packet of the shot.
    pub last: bool,
    /// Stream number.
    pub stream: u32,
    /// Shot number.
    pub shot: u64,
    /// Byte offset of the payload in the shot.
    pub offset: u32,
    /// Length of the payload in bytes.
    pub len: u32,
    /// Length of the whole shot in bytes.
    pub shot_bytes: u32,
}

impl Header {
    /// Parses a header and returns it with the remaining bytes. Unknown flags and reserved bytes are ignored.
    ///
    /// # Errors
    /// If the packet is shorter than [`HEADER_LEN`], or the magic or the version is unknown.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("shot packet header", packet);
        let magic = fields.array()?;
        if magic != MAGIC {
            let (expected, found) = (u32::from_be_bytes(MAGIC).into(), u32::from_be_bytes(magic).into());
            return Err(ParseError::Value { what: "shot packet's magic", expected, found });
        }
        let version = fields.u8()?;
        if version != VERSION {
            let (expected, found) = (VERSION.into(), version.into());
            return Err(ParseError::Value { what: "shot packet's version", expected, found });
        }
        let flags = fields.u8()?;
        let _reserved = fields.u16()?;
        let header = Self {
            last: flags & LAST != 0,
            stream: fields.u32()?,
            shot: fields.u64()?,
            offset: fields.u32()?,
            len: fields.u32()?,
            shot_bytes: fields.u32()?,
        };
        Ok((header, fields.rest()))
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        bytes::Header::new()
            .put(&MAGIC)
            .u8(VERSION)
            .u8(u8::from(self.last) * LAST)
            .zeros(2)
            .u32(self.stream)
            .u64(self.shot)
            .u32(self.offset)
            .u32(self.len)
            .u32(self.shot_bytes)
            .done()
    }
}

/// Registry entry of this framing.
pub const DESCRIPTION: Description = Description {
    name: "udp",
    set_up: SetUp::Optional { id: 2 },
    sealed: false,
    header_len: HEADER_LEN as u32,
    trailer: Trailer::Record,
    port: 47911,
    shares_address: true,
    keys: Keys::None,
    completions: Completions::Unsupported,
    replay: Replay::Complete,
    large_shots: false,
};

/// Plain UDP framing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Udp;

impl NoExtras for Udp {}

impl Framing for Udp {
    fn name(&self) -> &'static str {
        DESCRIPTION.name
    }

    fn has_icrc(&self) -> bool {
        DESCRIPTION.sealed
    }

    fn header_len(&self, _first: &[u8]) -> usize {
        HEADER_LEN
    }

    fn key(&self, header: &[u8]) -> Result<u32, ParseError> {
        Header::parse(header).map(|(header, _)| header.stream)
    }

    fn place(&self, header: &[u8], payload_len: u32, g: &Geometry) -> Result<Placement, ParseError> {
        let (header, _) = Header::parse(header)?;
        if header.shot_bytes != g.shot_bytes() {
            let (expected, found) = (g.shot_bytes().into(), header.shot_bytes.into());
            return Err(ParseError::Length { what: "the packet's shot", expected, found });
        }
        let packet = Packet::at(g, 0, header.shot, header.offset)?;
        packet.expect_len(header.len)?;
        packet.expect_len(payload_len)?;
        packet.expect_last(header.last)?;
        let Header { shot: number, offset, last, .. } = header;
        Ok(Placement { position: Position::Shot { number, bits: u64::BITS, offset, last }, len: payload_len })
    }

    fn emit(&self, link: &Link, p: &Packet, out: &mut ArrayVec<u8, MAX_HEADER>) {
        let header = Header {
            last: p.last,
            stream: link.stream,
            shot: p.shot,
            offset: p.offset,
            len: p.len,
            shot_bytes: p.shot_bytes,
        };
        bytes::append(out, &header.emit());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shot::Packing;
    use proptest::prelude::*;

    #[test]
    fn a_packet_that_contradicts_the_geometry_is_refused() {
        let g = Geometry::new(96, 2000, 12, Packing::Packed12, 0).unwrap();
        let good = Header { last: true, stream: 0, shot: 1, offset: 70 * 4096, len: 1344, shot_bytes: 288_064 };
        let place = |header: Header, len| Udp.place(&header.emit(), len, &g);
        assert!(place(good, 1344).is_ok());
        for bad in [
            Header { shot_bytes: 288_000, ..good },
            Header { offset: 70 * 4096 + 64, ..good },
            Header { offset: 71 * 4096, ..good },
            Header { offset: u32::MAX, ..good },
            Header { len: 4096, ..good },
            Header { last: false, ..good },
        ] {
            assert!(place(bad, 1344).is_err(), "{bad:?}");
        }
        assert!(place(good, 1343).is_err());
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(last: bool, stream: u32, shot: u64, offset: u32, len: u32, shot_bytes: u32) {
            let header = Header { last, stream, shot, offset, len, shot_bytes };
            let bytes = header.emit();
            prop_assert_eq!(Header::parse(&bytes), Ok((header, [].as_slice())));
        }
    }
}
