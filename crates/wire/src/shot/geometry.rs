//! The shape of a shot: its samples, what closes them, and how the whole is cut into packets.
//!
//! ```text
//! 0            sample_bytes   trailer_offset   shot_bytes        slot_bytes
//! | samples        | padding      | trailer        | zeros           |
//! | packet 0 | packet 1 | ...            | last     |
//! ```

use super::error::{GeometryError, MAX_SHOT_BYTES};
use super::{MAX_INDEXED, MAX_PACKETS, PACKET_BYTES, PAD_BYTES, RECORD_BYTES};
use crate::{block, hsb};
use core::fmt;
use core::str::FromStr;

/// How samples lie in a shot's bytes. The numbers are those of the end-of-shot record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Packing {
    /// 16-bit little-endian integers.
    Int16Le = 0,
    /// 12-bit two's complement, most significant bit first: two samples in three bytes.
    Packed12 = 1,
    /// Unsigned bytes: pixels, or samples in a format of their sender's, kept as they came.
    Uint8 = 2,
    /// 16-bit big-endian integers, as VITA 49 sends them.
    Int16Be = 3,
}

impl Packing {
    /// Every packing, in the order of its number.
    pub const ALL: [Self; 4] = [Self::Int16Le, Self::Packed12, Self::Uint8, Self::Int16Be];

    /// The packing with this number, if there is one.
    pub fn from_u8(value: u8) -> Option<Self> {
        Self::ALL.get(usize::from(value)).copied()
    }

    /// Bits that one sample takes on the wire.
    pub fn bits_per_sample(self) -> u32 {
        match self {
            Self::Int16Le | Self::Int16Be => 16,
            Self::Packed12 => 12,
            Self::Uint8 => 8,
        }
    }

    /// The name used in files and settings.
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

/// No packing has that name.
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

/// What stands behind a shot's samples and closes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Trailer {
    /// Our end-of-shot record ([`crate::record`]), with a CRC over everything before it.
    #[default]
    Record = 0,
    /// Nothing: a shot is whole when all its packets are there.
    None = 1,
    /// The end-of-frame metadata of a Holoscan Sensor Bridge ([`hsb::Metadata`]).
    HsbMetadata = 2,
    /// What a digitizer found out about its block ([`block::Description`]), then our end-of-shot record, whose CRC
    /// covers both.
    Block = 3,
    /// What packets of context said of a block ([`block::Description`]): the receiver puts it there, and nothing of it
    /// is sent.
    Context = 4,
}

impl Trailer {
    /// Every trailer, in the order of its number.
    pub const ALL: [Self; 5] = [Self::Record, Self::None, Self::HsbMetadata, Self::Block, Self::Context];

    /// Its bytes, and the multiple at which it begins.
    fn extent(self) -> (u32, u32) {
        match self {
            Self::Record => (RECORD_BYTES, PAD_BYTES),
            Self::None => (0, 1),
            Self::HsbMetadata => (hsb::Metadata::LEN as u32, hsb::PAGE_UNIT),
            Self::Block => (block::LEN as u32 + RECORD_BYTES, PAD_BYTES),
            Self::Context => (block::LEN as u32, PAD_BYTES),
        }
    }

    /// Whether our end-of-shot record closes it, and its CRC proves the shot.
    pub fn has_record(self) -> bool {
        matches!(self, Self::Record | Self::Block)
    }

    /// Whether it begins with the description of a block ([`block::Description`]).
    pub fn has_description(self) -> bool {
        matches!(self, Self::Block | Self::Context)
    }

    /// Whether it travels; else the receiver makes it.
    pub fn is_sent(self) -> bool {
        self != Self::Context
    }

    /// The name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::None => "none",
            Self::HsbMetadata => "hsb_metadata",
            Self::Block => "block",
            Self::Context => "context",
        }
    }

    /// The trailer with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|trailer| trailer.name() == name)
    }
}

/// How a shot is cut into packets: `first` payload bytes in packet 0, then `rest` in each, the last one what is
/// left. Senders whose first packet carries more header than the others have `first` below `rest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cut {
    /// Payload bytes of packet 0.
    pub first: u32,
    /// Payload bytes of the packets behind it.
    pub rest: u32,
    /// The trailer travels in a packet of its own, if it does travel; padding before it is not sent.
    pub trailer_apart: bool,
}

impl Cut {
    /// All packets but the last have `bytes` of payload.
    pub fn uniform(bytes: u32) -> Self {
        Self { first: bytes, rest: bytes, trailer_apart: false }
    }
}

impl Default for Cut {
    fn default() -> Self {
        Self::uniform(PACKET_BYTES)
    }
}

/// The shape of every shot of a stream. It exists only if such a shot fits a presence map, and, as we cut it, the
/// wire's 12-bit index.
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
    cut: Cut,
}

