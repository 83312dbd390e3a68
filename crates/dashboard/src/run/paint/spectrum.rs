//! Spectrum: the power of a digitizer's channels by frequency, as lines.

use super::EventPainter;
use super::notes::{faults, joined};
use super::rf::{ANY, first_shot};
use super::signal::{Analyser, Signals, frequency_axis, is_iq};
use crate::pictures::{Axis, Format, Header, Picture};
use crate::status::PictureInfo;
use shotline_acquire::live::About;
use shotline_acquire::tap::Request;
use shotline_store::shot::Event;

const KIND: &str = "spectrum";
/// Maximum number of lines.
const LINES: usize = 4;
/// Samples of each channel that are transformed: some milliseconds of work.
const SAMPLES: usize = 1 << 16;
/// Longest transform, and number of segments that at least are averaged where the shot is long enough.
const MAX_POINTS: usize = 4096;
const SEGMENTS: usize = 4;
/// Level at the lower end of the axis: about the noise of 16 bits in one bin.
const FLOOR_DBFS: f64 = -140.0;

/// The painter.
#[derive(Default)]
pub(super) struct PowerSpectrum {
    signals: Signals,
    analyser: Option<Analyser>,
}

impl EventPainter for PowerSpectrum {
    fn info(&self) -> PictureInfo {
        let about = "Power of up to four channels of the first link by frequency, averaged over the first 65536 samples of a shot; 0 dBFS is a full-scale tone.";
        PictureInfo { kind: KIND, label: "Spectrum".into(), about: about.into() }
    }

    fn request(&mut self, _about: &About, _events_per_s: f64) -> Request {
        ANY
    }

    fn paint(&mut self, about: &About, events: &[Event]) -> Option<Picture> {
        let (event, link, shot) = first_shot(events)?;
        let geometry = &about.geometry;
        self.signals.take(geometry, shot, SAMPLES);
        let samples = self.signals.samples();
        if self.analyser.is_none() {
            let longest = (samples / SEGMENTS).max(samples.min(64)).min(MAX_POINTS);
            self.analyser = Analyser::new(geometry, samples, longest);
        }
        let analyser = self.analyser.as_mut()?;
        let shown = self.signals.count().min(LINES);
        let (mut payload, mut points) = (Vec::new(), 0);
        for index in 0..shown {
            let line = analyser.decibels(self.signals.get(index))?;
            points = line.len();
            payload.extend(line.into_iter().flat_map(f32::to_le_bytes));
        }
        let name = |index: usize| match is_iq(geometry) {
            true => format!("link {link} I/Q {index}"),
            false => format!("link {link} channel {index}"),
        };
        let x = frequency_axis(geometry, analyser.band(geometry, points));
        let y = Axis { label: "power", unit: "dBFS", from: FLOOR_DBFS, to: 0.0 };
        let channels = self.signals.count();
        let more = if shown < channels { format!("the first {shown} of {channels} channels") } else { String::new() };
        let header = Header {
            lines: (0..shown).map(name).collect(),
            note: joined([faults(about, event, shot), more]),
            ..Header::new(KIND, Format::Lines, points, shown, x, y)
        };
        Some(Picture { header, payload })
    }
}
