//! Blocks of a digitizer over plain UDP. The header is one cache line. A sender can prepare it for each packet of a
//! block; only the block's number and timestamp change. Every packet describes its samples completely, so a recorder
//! can join at any time.
//!
//! | byte | field | type |
//! |---|---|---|
//! | 0 | magic `SHDG` | 4 bytes |
//! | 4 | version, 1 | u8 |
//! | 5 | flags: bit 0 last packet of the block, bit 1 clock locked, bit 2 triggered | u8 |
//! | 6 | channels: 2 for I and Q, 1 for real samples | u8 |
//! | 7 | resolution of a sample in bits, 1 to 16 | u8 |
//! | 8 | stream | u32 |
//! | 12 | bytes of the whole block, trailer included | u32 |
//! | 16 | block number | u64 |
//! | 24 | TAI of the block's first sample, ns | u64 |
//! | 32 | byte offset of the payload in the block | u32 |
//! | 36 | payload bytes | u32 |
//! | 40 | sample rate in Hz | f64 |
//! | 48 | centre frequency in Hz | f64 |
//! | 56 | volts per count | f64, 0 unknown |
//!
//! The header is big-endian. Samples are 16-bit little-endian, I before Q, and fill a multiple of 64 bytes. The block's
//! description ([`crate::block`]) and the end-of-shot record follow, 256 bytes together. All packets but the last have
//! payloads of equal length.

use super::description::{Completions, Description, Keys, Replay, SetUp};
use super::{Framing, Link, MAX_HEADER, NoExtras, Packet, Placement, Position};
use crate::shot::{Geometry, Trailer};
use crate::{ParseError, bytes};
use arrayvec::ArrayVec;

/// First four bytes of the header.
pub const MAGIC: [u8; 4] = *b"SHDG";
/// Version that this crate writes and accepts.
pub const VERSION: u8 = 1;
/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 64;

const LAST: u8 = 1 << 0;
const LOCKED: u8 = 1 << 1;
const TRIGGERED: u8 = 1 << 2;

/// A packet's header.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Header {
    /// `true` in the last packet of the block.
    pub last: bool,
    /// The source's clock was locked to its reference.
    pub locked: bool,
    /// A trigger started the block.
    pub triggered: bool,
    /// Number of channels: 2 for I and Q, 1 for real samples.
    pub channels: u8,
    /// Resolution of a sample in bits.
    pub bits: u8,
    /// Stream number.
    pub stream: u32,
    /// Length of the whole block in bytes: samples and trailer.
    pub block_bytes: u32,
    /// Block number.
    pub block: u64,
    /// Time of the block's first sample, in TAI nanoseconds.
    pub tai_ns: u64,
    /// Byte offset of the payload in the block.
    pub offset: u32,
    /// Length of the payload in bytes.
    pub len: u32,
    /// Sample rate in Hz.
    pub sample_rate_hz: f64,
    /// Centre frequency in Hz.
    pub centre_hz: f64,
    /// Volts per count, 0 if unknown.
    pub volts_per_count: f64,
}

impl Header {
    /// Parses a header and returns it with the remaining bytes. Unknown flags are ignored; numbers that are not finite
    /// are refused.
    ///
    /// # Errors
    /// If the packet is shorter than [`HEADER_LEN`], or a field is out of its range.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("digitizer header", packet);
        let magic = fields.array()?;
        if magic != MAGIC {
            let (expected, found) = (u32::from_be_bytes(MAGIC).into(), u32::from_be_bytes(magic).into());
            return Err(ParseError::Value { what: "digitizer packet's magic", expected, found });
        }
        let version = fields.u8()?;
        if version != VERSION {
            let (expected, found) = (VERSION.into(), version.into());
            return Err(ParseError::Value { what: "digitizer packet's version", expected, found });
        }
        let flags = fields.u8()?;
        let header = Self {
            last: flags & LAST != 0,
            locked: flags & LOCKED != 0,
            triggered: flags & TRIGGERED != 0,
            channels: range("digitizer packet's channels", fields.u8()?, 2)?,
            bits: range("digitizer packet's bits", fields.u8()?, 16)?,
            stream: fields.u32()?,
            block_bytes: fields.u32()?,
            block: fields.u64()?,
            tai_ns: fields.u64()?,
            offset: fields.u32()?,
            len: fields.u32()?,
            sample_rate_hz: finite("digitizer packet's sample rate", fields.u64()?)?,
            centre_hz: finite("digitizer packet's centre frequency", fields.u64()?)?,
            volts_per_count: finite("digitizer packet's scale", fields.u64()?)?,
        };
        Ok((header, fields.rest()))
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let flags = [(self.last, LAST), (self.locked, LOCKED), (self.triggered, TRIGGERED)];
        let flags = flags.into_iter().filter(|(set, _)| *set).fold(0, |flags, (_, flag)| flags | flag);
        bytes::Header::new()
            .put(&MAGIC)
            .u8(VERSION)
            .u8(flags)
            .u8(self.channels)
            .u8(self.bits)
            .u32(self.stream)
            .u32(self.block_bytes)
            .put(&self.stamped())
            .u32(self.offset)
            .u32(self.len)
            .u64(self.sample_rate_hz.to_bits())
            .u64(self.centre_hz.to_bits())
            .u64(self.volts_per_count.to_bits())
            .done()
    }

    /// Encodes the 16 bytes that change from block to block: block number and time, at offset [`STAMP_OFFSET`].
    pub fn stamped(&self) -> [u8; 16] {
        bytes::Header::new().u64(self.block).u64(self.tai_ns).done()
    }
}

