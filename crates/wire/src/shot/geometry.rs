//! Geometry of a shot: its samples, its trailer, and how both are cut into packets.
//!
//! ```text
//! 0            sample_bytes   trailer_offset   shot_bytes        slot_bytes
//! | samples        | padding      | trailer        | zeros           |
//! | packet 0 | packet 1 | ...            | last     |
//! ```

use super::error::{GeometryError, MAX_SHOT_BYTES};
use super::{MAX_INDEXED_PACKETS, MAX_PACKETS, PACKET_BYTES, PAD_BYTES, RECORD_BYTES};
use crate::{block, hsb};
use core::fmt;
use core::str::FromStr;

/// Packing of the samples in a shot. The numbers are those of the end-of-shot record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Packing {
    /// 16-bit little-endian integers.
    Int16Le = 0,
    /// 12-bit two's complement, most significant bit first: two samples in three bytes.
    Packed12 = 1,
    /// Unsigned bytes: pixels, or samples in a sender's own format, stored as received.
    Uint8 = 2,
    /// 16-bit big-endian integers, as VITA 49 sends them.
    Int16Be = 3,
}

impl Packing {
    /// All packings, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Int16Le, Self::Packed12, Self::Uint8, Self::Int16Be];

    /// Returns the packing with this number, if it is defined.
    pub fn from_u8(value: u8) -> Option<Self> {
        Self::ALL.get(usize::from(value)).copied()
    }

    /// Returns the number of bits per sample on the wire.
    pub fn bits_per_sample(self) -> u32 {
        match self {
            Self::Int16Le | Self::Int16Be => 16,
            Self::Packed12 => 12,
            Self::Uint8 => 8,
        }
    }

    /// Returns the name used in files and settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int16Le => "int16_le",
            Self::Packed12 => "packed12_msb_first",
            Self::Uint8 => "uint8",
            Self::Int16Be => "int16_be",
        }
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Packing {
    type Err = UnknownPacking;

    fn from_str(name: &str) -> Result<Self, UnknownPacking> {
        Self::ALL.into_iter().find(|packing| packing.name() == name).ok_or(UnknownPacking)
    }
}

/// Error of parsing a name that no packing has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPacking;

impl fmt::Display for UnknownPacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a sample format of ")?;
        for (at, packing) in Packing::ALL.into_iter().enumerate() {
            write!(f, "{}{packing}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownPacking {}

/// Trailer of a shot: the bytes that follow its samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Trailer {
    /// Shotline's end-of-shot record ([`crate::record`]), with a CRC over everything before it.
    #[default]
    Record = 0,
    /// No trailer: a shot is complete when all its packets have arrived.
    None = 1,
    /// The end-of-frame metadata of a Holoscan Sensor Bridge ([`hsb::Metadata`]).
    HsbMetadata = 2,
    /// A digitizer's description of its block ([`block::Description`]), then the end-of-shot record, whose CRC covers
    /// both.
    Block = 3,
    /// A description of the block ([`block::Description`]) that the receiver creates from context packets. It is not
    /// sent.
    Context = 4,
}

impl Trailer {
    /// All trailers, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Record, Self::None, Self::HsbMetadata, Self::Block, Self::Context];

    /// Returns the length and the alignment of the trailer, in bytes.
    fn extent(self) -> (u32, u32) {
        match self {
            Self::Record => (RECORD_BYTES, PAD_BYTES),
            Self::None => (0, 1),
            Self::HsbMetadata => (hsb::Metadata::LEN as u32, hsb::PAGE_UNIT),
            Self::Block => (block::LEN as u32 + RECORD_BYTES, PAD_BYTES),
            Self::Context => (block::LEN as u32, PAD_BYTES),
        }
    }

    /// Returns `true` if the trailer ends in an end-of-shot record, whose CRC covers the shot.
    pub fn has_record(self) -> bool {
        matches!(self, Self::Record | Self::Block)
    }

    /// Returns `true` if the trailer begins with the description of a block ([`block::Description`]).
    pub fn has_description(self) -> bool {
        matches!(self, Self::Block | Self::Context)
    }

    /// Returns `true` if the trailer is sent; otherwise the receiver creates it.
    pub fn is_sent(self) -> bool {
        self != Self::Context
    }

    /// Returns the name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::None => "none",
            Self::HsbMetadata => "hsb_metadata",
            Self::Block => "block",
            Self::Context => "context",
        }
    }

    /// Returns the trailer with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|trailer| trailer.name() == name)
    }
}

