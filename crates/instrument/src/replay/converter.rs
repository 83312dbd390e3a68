//! Conversion of recorded shots: unchanged, or to the trailer of another framing.

use super::recording::ShotMetadata;
use shotline_wire::crc;
use shotline_wire::framing::Kind;
use shotline_wire::hsb::Metadata;
use shotline_wire::record::{self, Record};
use shotline_wire::shot::{Geometry, GeometryError, Packetization, Trailer};

/// Reason why shots cannot be sent in a framing.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ConversionError {
    /// The geometry is not valid for the framing.
    #[error("these shots cannot be sent as {framing}: {source}")]
    Shape {
        /// The framing.
        framing: Kind,
        /// Reason.
        source: GeometryError,
    },
    /// The framing carries blocks, and the shots are not blocks.
    #[error(
        "these shots cannot be sent as {framing}: this framing requires a recording of blocks, made with the same framing"
    )]
    NoBlocks {
        /// The framing.
        framing: Kind,
    },
}

/// Conversion of recorded shots to sent shots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShotConverter {
    from: Geometry,
    to: Geometry,
}

impl ShotConverter {
    /// Creates the conversion for a framing. Shots that already have its trailer are unchanged.
    ///
    /// # Errors
    /// If the framing cannot carry these shots.
    pub fn new(from: Geometry, framing: Kind) -> Result<Self, ConversionError> {
        let trailer = framing.description().trailer;
        if from.trailer() == trailer {
            return Ok(Self { from, to: from });
        }
        if trailer.has_description() {
            return Err(ConversionError::NoBlocks { framing });
        }
        Geometry::new(from.channels(), from.samples(), from.bits(), from.packing(), from.sample_rate_hz())
            .and_then(|to| to.sent_as(trailer, Packetization::default()))
            .map(|to| Self { from, to })
            .map_err(|source| ConversionError::Shape { framing, source })
    }

    /// Returns the geometry of the sent shots.
    pub fn geometry(&self) -> &Geometry {
        &self.to
    }

    /// Returns `true` if the bytes are unchanged.
    pub(super) fn is_same(&self) -> bool {
        self.from == self.to
    }

    /// Returns `true` if packet `index` of the sent shot exists: all of its samples are present in `meta`.
    pub(super) fn contains(&self, meta: &ShotMetadata<'_>, index: u32) -> bool {
        let is_present =
            |packet: u32| meta.presence.get(packet as usize / 8).is_some_and(|byte| byte >> (packet % 8) & 1 == 1);
        if self.is_same() {
            return is_present(index);
        }
        let samples = self.from.sample_bytes();
        let (first, bytes) = (self.to.packet_offset(index), self.to.packet_bytes(index));
        let covered = |packet: u32| {
            let (at, packet_bytes) = (self.from.packet_offset(packet), self.from.packet_bytes(packet));
            // The trailer after the samples is regenerated.
            at >= (first + bytes).min(samples) || at + packet_bytes <= first || is_present(packet)
        };
        (0..self.from.packets()).all(covered)
    }

    /// Writes a shot's bytes in the sent form to `out`, from those of its slot. A shot that was not verified gets a
    /// trailer that does not verify.
    pub(super) fn convert(
        &self,
        meta: &ShotMetadata<'_>,
        (number, stream): (u64, u32),
        slot: &[u8],
        out: &mut Vec<u8>,
    ) {
        out.clear();
        out.extend_from_slice(&slot[..self.from.sample_bytes() as usize]);
        out.resize(self.to.trailer_offset() as usize, 0);
        match self.to.trailer() {
            Trailer::Record => {
                let record = Record {
                    shot: number,
                    stream,
                    tai_ns: meta.stamp_tai_ns,
                    clock_locked: meta.flags & 1 != 0,
                    triggered: meta.flags & 2 != 0,
                    ..Record::of(&self.to)
                };
                let mut bytes = record.finish(crc::register(u32::MAX, out));
                if !meta.verified {
                    bytes = record.emit(!record::stored_crc(&bytes));
                }
                out.extend(bytes);
            }
            // Blocks are sent only by block framings, unchanged.
            Trailer::None | Trailer::Block | Trailer::Context => {}
            Trailer::HsbMetadata => out.extend(
                Metadata {
                    flags: u32::from(!meta.verified),
                    first_ns: meta.stamp_tai_ns,
                    valid_bytes: self.to.sample_bytes().into(),
                    frame: number as u16,
                    made_ns: meta.stamp_tai_ns,
                    ..Metadata::default()
                }
                .emit(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_wire::shot::Packing;

    fn heap(bytes: u32, first: u32, rest: u32) -> Geometry {
        let cut = Packetization { first, rest, separate_trailer: false };
        Geometry::with_packetization((1, bytes), (8, Packing::Uint8), 0, Trailer::None, cut).unwrap()
    }

    #[test]
    fn a_packet_is_sent_only_if_all_its_samples_are_present() {
        let converter = ShotConverter::new(heap(10_000, 900, 1000), Kind::Ud).unwrap();
        assert_eq!((converter.from.packets(), converter.to.packets()), (11, 3));
        for missing in 0..11 {
            let mut presence = [0xFF, 0xFF];
            presence[missing as usize / 8] &= !(1 << (missing % 8));
            let meta = ShotMetadata { presence: &presence, verified: false, stamp_tai_ns: 0, flags: 0 };
            let (at, bytes) = (converter.from.packet_offset(missing), converter.from.packet_bytes(missing));
            for index in 0..3 {
                let (first, end) = (index * 4096, (index * 4096 + 4096).min(10_000));
                assert_eq!(converter.contains(&meta, index), at >= end || at + bytes <= first, "{missing} {index}");
            }
        }
    }

    #[test]
    fn an_unverified_shot_gets_a_record_that_does_not_verify() {
        let converter = ShotConverter::new(heap(5000, 1000, 1000), Kind::Udp).unwrap();
        let slot: Vec<u8> = (0..8192).map(|at| at as u8).collect();
        let mut out = Vec::new();
        for verified in [true, false] {
            let meta = ShotMetadata { presence: &[0xFF], verified, stamp_tai_ns: 42, flags: 1 };
            converter.convert(&meta, (1 << 40, 6), &slot, &mut out);
            assert_eq!(record::is_whole(crc::register(u32::MAX, &out)), verified);
            let record = Record::parse(out.last_chunk().unwrap()).unwrap();
            assert_eq!((record.shot, record.stream, record.tai_ns, record.clock_locked), (1 << 40, 6, 42, true));
            assert_eq!(out[..5000], slot[..5000]);
            assert_eq!(out.len() as u32, converter.to.shot_bytes());
        }
    }

    #[test]
    fn a_shot_without_space_for_its_trailer_is_refused() {
        let message = ShotConverter::new(heap(16 << 20, 8192, 8192), Kind::Hsb).unwrap_err().to_string();
        assert!(message.contains("as hsb") && message.contains("allows 4096"), "{message}");
    }
}
