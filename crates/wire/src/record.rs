//! End-of-shot record: the last 64 bytes of a shot, with its parameters and a CRC over the whole shot.
//!
//! | byte | field | type |
//! |---|---|---|
//! | 0 | magic `SHOT` | 4 bytes |
//! | 4 | version, 1 | u8 |
//! | 5 | packing: 0 16-bit little-endian, 1 12-bit most significant bit first | u8 |
//! | 6 | resolution of a sample in bits | u8 |
//! | 7 | flags: bit 0 clock locked, bit 1 triggered | u8 |
//! | 8 | shot number | u64 |
//! | 16 | time of the first sample, TAI ns | u64 |
//! | 24 | stream | u32 |
//! | 28 | transmit event | u32 |
//! | 32 | sample bytes, without padding | u32 |
//! | 36 | samples per channel | u32 |
//! | 40 | channels | u16 |
//! | 42 | packets in the shot | u16 |
//! | 44 | sample rate in Hz, 0 unknown | u32 |
//! | 48 | zeros | 12 bytes |
//! | 60 | CRC-32 | u32, **little-endian** |
//!
//! The CRC-32 covers the samples, their padding to 64 bytes and the record's first 60 bytes. Because it is stored
//! little-endian, the register over a whole shot, record included, is [`crc::RESIDUE`], so a receiver can check a
//! shot without knowing where the record begins.
//!
//! A sender that has the [`crc::remainder`] of each packet's payload, or of a whole prepared shot, builds the
//! record without reading the samples again:
//!
//! ```
//! use shotline_wire::{crc, record::Record, shot::{Geometry, Packing}};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let geometry = Geometry::new(96, 2000, 12, Packing::Packed12, 40_000_000)?;
//! let samples = vec![0x5A; geometry.trailer_offset() as usize];
//! let known = crc::remainder(&samples); // can be computed in advance
//!
//! let record = Record { shot: 7, ..Record::of(&geometry) };
//! let bytes = record.finish_from_remainder(known, samples.len() as u64);
//!
//! let whole = crc::register(crc::register(u32::MAX, &samples), &bytes);
//! assert_eq!(whole, crc::RESIDUE);
//! assert_eq!(Record::parse(&bytes)?.geometry()?, geometry);
//! # Ok(()) }
//! ```

use crate::crc::{self, Advance};
use crate::shot::{Geometry, Packing, RECORD_BYTES};
use crate::{ParseError, bytes};

/// First four bytes of a record.
pub const MAGIC: [u8; 4] = *b"SHOT";
/// Version that this crate writes and accepts.
pub const VERSION: u8 = 1;
/// Length of a record, in bytes.
pub const LEN: usize = RECORD_BYTES as usize;

const CLOCK_LOCKED: u8 = 1 << 0;
const TRIGGERED: u8 = 1 << 1;

/// An end-of-shot record without its CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Packing of the samples.
    pub packing: Packing,
    /// Resolution of a sample in bits.
    pub bits: u8,
    /// The sender's clock was locked to its reference when the shot was taken.
    pub clock_locked: bool,
    /// A trigger started the shot; otherwise the sender's own timer did.
    pub triggered: bool,
    /// Shot number, counted from the start of the sender.
    pub shot: u64,
    /// Time of the first sample, in TAI nanoseconds since 1970-01-01.
    pub tai_ns: u64,
    /// Stream number.
    pub stream: u32,
    /// Transmit event: index of the transmission in the sequence that this shot was acquired for.
    pub event: u32,
    /// Length of the samples in bytes, without padding.
    pub sample_bytes: u32,
    /// Samples per channel.
    pub samples: u32,
    /// Number of channels.
    pub channels: u16,
    /// Number of packets in the shot.
    pub packets: u16,
    /// Sample rate in Hz, 0 if unknown.
    pub sample_rate_hz: u32,
}