/// How a shot is cut into packets: `first` payload bytes in packet 0, `rest` in each other one, and the remainder in
/// the last. Senders whose first packet carries more header than the others have `first` below `rest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packetization {
    /// Payload length of packet 0 in bytes.
    pub first: u32,
    /// Payload length of the other packets in bytes.
    pub rest: u32,
    /// `true` if the trailer, when sent, has a separate packet. The padding before it is then not sent.
    pub separate_trailer: bool,
}

impl Packetization {
    /// Returns a cut in which all packets but the last have `bytes` of payload.
    pub fn uniform(bytes: u32) -> Self {
        Self { first: bytes, rest: bytes, separate_trailer: false }
    }
}

impl Default for Packetization {
    fn default() -> Self {
        Self::uniform(PACKET_BYTES)
    }
}

/// Geometry of every shot of a stream. Constructors check that the shot fits a presence map and, if it is cut into
/// 4096-byte packets by [`Geometry::new`], the 12-bit packet index.
///
/// Sample order is time first: all channels of sample 0, then of sample 1, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    channels: u16,
    samples: u32,
    bits: u8,
    packing: Packing,
    sample_rate_hz: u32,
    trailer: Trailer,
    cut: Packetization,
}

impl Geometry {
    /// Creates the geometry of shots that end in an end-of-shot record and are cut into 4096-byte packets. `bits` is
    /// the resolution of a sample, `sample_rate_hz` may be 0 (unknown).
    ///
    /// # Errors
    /// If the parameters are not valid or the shot is too large.
    pub fn new(
        channels: u16,
        samples: u32,
        bits: u8,
        packing: Packing,
        sample_rate_hz: u32,
    ) -> Result<Self, GeometryError> {
        let geometry = Self::unbounded(channels, samples, bits, packing, sample_rate_hz)?;
        let bytes = geometry.total_bytes();
        let packets = bytes.div_ceil(u64::from(PACKET_BYTES));
        if packets > u64::from(MAX_INDEXED_PACKETS) {
            return Err(GeometryError::TooLarge { bytes, packets });
        }
        Ok(geometry)
    }

    /// Creates the geometry of shots that end in `trailer` and are cut by `cut`.
    ///
    /// # Errors
    /// If the parameters are not valid or the shot is too large.
    pub fn with_packetization(
        (channels, samples): (u16, u32),
        (bits, packing): (u8, Packing),
        sample_rate_hz: u32,
        trailer: Trailer,
        cut: Packetization,
    ) -> Result<Self, GeometryError> {
        Self::unbounded(channels, samples, bits, packing, sample_rate_hz)?.sent_as(trailer, cut)
    }

    /// Creates a geometry without checking its size.
    fn unbounded(
        channels: u16,
        samples: u32,
        bits: u8,
        packing: Packing,
        sample_rate_hz: u32,
    ) -> Result<Self, GeometryError> {
        if channels == 0 || samples == 0 {
            return Err(GeometryError::Empty { channels, samples });
        }
        if bits == 0 || u32::from(bits) > packing.bits_per_sample() {
            return Err(GeometryError::Bits { bits, holds: packing.bits_per_sample() });
        }
        if packing == Packing::Packed12 && u64::from(channels) * u64::from(samples) % 2 == 1 {
            return Err(GeometryError::OddSamples { channels, samples });
        }
        let (trailer, cut) = (Trailer::Record, Packetization::default());
        Ok(Self { channels, samples, bits, packing, sample_rate_hz, trailer, cut })
    }

    /// Returns the geometry of the same samples with another trailer and cut.
    ///
    /// # Errors
    /// If the cut is not valid or the shot is too large.
    pub fn sent_as(self, trailer: Trailer, cut: Packetization) -> Result<Self, GeometryError> {
        if let Some(bytes) = [cut.first, cut.rest].into_iter().find(|bytes| !(1..=u32::from(u16::MAX)).contains(bytes))
        {
            return Err(GeometryError::PacketBytes(bytes));
        }
        let cut = Packetization { separate_trailer: cut.separate_trailer && trailer.is_sent(), ..cut };
        let geometry = Self { trailer, cut, ..self };
        let bytes = geometry.total_bytes();
        if bytes > MAX_SHOT_BYTES {
            return Err(GeometryError::ShotTooLarge(bytes));
        }
        let packets = u64::from(geometry.packets());
        if packets > u64::from(MAX_PACKETS) {
            return Err(GeometryError::TooManyPackets { bytes, packet: cut.rest, packets });
        }
        Ok(geometry)
    }

