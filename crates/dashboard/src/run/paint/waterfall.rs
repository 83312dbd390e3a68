//! Waterfall: the spectrum over time, one column for a shot.

use super::EventPainter;
use super::notes::{joined, missing};
use super::signal::{Analyser, Signals, frequency_axis};
use crate::pictures::{Axis, Format, Header, Picture};
use crate::status::PictureInfo;
use shotline_acquire::live::About;
use shotline_acquire::tap::{MAX_STRIDE, Request};
use shotline_store::shot::Event;

const KIND: &str = "waterfall";
/// Maximum number of rows.
const ROWS: usize = 512;
/// Samples that are transformed for a column.
const SAMPLES: usize = 1 << 14;
/// Levels that the bytes cover, from the lowest to 0 dBFS. The page shows a part of them.
const DYNAMIC_RANGE_DB: f32 = 140.0;
/// Maximum number of columns of a picture, and its duration in seconds.
const COLUMNS: f64 = 8.0;
const DURATION_S: f64 = 0.05;

/// The painter. Each picture is the next columns: the page scrolls horizontally, so frequency is vertical.
#[derive(Default)]
pub(super) struct Waterfall {
    signals: Signals,
    analyser: Option<Analyser>,
}

impl EventPainter for Waterfall {
    fn info(&self) -> PictureInfo {
        let about = "Spectrum of the first channel of the first link over time, one column for a shot, in dBFS.";
        PictureInfo { kind: KIND, label: "Waterfall".into(), about: about.into() }
    }

    fn request(&mut self, _about: &About, events_per_s: f64) -> Request {
        let events = events_per_s * DURATION_S;
        let count = events.clamp(1.0, COLUMNS);
        Request {
            count: count as u16,
            stride: (events / count).clamp(1.0, f64::from(MAX_STRIDE - 1)) as u32,
            multiple: 1,
        }
    }

    fn paint(&mut self, about: &About, events: &[Event]) -> Option<Picture> {
        let geometry = &about.geometry;
        let (mut columns, mut numbers, mut damaged) = (Vec::new(), Vec::new(), 0);
        for event in events {
            // The columns are of one link: another one may have another signal.
            let Some(Some(shot)) = event.shots.first() else { continue };
            self.signals.take(geometry, shot, SAMPLES);
            if self.analyser.is_none() {
                let points = if super::signal::is_iq(geometry) { ROWS } else { 2 * ROWS };
                self.analyser = Analyser::new(geometry, self.signals.samples(), points);
            }
            let mut levels = self.analyser.as_mut()?.decibels(self.signals.get(0))?;
            // The bin at half the sample rate of real samples would be one row too many.
            levels.truncate(levels.len() / 2 * 2);
            columns.push(levels);
            numbers.push(event.number);
            damaged += usize::from(!shot.meta.presence.is_complete());
        }
        let (width, height) = (columns.len(), columns.first()?.len());
        let byte = |level: f32| (255.0 * (1.0 + level / DYNAMIC_RANGE_DB)).round() as u8;
        let row = |row: usize| columns.iter().map(move |column| byte(column[row]));
        // The highest frequency is at the top.
        let payload = (0..height).rev().flat_map(row).collect();
        let [low, high] = self.analyser.as_ref()?.band(geometry, height);
        let x = Axis { label: "shot", unit: "", from: *numbers.first()? as f64, to: *numbers.last()? as f64 };
        let y = frequency_axis(geometry, [high, low]);
        let value = Axis { label: "power", unit: "dBFS", from: -f64::from(DYNAMIC_RANGE_DB), to: 0.0 };
        let whole = missing(events.len() - damaged, events.len(), "shots are complete");
        let note = joined([missing(width, events.len(), "shots of link 0"), whole]);
        let header = Header { value, note, append: true, ..Header::new(KIND, Format::Gray8, width, height, x, y) };
        Some(Picture { header, payload })
    }
}
