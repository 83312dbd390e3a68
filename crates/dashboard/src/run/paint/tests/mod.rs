//! Shots for painters, and what holds for every picture.

mod meaning;
mod properties;
mod unpacking;

use super::{EventPainter, PaintOptions, PictureSet};
use crate::pictures::{Format, Picture};
use shotline_acquire::live::About;
use shotline_compute::pack12;
use shotline_memory::{Pool, Registrar};
use shotline_store::shot::{Event, Shot, ShotMeta};
use shotline_wire::shot::{DropCounters, Geometry, Packetization, Packing, Presence, Trailer};
use std::sync::Arc;

/// Sides and points that the page accepts.
const MAX_SIDE: u32 = 1 << 16;
const MAX_POINTS: usize = 1 << 24;

/// Describes a run of links with shots of this shape.
pub(super) fn about(links: usize, shape: (u16, u32), format: (u8, Packing), rate_hz: u32, trailer: Trailer) -> About {
    let cut = Packetization::uniform(8192);
    About {
        instrument: "test".into(),
        framing: "udp",
        geometry: Geometry::with_packetization(shape, format, rate_hz, trailer, cut).unwrap(),
        links,
        queue_pairs: Vec::new(),
        local: ([127, 0, 0, 1], 1).into(),
        pattern_period: 0,
        array: None,
        capacity_rows: None,
        tai_minus_utc_s: 37,
    }
}

/// Makes the shots of a run.
pub(super) struct Camera {
    pub(super) about: About,
    pool: Arc<Pool>,
}

impl Camera {
    pub(super) fn new(about: About, shots: u32) -> Self {
        let pool = Pool::new(&mut Registrar::new(), shots, about.geometry.slot_bytes()).unwrap();
        Self { about, pool }
    }

    /// Returns a shot with these sample bytes, of which this many packets have arrived.
    fn shot(&self, number: u64, bytes: &[u8], arrived: u32) -> Shot {
        let mut presence = Presence::empty(self.about.geometry.packets());
        (0..arrived.min(self.about.geometry.packets())).for_each(|index| assert!(presence.insert(index)));
        let buffer = self.pool.take().unwrap();
        buffer.zero(0, buffer.len());
        buffer.write(0, bytes);
        let meta = ShotMeta {
            stream: 0,
            number,
            stamp_tai_ns: 0,
            arrived_tai_ns: 0,
            completed_tai_ns: 0,
            flags: 0,
            record_good: true,
            valid_bytes: bytes.len() as u32,
            presence: Arc::new(presence),
            drops: DropCounters::default(),
        };
        Shot { meta, buffer }
    }

    /// Returns a complete event whose links have the same samples.
    pub(super) fn event(&self, number: u64, values: &[i16]) -> Event {
        let bytes = packed(&self.about.geometry, values);
        Event { number, shots: (0..self.about.links).map(|_| Some(self.shot(number, &bytes, u32::MAX))).collect() }
    }
}

/// Packs samples as the geometry says; the inverse of what the painters do.
fn packed(geometry: &Geometry, values: &[i16]) -> Vec<u8> {
    match geometry.packing() {
        Packing::Packed12 => {
            let mut bytes = vec![0; pack12::packed_bytes(values.len())];
            pack12::pack(values, &mut bytes);
            bytes
        }
        Packing::Int16Le => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Packing::Int16Be => values.iter().flat_map(|value| value.to_be_bytes()).collect(),
        Packing::Uint8 => values.iter().map(|value| (value + (1 << (geometry.bits() - 1))) as u8).collect(),
    }
}

/// Returns the painter of this kind.
fn painter(set: PictureSet, kind: &str, options: &PaintOptions) -> Box<dyn EventPainter> {
    set.event_painters(options).into_iter().find(|painter| painter.info().kind == kind).unwrap()
}

/// Checks what the page requires of every picture.
pub(super) fn check(picture: &Picture) {
    let header = &picture.header;
    let points = header.width as usize * header.height as usize;
    let point_bytes = match header.format {
        Format::Gray8 => 1,
        Format::Rgb8 => 3,
        Format::Lines => 4,
    };
    assert_eq!(picture.payload.len(), points * point_bytes, "{header:?}");
    assert!((1..=MAX_SIDE).contains(&header.width) && (1..=MAX_SIDE).contains(&header.height), "{header:?}");
    assert!(points <= MAX_POINTS, "{header:?}");
    for axis in [&header.x, &header.y, &header.value] {
        assert!(axis.from.is_finite() && axis.to.is_finite(), "{header:?}");
    }
    assert!(header.lines.is_empty() || header.lines.len() == header.height as usize, "{header:?}");
    if header.format == Format::Lines {
        assert!(lines(picture).iter().flatten().all(|value| value.is_finite()), "{header:?}");
    }
}

/// Returns the values of lines.
fn lines(picture: &Picture) -> Vec<Vec<f32>> {
    let values: Vec<f32> = picture.payload.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    values.chunks_exact(picture.header.width as usize).map(<[f32]>::to_vec).collect()
}
