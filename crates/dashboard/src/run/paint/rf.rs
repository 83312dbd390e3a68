//! Channel RF: the samples of some channels as lines.

use super::{EventPainter, Samples};
use crate::pictures::{Axis, Format, Header, Picture};
use crate::status::PictureInfo;
use shotline_acquire::live::About;
use shotline_acquire::tap::Request;
use shotline_compute::pack12;
use shotline_store::shot::{Event, Shot};
use shotline_wire::shot::{Geometry, Packing};

const KIND: &str = "rf";
/// Number of channels that are shown, evenly spaced over all.
const LINES: usize = 4;
/// Maximum number of points of a line.
const MAX_POINTS: usize = 4096;

/// The painter.
#[derive(Default)]
pub(super) struct Traces {
    samples: Samples,
    values: Vec<i16>,
}

/// One event, whichever is next.
pub(super) const ANY: Request = Request { count: 1, stride: 1, multiple: 1 };

/// Unpacks the samples of a shot, all channels of sample 0 first. Unsigned bytes are samples around 128.
pub(super) fn unpack(geometry: &Geometry, bytes: &[u8], values: &mut Vec<i16>) {
    let count = geometry.samples() as usize * usize::from(geometry.channels());
    values.clear();
    match geometry.packing() {
        Packing::Packed12 => {
            // Pairs of samples; a last half pair has no bytes of its own.
            let pairs = (bytes.len() / 3 * 2).min(count.next_multiple_of(2));
            values.resize(pairs, 0);
            pack12::unpack(&bytes[..pairs / 2 * 3], values);
        }
        Packing::Int16Le => values.extend(bytes.as_chunks::<2>().0.iter().map(|pair| i16::from_le_bytes(*pair))),
        Packing::Int16Be => values.extend(bytes.as_chunks::<2>().0.iter().map(|pair| i16::from_be_bytes(*pair))),
        Packing::Uint8 => values.extend(bytes.iter().map(|byte| i16::from(*byte) - 128)),
    }
    values.resize(count, 0);
}

/// Returns the first shot of an event and the index of its link.
pub(super) fn first_shot(events: &[Event]) -> Option<(usize, &Shot)> {
    let shots = &events.first()?.shots;
    shots.iter().enumerate().find_map(|(link, shot)| Some((link, shot.as_ref()?)))
}

/// Returns the duration of a shot in us, or its number of samples if the rate is unknown, as an axis.
pub(super) fn time_axis(geometry: &Geometry) -> Axis {
    let samples = f64::from(geometry.samples());
    match geometry.sample_rate_hz() {
        0 => Axis { label: "sample", unit: "", from: 0.0, to: samples },
        rate => Axis { label: "time", unit: "us", from: 0.0, to: samples / f64::from(rate) * 1e6 },
    }
}

impl EventPainter for Traces {
    fn info(&self) -> PictureInfo {
        PictureInfo { kind: KIND, label: "RF".into(), about: "Samples of four channels of the first link.".into() }
    }

    fn request(&self, _about: &About, _events_per_s: f64) -> Request {
        ANY
    }

    fn paint(&mut self, about: &About, events: &[Event]) -> Option<Picture> {
        let (link, shot) = first_shot(events)?;
        let geometry = &about.geometry;
        unpack(geometry, self.samples.of(about, shot), &mut self.values);
        let (channels, samples) = (usize::from(geometry.channels()), geometry.samples() as usize);
        let points = samples.min(MAX_POINTS);
        let shown: Vec<usize> = (0..LINES.min(channels)).map(|line| line * channels / LINES.min(channels)).collect();
        let value = |channel: usize, point: usize| self.values[point * samples / points * channels + channel];
        let lines = shown.iter().flat_map(|channel| (0..points).map(move |point| f32::from(value(*channel, point))));
        let payload = lines.flat_map(f32::to_le_bytes).collect();
        let full_scale = f64::from(1_u32 << (geometry.bits().clamp(1, 16) - 1));
        let y = Axis { label: "sample value", unit: "", from: -full_scale, to: full_scale };
        let header = Header {
            lines: shown.iter().map(|channel| format!("link {link} channel {channel}")).collect(),
            ..Header::new(KIND, Format::Lines, points, shown.len(), time_axis(geometry), y)
        };
        Some(Picture { header, payload })
    }
}