impl Record {
    /// Returns the record of a shot of this geometry, with everything else zero or false.
    pub fn of(geometry: &Geometry) -> Self {
        Self {
            packing: geometry.packing(),
            bits: geometry.bits(),
            clock_locked: false,
            triggered: false,
            shot: 0,
            tai_ns: 0,
            stream: 0,
            event: 0,
            sample_bytes: geometry.sample_bytes(),
            samples: geometry.samples(),
            channels: geometry.channels(),
            packets: geometry.packets() as u16, // at most 16384
            sample_rate_hz: geometry.sample_rate_hz(),
        }
    }

    /// Parses a record. Its CRC is not verified, since it also covers the samples: see [`is_whole`]. Unknown
    /// flags and the reserved bytes are ignored.
    ///
    /// # Errors
    /// If the magic, the version or the packing is unknown.
    pub fn parse(record: &[u8; LEN]) -> Result<Self, ParseError> {
        let mut fields = bytes::Fields::new("end-of-shot record", record);
        let magic = fields.array()?;
        if magic != MAGIC {
            let (expected, found) = (u32::from_be_bytes(MAGIC).into(), u32::from_be_bytes(magic).into());
            return Err(ParseError::Value { what: "end-of-shot record's magic", expected, found });
        }
        let version = fields.u8()?;
        if version != VERSION {
            let (expected, found) = (VERSION.into(), version.into());
            return Err(ParseError::Value { what: "end-of-shot record's version", expected, found });
        }
        let packing = fields.u8()?;
        let packing = Packing::from_u8(packing)
            .ok_or(ParseError::Unknown { what: "end-of-shot record's packing", found: packing.into() })?;
        let bits = fields.u8()?;
        let flags = fields.u8()?;
        Ok(Self {
            packing,
            bits,
            clock_locked: flags & CLOCK_LOCKED != 0,
            triggered: flags & TRIGGERED != 0,
            shot: fields.u64()?,
            tai_ns: fields.u64()?,
            stream: fields.u32()?,
            event: fields.u32()?,
            sample_bytes: fields.u32()?,
            samples: fields.u32()?,
            channels: fields.u16()?,
            packets: fields.u16()?,
            sample_rate_hz: fields.u32()?,
        })
    }

    /// Returns the flags byte of the record.
    pub fn flags(&self) -> u8 {
        (u8::from(self.clock_locked) * CLOCK_LOCKED) | (u8::from(self.triggered) * TRIGGERED)
    }

    /// Encodes the record with the given CRC; [`Self::finish`] computes it.
    pub fn emit(&self, crc: u32) -> [u8; LEN] {
        bytes::Header::new()
            .put(&MAGIC)
            .u8(VERSION)
            .u8(self.packing as u8)
            .u8(self.bits)
            .u8(self.flags())
            .u64(self.shot)
            .u64(self.tai_ns)
            .u32(self.stream)
            .u32(self.event)
            .u32(self.sample_bytes)
            .u32(self.samples)
            .u16(self.channels)
            .u16(self.packets)
            .u32(self.sample_rate_hz)
            .zeros(12)
            .put(&crc.to_le_bytes())
            .done()
    }

    /// Encodes the record with its CRC, from the CRC register (initially [`u32::MAX`]) after samples and padding.
    pub fn finish(&self, register: u32) -> [u8; LEN] {
        let without_crc = self.emit(0);
        let covered = without_crc.split_last_chunk::<4>().map_or(without_crc.as_slice(), |(covered, _)| covered);
        self.emit(!crc::register(register, covered))
    }

    /// Encodes the record with its CRC, from the remainder and the length of samples and padding.
    pub fn finish_from_remainder(&self, remainder: u32, bytes: impl Advance) -> [u8; LEN] {
        self.finish(crc::append(u32::MAX, bytes, remainder))
    }

    /// Returns `true` if the record describes a shot of this geometry.
    pub fn describes(&self, geometry: &Geometry) -> bool {
        let Self { clock_locked, triggered, shot, tai_ns, stream, event, .. } = *self;
        *self == Self { clock_locked, triggered, shot, tai_ns, stream, event, ..Self::of(geometry) }
    }