    /// Returns the length of the shot in bytes, without an upper bound.
    fn total_bytes(&self) -> u64 {
        let samples =
            u64::from(self.channels) * u64::from(self.samples) * u64::from(self.packing.bits_per_sample()) / 8;
        let (trailer, unit) = self.trailer.extent();
        samples.next_multiple_of(u64::from(unit)) + u64::from(trailer)
    }

    /// Returns the number of channels.
    pub fn channels(&self) -> u16 {
        self.channels
    }
    /// Returns the number of samples per channel.
    pub fn samples(&self) -> u32 {
        self.samples
    }
    /// Returns the resolution of a sample in bits.
    pub fn bits(&self) -> u8 {
        self.bits
    }
    /// Returns the packing of the samples.
    pub fn packing(&self) -> Packing {
        self.packing
    }
    /// Returns the sample rate in Hz, 0 if unknown.
    pub fn sample_rate_hz(&self) -> u32 {
        self.sample_rate_hz
    }
    /// Returns the trailer.
    pub fn trailer(&self) -> Trailer {
        self.trailer
    }
    /// Returns how the shot is cut into packets.
    pub fn packetization(&self) -> Packetization {
        self.cut
    }
    /// Returns the length of the samples in bytes, without padding.
    pub fn sample_bytes(&self) -> u32 {
        // This cannot overflow: constructors refuse shots larger than MAX_SHOT_BYTES.
        (u64::from(self.channels) * u64::from(self.samples) * u64::from(self.packing.bits_per_sample()) / 8) as u32
    }
    /// Returns the offset of the trailer: the length of samples and padding, in bytes.
    pub fn trailer_offset(&self) -> u32 {
        self.sample_bytes().next_multiple_of(self.trailer.extent().1)
    }
    /// Returns the byte offset of the end-of-shot record, if the shot has one.
    pub fn record_offset(&self) -> Option<u32> {
        self.trailer.has_record().then(|| self.shot_bytes() - RECORD_BYTES)
    }
    /// Returns the length of the shot in bytes: samples, padding and trailer.
    pub fn shot_bytes(&self) -> u32 {
        self.trailer_offset() + self.trailer.extent().0
    }
    /// Returns the number of bytes that are sent: the whole shot, unless the receiver creates the trailer.
    pub fn sent_bytes(&self) -> u32 {
        if self.trailer.is_sent() { self.shot_bytes() } else { self.sample_bytes() }
    }
    /// Returns the number of packets of the shot.
    pub fn packets(&self) -> u32 {
        1 + self.body_bytes().saturating_sub(self.cut.first).div_ceil(self.cut.rest)
            + u32::from(self.cut.separate_trailer)
    }
    /// Returns the length in bytes of the slot that holds the shot in memory and in the file, a multiple of 4096.
    pub fn slot_bytes(&self) -> u32 {
        self.shot_bytes().next_multiple_of(PACKET_BYTES)
    }
    /// Returns the byte offset of packet `index`, which must be less than [`Self::packets`].
    pub fn packet_offset(&self, index: u32) -> u32 {
        let Packetization { first, rest, separate_trailer } = self.cut;
        match index {
            0 => 0,
            _ if separate_trailer && index + 1 == self.packets() => self.trailer_offset(),
            _ => first + (index - 1) * rest,
        }
    }
    /// Returns the payload length in bytes of packet `index`, which must be less than [`Self::packets`].
    pub fn packet_bytes(&self, index: u32) -> u32 {
        let Packetization { first, rest, separate_trailer } = self.cut;
        let (offset, body) = (self.packet_offset(index), self.body_bytes());
        match index {
            0 => first.min(body),
            _ if separate_trailer && offset >= body => self.trailer.extent().0,
            _ => rest.min(body - offset),
        }
    }
    /// Returns the index of the packet that begins at this byte offset, if one does.
    pub fn packet_at(&self, offset: u32) -> Option<u32> {
        let Packetization { first, rest, separate_trailer } = self.cut;
        if offset == 0 {
            return Some(0);
        }
        if separate_trailer && offset == self.trailer_offset() {
            return Some(self.packets() - 1);
        }
        let after_first = offset.checked_sub(first)?;
        (after_first % rest == 0 && offset < self.body_bytes()).then(|| 1 + after_first / rest)
    }
    /// Returns the number of bytes that are cut by `first` and `rest`: all but a trailer in a separate packet.
    fn body_bytes(&self) -> u32 {
        if self.cut.separate_trailer { self.sample_bytes() } else { self.sent_bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shot_of_2000_samples_has_the_documented_sizes() {
        let g = Geometry::new(96, 2000, 12, Packing::Packed12, 40_000_000).unwrap();
        assert_eq!((g.sample_bytes(), g.shot_bytes(), g.packets(), g.slot_bytes()), (288_000, 288_064, 71, 290_816));
        assert_eq!(g.packet_bytes(70), 1344);
    }

    #[test]
    fn a_shot_beyond_the_packet_index_is_refused() {
        let error = Geometry::new(1024, 20_000, 12, Packing::Packed12, 0).unwrap_err();
        assert!(matches!(error, GeometryError::TooLarge { .. }));
    }

    #[test]
    fn invalid_cuts_are_refused() {
        let g = Geometry::new(1, 1 << 20, 8, Packing::Uint8, 0).unwrap();
        let refused =
            |first, rest| g.sent_as(Trailer::None, Packetization { first, rest, separate_trailer: false }).unwrap_err();
        assert_eq!(refused(0, 1000), GeometryError::PacketBytes(0));
        assert_eq!(refused(1000, 1 << 16), GeometryError::PacketBytes(1 << 16));
        assert_eq!(refused(32, 32), GeometryError::TooManyPackets { bytes: 1 << 20, packet: 32, packets: 1 << 15 });
    }

    #[test]
    fn digitizer_block_of_16_mi_samples_has_the_expected_sizes() {
        let cut = Packetization::uniform(8192);
        let g = Geometry::with_packetization((2, 1 << 24), (16, Packing::Int16Le), 500_000_000, Trailer::Block, cut)
            .unwrap();
        assert_eq!((g.sample_bytes(), g.shot_bytes(), g.packets()), (64 << 20, (64 << 20) + 256, 8193));
        assert_eq!((g.trailer_offset(), g.record_offset()), (64 << 20, Some((64 << 20) + 192)));
        let huge =
            Geometry::with_packetization((2, u32::MAX), (16, Packing::Int16Le), 0, Trailer::Block, cut).unwrap_err();
        assert_eq!(huge, GeometryError::ShotTooLarge(4 * u64::from(u32::MAX).next_multiple_of(16) + 256));
    }

    #[test]
    fn sensor_bridge_frame_has_the_captured_sizes() {
        let frame = |bytes, separate| {
            let g = Geometry::new(1, bytes, 8, Packing::Uint8, 0).unwrap();
            g.sent_as(Trailer::HsbMetadata, Packetization { first: 1408, rest: 1408, separate_trailer: separate })
                .unwrap()
        };
        let embedded = frame(65_536, false);
        assert_eq!((embedded.packets(), embedded.packet_bytes(46), embedded.trailer_offset()), (47, 896, 65_536));
        let separate = frame(10_007, true);
        assert_eq!((separate.packets(), separate.packet_bytes(7), separate.packet_bytes(8)), (9, 151, 128));
        assert_eq!(
            (separate.packet_offset(8), separate.packet_at(10_112), separate.packet_at(10_007)),
            (10_112, Some(8), None)
        );
    }

    proptest! {
        #[test]
        fn packets_tile_the_shot_and_are_found_where_they_begin(
            samples in 1_u32..40_000, first in 1_u32..5000, rest in 100_u32..5000, kind in 0_usize..5, separate: bool,
        ) {
            let trailer = Trailer::ALL[kind];
            let cut = Packetization { first, rest, separate_trailer: separate && trailer != Trailer::None };
            let g = Geometry::new(1, samples, 8, Packing::Uint8, 0).unwrap().sent_as(trailer, cut).unwrap();
            let cut = g.packetization();
            let mut end = 0;
            for index in 0..g.packets() {
                let (offset, bytes) = (g.packet_offset(index), g.packet_bytes(index));
                let hole = cut.separate_trailer && index + 1 == g.packets();
                prop_assert_eq!(offset, if hole { g.trailer_offset() } else { end });
                prop_assert!(bytes > 0);
                prop_assert_eq!(g.packet_at(offset), Some(index));
                prop_assert!(bytes == 1 || g.packet_at(offset + bytes - 1).is_none_or(|other| other != index));
                end = offset + bytes;
            }
            prop_assert_eq!(end, if trailer.is_sent() { g.shot_bytes() } else { samples });
            prop_assert_eq!(g.packet_at(end), None);
            prop_assert!(g.slot_bytes() >= g.shot_bytes() && g.shot_bytes() >= end && g.slot_bytes().is_multiple_of(PACKET_BYTES));
        }
    }
}
