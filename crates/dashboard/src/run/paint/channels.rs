//! All channels of a shot as an image: time downwards, one column for a channel.

use super::rf::{ANY, first_shot, time_axis, unpack};
use super::{EventPainter, Samples};
use crate::pictures::{Axis, Format, Header, Picture};
use crate::status::PictureInfo;
use shotline_acquire::live::About;
use shotline_acquire::tap::Request;
use shotline_compute::ultrasound::draw_traces;
use shotline_store::shot::Event;

const KIND: &str = "channels";
const ROWS: usize = 400;
/// Dynamic range in dB that the bytes cover: that of 12 bits.
const DYNAMIC_RANGE_DB: f64 = 66.0;

/// The painter.
#[derive(Default)]
pub(super) struct Channels {
    samples: Samples,
    values: Vec<i16>,
    extrema: Vec<[i16; 2]>,
}

impl EventPainter for Channels {
    fn info(&self) -> PictureInfo {
        let about = "Largest magnitude of every channel of the first link over time, in dB below full scale.";
        PictureInfo { kind: KIND, label: "Channels".into(), about: about.into() }
    }

    fn request(&self, _about: &About, _events_per_s: f64) -> Request {
        ANY
    }

    fn paint(&mut self, about: &About, events: &[Event]) -> Option<Picture> {
        let (_, shot) = first_shot(events)?;
        let (geometry, channels) = (&about.geometry, usize::from(about.geometry.channels()));
        unpack(geometry, self.samples.of(about, shot), &mut self.values);
        let rows = ROWS.min(geometry.samples() as usize);
        self.extrema.resize(rows * channels, [0; 2]);
        draw_traces(&self.values, channels, rows, &mut self.extrema).ok()?;
        let full_scale = f64::from(1_u32 << (geometry.bits().clamp(1, 16) - 1));
        let byte = |[least, greatest]: &[i16; 2]| {
            let magnitude = f64::from(least.unsigned_abs().max(greatest.unsigned_abs()));
            // `as` takes the logarithm of 0 to 0.
            (255.0 + 255.0 / DYNAMIC_RANGE_DB * 20.0 * (magnitude / full_scale).log10()) as u8
        };
        let payload = self.extrema.iter().map(byte).collect();
        let x = Axis { label: "channel", unit: "", from: 0.0, to: channels as f64 - 1.0 };
        let value = Axis { label: "magnitude", unit: "dB", from: -DYNAMIC_RANGE_DB, to: 0.0 };
        let header = Header { value, ..Header::new(KIND, Format::Gray8, channels, rows, x, time_axis(geometry)) };
        Some(Picture { header, payload })
    }
}