impl Geometry {
    /// Checks and makes the geometry of shots that end in our record and are cut into 4096-byte packets. `bits` is
    /// the resolution of a sample, `sample_rate_hz` may be 0 (unknown).
    pub fn new(
        channels: u16,
        samples: u32,
        bits: u8,
        packing: Packing,
        sample_rate_hz: u32,
    ) -> Result<Self, GeometryError> {
        let own = Self::unbounded(channels, samples, bits, packing, sample_rate_hz)?;
        let bytes = own.total_bytes();
        let packets = bytes.div_ceil(u64::from(PACKET_BYTES));
        if packets > u64::from(MAX_INDEXED) {
            return Err(GeometryError::TooLarge { bytes, packets });
        }
        Ok(own)
    }

    /// The same of shots that end in `trailer` and are cut by `cut`.
    pub fn cut_as(
        (channels, samples): (u16, u32),
        (bits, packing): (u8, Packing),
        sample_rate_hz: u32,
        trailer: Trailer,
        cut: Cut,
    ) -> Result<Self, GeometryError> {
        Self::unbounded(channels, samples, bits, packing, sample_rate_hz)?.sent_as(trailer, cut)
    }

    /// Everything checked but how large it is.
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
        let (trailer, cut) = (Trailer::Record, Cut::default());
        Ok(Self { channels, samples, bits, packing, sample_rate_hz, trailer, cut })
    }

    /// The same samples as another sender sends them.
    pub fn sent_as(self, trailer: Trailer, cut: Cut) -> Result<Self, GeometryError> {
        if let Some(bytes) = [cut.first, cut.rest].into_iter().find(|bytes| !(1..=u32::from(u16::MAX)).contains(bytes))
        {
            return Err(GeometryError::EmptyPacket(bytes));
        }
        let cut = Cut { trailer_apart: cut.trailer_apart && trailer.is_sent(), ..cut };
        let own = Self { trailer, cut, ..self };
        let bytes = own.total_bytes();
        if bytes > MAX_SHOT_BYTES {
            return Err(GeometryError::Huge(bytes));
        }
        let packets = u64::from(own.packets());
        if packets > u64::from(MAX_PACKETS) {
            return Err(GeometryError::TooFine { bytes, packet: cut.rest, packets });
        }
        Ok(own)
    }

    /// Bytes on the wire, however many.
    fn total_bytes(&self) -> u64 {
        let samples =
            u64::from(self.channels) * u64::from(self.samples) * u64::from(self.packing.bits_per_sample()) / 8;
        let (trailer, unit) = self.trailer.extent();
        samples.next_multiple_of(u64::from(unit)) + u64::from(trailer)
    }

    /// Channels per sample instant.
    pub fn channels(&self) -> u16 {
        self.channels
    }
    /// Samples per channel (the papers' N_s).
    pub fn samples(&self) -> u32 {
        self.samples
    }
    /// Resolution of a sample in bits.
    pub fn bits(&self) -> u8 {
        self.bits
    }
    /// How samples lie in bytes.
    pub fn packing(&self) -> Packing {
        self.packing
    }
    /// Sample rate in Hz, 0 if unknown.
    pub fn sample_rate_hz(&self) -> u32 {
        self.sample_rate_hz
    }
    /// What closes a shot.
    pub fn trailer(&self) -> Trailer {
        self.trailer
    }
    /// How it is cut into packets.
    pub fn cut(&self) -> Cut {
        self.cut
    }
    /// Bytes of samples alone.
    pub fn sample_bytes(&self) -> u32 {
        // Cannot overflow: no geometry comes to be whose shot is larger than MAX_SHOT_BYTES.
        (u64::from(self.channels) * u64::from(self.samples) * u64::from(self.packing.bits_per_sample()) / 8) as u32
    }
    /// Samples and the padding behind them: the offset of the trailer.
    pub fn trailer_offset(&self) -> u32 {
        self.sample_bytes().next_multiple_of(self.trailer.extent().1)
    }
    /// The offset of our end-of-shot record, if that closes the shot.
    pub fn record_offset(&self) -> Option<u32> {
        self.trailer.has_record().then(|| self.shot_bytes() - RECORD_BYTES)
    }
    /// Bytes of the shot: samples, padding and trailer.
    pub fn shot_bytes(&self) -> u32 {
        self.trailer_offset() + self.trailer.extent().0
    }
    /// Bytes of the shot that travel: all of it, unless the receiver makes the trailer.
    pub fn sent_bytes(&self) -> u32 {
        if self.trailer.is_sent() { self.shot_bytes() } else { self.sample_bytes() }
    }
    /// Packets of the shot.
    pub fn packets(&self) -> u32 {
        1 + self.body_bytes().saturating_sub(self.cut.first).div_ceil(self.cut.rest) + u32::from(self.cut.trailer_apart)
    }
    /// Bytes of the slot that holds the shot in memory and in the file, a multiple of 4096.
    pub fn slot_bytes(&self) -> u32 {
        self.shot_bytes().next_multiple_of(PACKET_BYTES)
    }
    /// Where packet `index` begins, which must be below [`Self::packets`].
    pub fn packet_offset(&self, index: u32) -> u32 {
        let Cut { first, rest, trailer_apart } = self.cut;
        match index {
            0 => 0,
            _ if trailer_apart && index + 1 == self.packets() => self.trailer_offset(),
            _ => first + (index - 1) * rest,
        }
    }
    /// Payload bytes of packet `index`, which must be below [`Self::packets`].
    pub fn packet_bytes(&self, index: u32) -> u32 {
        let Cut { first, rest, trailer_apart } = self.cut;
        let (offset, body) = (self.packet_offset(index), self.body_bytes());
        match index {
            0 => first.min(body),
            _ if trailer_apart && offset >= body => self.trailer.extent().0,
            _ => rest.min(body - offset),
        }
    }
    /// The packet that begins at this offset, if one does.
    pub fn packet_at(&self, offset: u32) -> Option<u32> {
        let Cut { first, rest, trailer_apart } = self.cut;
        if offset == 0 {
            return Some(0);
        }
        if trailer_apart && offset == self.trailer_offset() {
            return Some(self.packets() - 1);
        }
        let behind = offset.checked_sub(first)?;
        (behind % rest == 0 && offset < self.body_bytes()).then(|| 1 + behind / rest)
    }
    /// Bytes that are cut by the rule: all but a trailer in a packet of its own.
    fn body_bytes(&self) -> u32 {
        if self.cut.trailer_apart { self.sample_bytes() } else { self.sent_bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_2000_sample_shot_has_the_sizes_of_the_design() {
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
    fn a_cut_that_cannot_be_is_refused() {
        let g = Geometry::new(1, 1 << 20, 8, Packing::Uint8, 0).unwrap();
        let refused = |first, rest| g.sent_as(Trailer::None, Cut { first, rest, trailer_apart: false }).unwrap_err();
        assert_eq!(refused(0, 1000), GeometryError::EmptyPacket(0));
        assert_eq!(refused(1000, 1 << 16), GeometryError::EmptyPacket(1 << 16));
        assert_eq!(refused(32, 32), GeometryError::TooFine { bytes: 1 << 20, packet: 32, packets: 1 << 15 });
    }

    #[test]
    fn a_block_of_a_digitizer_is_16_mi_samples_of_i_and_q_in_jumbo_frames() {
        let cut = Cut::uniform(8192);
        let g = Geometry::cut_as((2, 1 << 24), (16, Packing::Int16Le), 500_000_000, Trailer::Block, cut).unwrap();
        assert_eq!((g.sample_bytes(), g.shot_bytes(), g.packets()), (64 << 20, (64 << 20) + 256, 8193));
        assert_eq!((g.trailer_offset(), g.record_offset()), (64 << 20, Some((64 << 20) + 192)));
        let huge = Geometry::cut_as((2, u32::MAX), (16, Packing::Int16Le), 0, Trailer::Block, cut).unwrap_err();
        assert_eq!(huge, GeometryError::Huge(4 * u64::from(u32::MAX).next_multiple_of(16) + 256));
    }

    #[test]
    fn a_sensor_bridge_frame_has_the_sizes_that_were_captured() {
        let frame = |bytes, trailer_apart| {
            let g = Geometry::new(1, bytes, 8, Packing::Uint8, 0).unwrap();
            g.sent_as(Trailer::HsbMetadata, Cut { first: 1408, rest: 1408, trailer_apart }).unwrap()
        };
        let embedded = frame(65_536, false);
        assert_eq!((embedded.packets(), embedded.packet_bytes(46), embedded.trailer_offset()), (47, 896, 65_536));
        let apart = frame(10_007, true);
        assert_eq!((apart.packets(), apart.packet_bytes(7), apart.packet_bytes(8)), (9, 151, 128));
        assert_eq!((apart.packet_offset(8), apart.packet_at(10_112), apart.packet_at(10_007)), (10_112, Some(8), None));
    }

    proptest! {
        #[test]
        fn packets_tile_the_shot_and_are_found_where_they_begin(
            samples in 1_u32..40_000, first in 1_u32..5000, rest in 100_u32..5000, kind in 0_usize..5, apart: bool,
        ) {
            let trailer = Trailer::ALL[kind];
            let cut = Cut { first, rest, trailer_apart: apart && trailer != Trailer::None };
            let g = Geometry::new(1, samples, 8, Packing::Uint8, 0).unwrap().sent_as(trailer, cut).unwrap();
            let cut = g.cut();
            let mut end = 0;
            for index in 0..g.packets() {
                let (offset, bytes) = (g.packet_offset(index), g.packet_bytes(index));
                let hole = cut.trailer_apart && index + 1 == g.packets();
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
