//! All channels of a shot as an image: time downwards, one column for a channel.

use super::EventPainter;
use super::notes::{faults, joined};
use super::part::{Samples, full_scale};
use super::rf::{ANY, first_part, first_shot, time_axis};
use crate::pictures::{Axis, Format, Header, Picture};
use crate::status::PictureInfo;
use shotline_acquire::live::About;
use shotline_acquire::tap::Request;
use shotline_compute::ultrasound::draw_traces;
use shotline_store::shot::Event;

const KIND: &str = "channels";
const ROWS: usize = 400;
/// Maximum number of columns. Of more channels several share one.
const COLUMNS: usize = 1024;
/// Dynamic range in dB that the bytes cover: that of 12 bits.
const DYNAMIC_RANGE_DB: f64 = 66.0;

/// The painter.
#[derive(Default)]
pub(super) struct Channels {
    samples: Samples,
    extrema: Vec<[i16; 2]>,
}

impl EventPainter for Channels {
    fn info(&self) -> PictureInfo {
        let about = "Largest magnitude of every channel of the first link over time, in dB below full scale.";
        PictureInfo { kind: KIND, label: "Channels".into(), about: about.into() }
    }

    fn request(&mut self, _about: &About, _events_per_s: f64) -> Request {
        ANY
    }

    fn paint(&mut self, about: &About, events: &[Event]) -> Option<Picture> {
        let (event, _, shot) = first_shot(events)?;
        let (geometry, channels) = (&about.geometry, usize::from(about.geometry.channels()));
        let values = self.samples.first(geometry, shot, usize::MAX);
        let samples = values.len() / channels;
        let (rows, columns) = (ROWS.min(samples), COLUMNS.min(channels));
        self.extrema.resize(rows * channels, [0; 2]);
        draw_traces(values, channels, rows, &mut self.extrema).ok()?;
        let full_scale = full_scale(geometry);
        let magnitude = |[least, greatest]: &[i16; 2]| least.unsigned_abs().max(greatest.unsigned_abs());
        let byte = |part: &[[i16; 2]]| {
            let magnitude = f64::from(part.iter().map(magnitude).max().unwrap_or(0));
            // `as` takes the logarithm of 0 to 0.
            (255.0 + 255.0 / DYNAMIC_RANGE_DB * 20.0 * (magnitude / full_scale).log10()) as u8
        };
        let place = |column: usize| column * channels / columns;
        let row = |row: &[[i16; 2]]| -> Vec<u8> {
            (0..columns).map(|column| byte(&row[place(column)..place(column + 1)])).collect()
        };
        let payload = self.extrema.chunks_exact(channels).flat_map(row).collect();
        let note = joined([faults(about, event, shot), first_part(geometry, samples)]);
        let x = Axis { label: "channel", unit: "", from: 0.0, to: channels as f64 - 1.0 };
        let value = Axis { label: "magnitude", unit: "dB", from: -DYNAMIC_RANGE_DB, to: 0.0 };
        let header =
            Header { value, note, ..Header::new(KIND, Format::Gray8, columns, rows, x, time_axis(geometry, samples)) };
        Some(Picture { header, payload })
    }
}