    /// Returns the geometry of the shot, cut into 4096-byte packets.
    ///
    /// # Errors
    /// If the fields of the record are not those of a valid geometry, or contradict each other.
    pub fn geometry(&self) -> Result<Geometry, ParseError> {
        let geometry = Geometry::new(self.channels, self.samples, self.bits, self.packing, self.sample_rate_hz)?;
        let length = |what, expected: u32, found: u32| match expected == found {
            true => Ok(()),
            false => Err(ParseError::Length { what, expected: expected.into(), found: found.into() }),
        };
        length("the shot's samples according to its record", geometry.sample_bytes(), self.sample_bytes)?;
        if u32::from(self.packets) != geometry.packets() {
            let (expected, found) = (geometry.packets().into(), self.packets.into());
            return Err(ParseError::Value { what: "end-of-shot record's packet count", expected, found });
        }
        Ok(geometry)
    }
}

/// Returns the CRC-32 stored in a record.
pub fn stored_crc(record: &[u8; LEN]) -> u32 {
    record.last_chunk().map_or(0, |crc| u32::from_le_bytes(*crc))
}

/// Returns `true` if a shot is intact, from the CRC register (initially [`u32::MAX`]) over all its bytes: samples,
/// padding and record.
#[inline]
pub fn is_whole(register: u32) -> bool {
    register == crc::RESIDUE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn record()(
            (packed, clock_locked, triggered) in any::<(bool, bool, bool)>(), bits: u8, shot: u64, tai_ns: u64,
            (stream, event, sample_bytes, samples) in any::<(u32, u32, u32, u32)>(), channels: u16, packets: u16,
            sample_rate_hz: u32,
        ) -> Record {
            let packing = if packed { Packing::Packed12 } else { Packing::Int16Le };
            Record {
                packing, bits, clock_locked, triggered, shot, tai_ns, stream, event, sample_bytes, samples, channels,
                packets, sample_rate_hz,
            }
        }
    }

    #[test]
    fn record_with_inconsistent_counts_has_no_geometry() {
        let geometry = Geometry::new(96, 2000, 12, Packing::Packed12, 0).unwrap();
        let record = Record { packets: 72, ..Record::of(&geometry) };
        assert!(matches!(record.geometry(), Err(ParseError::Value { expected: 71, found: 72, .. })));
        let record = Record { sample_bytes: 1, ..Record::of(&geometry) };
        assert!(matches!(record.geometry(), Err(ParseError::Length { expected: 288_000, found: 1, .. })));
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(record in record(), crc: u32) {
            let bytes = record.emit(crc);
            prop_assert_eq!(Record::parse(&bytes), Ok(record));
            prop_assert_eq!(stored_crc(&bytes), crc);
        }

        #[test]
        fn finished_shot_is_whole_until_a_bit_flips(
            record in record(), samples in prop::collection::vec(any::<u8>(), 1..300), bit: prop::sample::Index,
        ) {
            let mut shot = samples;
            let record = record.finish(crc::register(u32::MAX, &shot));
            shot.extend(record);
            prop_assert!(is_whole(crc::register(u32::MAX, &shot)));
            let covered = shot.len() - 4;
            prop_assert_eq!(stored_crc(&record), crc::crc32(&shot[..covered]));
            let bit = bit.index(shot.len() * 8);
            shot[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!is_whole(crc::register(u32::MAX, &shot)));
        }

        #[test]
        fn finish_from_remainder_equals_finish(
            record in record(), samples in prop::collection::vec(any::<u8>(), 0..500), packet in 1_usize..64,
        ) {
            let remainder = samples.chunks(packet).fold(0, |sum, payload| {
                crc::append(sum, payload.len() as u64, crc::remainder(payload))
            });
            let bytes = record.finish_from_remainder(remainder, samples.len() as u64);
            prop_assert_eq!(bytes, record.finish(crc::register(u32::MAX, &samples)));
        }

        #[test]
        fn parse_does_not_panic(bytes in prop::array::uniform32(any::<[u8; 2]>()), geometry: bool) {
            let mut record = [0; LEN];
            record.iter_mut().zip(bytes.iter().flatten()).for_each(|(to, from)| *to = *from);
            if geometry { record[..6].copy_from_slice(b"SHOT\x01\x01"); }
            let _ = Record::parse(&record).map(|record| record.geometry());
        }
    }
}
