//! A recorded shot in the form in which it is sent: as it came, or as another kind of sender would have sent it.

use super::tape::Kept;
use shotline_wire::crc;
use shotline_wire::framing::Kind;
use shotline_wire::hsb::Metadata;
use shotline_wire::record::{self, Record};
use shotline_wire::shot::{Cut, Geometry, GeometryError, Trailer};

/// Why shots cannot be sent in a form.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum FormError {
    /// Their shape is in the way.
    #[error("these shots cannot be sent as {framing}: {source}")]
    Shape {
        /// The framing.
        framing: Kind,
        /// What is in the way.
        source: GeometryError,
    },
    /// They are not the blocks of such a sender.
    #[error("these shots cannot be sent as {framing}: only recordings of that framing have its blocks")]
    NoBlocks {
        /// The framing.
        framing: Kind,
    },
}

/// How recorded shots are made into those that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    from: Geometry,
    to: Geometry,
}

impl Form {
    /// For a framing: shots stay as they came if they came in its form.
    pub fn new(from: Geometry, framing: Kind) -> Result<Self, FormError> {
        let trailer = framing.description().trailer;
        if from.trailer() == trailer {
            return Ok(Self { from, to: from });
        }
        if trailer.has_description() {
            return Err(FormError::NoBlocks { framing });
        }
        Geometry::new(from.channels(), from.samples(), from.bits(), from.packing(), from.sample_rate_hz())
            .and_then(|to| to.sent_as(trailer, Cut::default()))
            .map(|to| Self { from, to })
            .map_err(|source| FormError::Shape { framing, source })
    }

    /// The shape of the shots that are sent.
    pub fn geometry(&self) -> &Geometry {
        &self.to
    }

    /// Whether the bytes stay as they are.
    pub(super) fn is_same(&self) -> bool {
        self.from == self.to
    }

    /// Whether a shot that has the packets of `kept` has packet `index` of its new form: all of its samples are there.
    pub(super) fn contains(&self, kept: &Kept<'_>, index: u32) -> bool {
        let there =
            |packet: u32| kept.presence.get(packet as usize / 8).is_some_and(|byte| byte >> (packet % 8) & 1 == 1);
        if self.is_same() {
            return there(index);
        }
        let samples = self.from.sample_bytes();
        let (first, bytes) = (self.to.packet_offset(index), self.to.packet_bytes(index));
        let covered = |packet: u32| {
            let (at, bytes_there) = (self.from.packet_offset(packet), self.from.packet_bytes(packet));
            // What stands behind the samples is made anew.
            at >= (first + bytes).min(samples) || at + bytes_there <= first || there(packet)
        };
        (0..self.from.packets()).all(covered)
    }

    /// A shot's bytes in the new form, from those of its slot. What was not proven before is not proven now.
    pub(super) fn convert(&self, kept: &Kept<'_>, (number, stream): (u64, u32), slot: &[u8], out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&slot[..self.from.sample_bytes() as usize]);
        out.resize(self.to.trailer_offset() as usize, 0);
        match self.to.trailer() {
            Trailer::Record => {
                let record = Record {
                    shot: number,
                    stream,
                    tai_ns: kept.stamp_tai_ns,
                    clock_locked: kept.flags & 1 != 0,
                    triggered: kept.flags & 2 != 0,
                    ..Record::of(&self.to)
                };
                let mut bytes = record.finish(crc::register(u32::MAX, out));
                if !kept.proven {
                    bytes = record.emit(!record::stored_crc(&bytes));
                }
                out.extend(bytes);
            }
            // Blocks stay as they came, if they stay blocks.
            Trailer::None | Trailer::Block | Trailer::Context => {}
            Trailer::HsbMetadata => out.extend(
                Metadata {
                    flags: u32::from(!kept.proven),
                    first_ns: kept.stamp_tai_ns,
                    valid_bytes: self.to.sample_bytes().into(),
                    frame: number as u16,
                    made_ns: kept.stamp_tai_ns,
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
        let cut = Cut { first, rest, trailer_apart: false };
        Geometry::cut_as((1, bytes), (8, Packing::Uint8), 0, Trailer::None, cut).unwrap()
    }

    #[test]
    fn a_packet_is_there_only_if_every_sample_of_it_was() {
        let form = Form::new(heap(10_000, 900, 1000), Kind::Ud).unwrap();
        assert_eq!((form.from.packets(), form.to.packets()), (11, 3));
        for missing in 0..11 {
            let mut presence = [0xFF, 0xFF];
            presence[missing as usize / 8] &= !(1 << (missing % 8));
            let kept = Kept { presence: &presence, proven: false, stamp_tai_ns: 0, flags: 0 };
            let (at, bytes) = (form.from.packet_offset(missing), form.from.packet_bytes(missing));
            for index in 0..3 {
                let (first, end) = (index * 4096, (index * 4096 + 4096).min(10_000));
                assert_eq!(form.contains(&kept, index), at >= end || at + bytes <= first, "{missing} {index}");
            }
        }
    }

    #[test]
    fn what_was_not_proven_gets_a_record_that_proves_nothing() {
        let form = Form::new(heap(5000, 1000, 1000), Kind::Udp).unwrap();
        let slot: Vec<u8> = (0..8192).map(|at| at as u8).collect();
        let mut out = Vec::new();
        for proven in [true, false] {
            let kept = Kept { presence: &[0xFF], proven, stamp_tai_ns: 42, flags: 1 };
            form.convert(&kept, (1 << 40, 6), &slot, &mut out);
            assert_eq!(record::is_whole(crc::register(u32::MAX, &out)), proven);
            let record = Record::parse(out.last_chunk().unwrap()).unwrap();
            assert_eq!((record.shot, record.stream, record.tai_ns, record.clock_locked), (1 << 40, 6, 42, true));
            assert_eq!(out[..5000], slot[..5000]);
            assert_eq!(out.len() as u32, form.to.shot_bytes());
        }
    }

    #[test]
    fn a_shot_without_room_for_what_closes_it_is_refused_with_the_framing_and_the_reason() {
        let words = Form::new(heap(16 << 20, 8192, 8192), Kind::Hsb).unwrap_err().to_string();
        assert!(words.contains("as hsb") && words.contains("allows 4096"), "{words}");
    }
}