/// Byte offset of [`Header::stamped`] in a header.
pub const STAMP_OFFSET: usize = 16;

fn range(what: &'static str, found: u8, max: u8) -> Result<u8, ParseError> {
    if (1..=max).contains(&found) {
        return Ok(found);
    }
    Err(ParseError::Range { what, min: 1, max: max.into(), found: found.into() })
}

fn finite(what: &'static str, bits: u64) -> Result<f64, ParseError> {
    let value = f64::from_bits(bits);
    if value.is_finite() { Ok(value) } else { Err(ParseError::NotFinite { what }) }
}

/// Registry entry of this framing.
pub const DESCRIPTION: Description = Description {
    name: "digitizer",
    set_up: SetUp::Learned,
    sealed: false,
    header_len: HEADER_LEN as u32,
    trailer: Trailer::Block,
    port: 47912,
    shares_address: true,
    keys: Keys::None,
    completions: Completions::Unsupported,
    replay: Replay::Complete,
    large_shots: true,
};

/// Framing of a digitizer's blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Digitizer;

impl NoExtras for Digitizer {}

impl Framing for Digitizer {
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
        if header.block_bytes != g.shot_bytes() {
            let (expected, found) = (g.shot_bytes().into(), header.block_bytes.into());
            return Err(ParseError::Length { what: "the packet's block", expected, found });
        }
        let packet = Packet::at(g, 0, header.block, header.offset)?;
        packet.expect_len(header.len)?;
        packet.expect_len(payload_len)?;
        packet.expect_last(header.last)?;
        let Header { block: number, offset, last, .. } = header;
        Ok(Placement { position: Position::Shot { number, bits: u64::BITS, offset, last }, len: payload_len })
    }

    /// Writes zeros for timestamp and frequencies, which are not part of a [`Packet`]; the block's trailer has them.
    fn emit(&self, link: &Link, p: &Packet, out: &mut ArrayVec<u8, MAX_HEADER>) {
        let header = Header {
            last: p.last,
            channels: 2,
            bits: 16,
            stream: link.stream,
            block_bytes: p.shot_bytes,
            block: p.shot,
            offset: p.offset,
            len: p.len,
            ..Header::default()
        };
        bytes::append(out, &header.emit());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shot::{Packetization, Packing, Trailer};
    use proptest::prelude::*;

    fn geometry() -> Geometry {
        let cut = Packetization::uniform(8192);
        Geometry::with_packetization((2, 5000), (16, Packing::Int16Le), 1000, Trailer::Block, cut).unwrap()
    }

    #[test]
    fn a_packet_that_contradicts_the_geometry_is_refused() {
        let g = geometry();
        assert_eq!((g.shot_bytes(), g.packets()), (20_032 + 256, 3));
        let good = Header {
            last: true,
            channels: 2,
            bits: 16,
            block_bytes: 20_288,
            block: 1,
            offset: 16_384,
            len: 3904,
            ..Header::default()
        };
        let place = |header: Header, len| Digitizer.place(&header.emit(), len, &g);
        assert!(place(good, 3904).is_ok());
        for bad in [
            Header { block_bytes: 20_284, ..good },
            Header { offset: 16_448, ..good },
            Header { offset: u32::MAX, ..good },
            Header { len: 8192, ..good },
            Header { last: false, ..good },
            Header { channels: 3, ..good },
            Header { channels: 0, ..good },
            Header { bits: 17, ..good },
            Header { sample_rate_hz: f64::NAN, ..good },
            Header { centre_hz: f64::INFINITY, ..good },
        ] {
            assert!(place(bad, 3904).is_err(), "{bad:?}");
        }
        assert!(place(good, 3903).is_err());
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(
            flags: [bool; 3], channels in 1_u8..3, bits in 1_u8..17, stream: u32, block_bytes: u32, block: u64,
            tai_ns: u64, offset: u32, len: u32, rates in [-1e15_f64..1e15, -1e15_f64..1e15, -1e15_f64..1e15],
        ) {
            let [last, locked, triggered] = flags;
            let [sample_rate_hz, centre_hz, volts_per_count] = rates;
            let header = Header {
                last, locked, triggered, channels, bits, stream, block_bytes, block, tai_ns, offset, len,
                sample_rate_hz, centre_hz, volts_per_count,
            };
            let bytes = header.emit();
            prop_assert_eq!(Header::parse(&bytes), Ok((header, [].as_slice())));
            prop_assert_eq!(&bytes[STAMP_OFFSET..STAMP_OFFSET + 16], &header.stamped());
        }

        #[test]
        fn place_of_any_bytes_is_inside_the_block(
            mut header in prop::collection::vec(any::<u8>(), 0..80), len in 0_u32..10_000, valid_prefix: bool,
        ) {
            let g = geometry();
            if valid_prefix {
                for (byte, value) in header.iter_mut().zip(*b"SHDG\x01\x00\x02\x10") { *byte = value; }
                for (byte, value) in header.iter_mut().skip(12).zip(20_288_u32.to_be_bytes()) { *byte = value; }
            }
            if let Ok(Placement { position: Position::Shot { offset, .. }, len }) = Digitizer.place(&header, len, &g) {
                prop_assert!(offset + len <= g.shot_bytes());
            }
        }
    }
}
