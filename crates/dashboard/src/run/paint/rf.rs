//! Channel RF: the samples of some channels as lines.

use super::EventPainter;
use super::notes::{faults, joined};
use super::part::{Samples, full_scale};
use crate::pictures::{Axis, Format, Header, Picture};
use crate::status::PictureInfo;
use shotline_acquire::live::About;
use shotline_acquire::tap::Request;
use shotline_store::shot::{Event, Shot};
use shotline_wire::shot::Geometry;

const KIND: &str = "rf";
/// Number of channels that are shown, evenly spaced over all.
const LINES: usize = 4;
/// Maximum number of points of a line.
const MAX_POINTS: usize = 4096;
/// Maximum number of samples of a point. Of longer shots the first part is shown: what is skipped would be most of it.
const MAX_STEP: usize = 4;

/// The painter.
#[derive(Default)]
pub(super) struct Traces {
    samples: Samples,
}

/// One event, whichever is next.
pub(super) const ANY: Request = Request { count: 1, stride: 1, multiple: 1 };

/// Returns an event, and its first shot with the index of its link.
pub(super) fn first_shot(events: &[Event]) -> Option<(&Event, usize, &Shot)> {
    let in_event = |event: &'_ Event| event.shots.iter().position(Option::is_some);
    let (event, link) = events.iter().find_map(|event| Some((event, in_event(event)?)))?;
    Some((event, link, event.shots.get(link)?.as_ref()?))
}

/// Returns the time of this many samples in us, or their number if the rate is unknown, as an axis.
pub(super) fn time_axis(geometry: &Geometry, samples: usize) -> Axis {
    let samples = samples as f64;
    match geometry.sample_rate_hz() {
        0 => Axis { label: "sample", unit: "", from: 0.0, to: samples },
        rate => Axis { label: "time", unit: "us", from: 0.0, to: samples / f64::from(rate) * 1e6 },
    }
}

/// Says that only the first part of a shot is shown.
pub(super) fn first_part(geometry: &Geometry, samples: usize) -> String {
    let all = geometry.samples() as usize;
    if samples < all { format!("the first {samples} of {all} samples") } else { String::new() }
}

impl EventPainter for Traces {
    fn info(&self) -> PictureInfo {
        PictureInfo {
            kind: KIND,
            label: "RF".into(),
            about: "Samples of up to four channels of the first link over time.".into(),
        }
    }

    fn request(&mut self, _about: &About, _events_per_s: f64) -> Request {
        ANY
    }

    fn paint(&mut self, about: &About, events: &[Event]) -> Option<Picture> {
        let (event, link, shot) = first_shot(events)?;
        let geometry = &about.geometry;
        let (channels, all) = (usize::from(geometry.channels()), geometry.samples() as usize);
        let wanted = if all > MAX_STEP * MAX_POINTS { MAX_POINTS } else { all };
        let values = self.samples.first(geometry, shot, wanted);
        let samples = values.len() / channels;
        let points = samples.min(MAX_POINTS);
        let shown: Vec<usize> = (0..LINES.min(channels)).map(|line| line * channels / LINES.min(channels)).collect();
        let value = |channel: usize, point: usize| values[point * samples / points * channels + channel];
        let lines = shown.iter().flat_map(|channel| (0..points).map(move |point| f32::from(value(*channel, point))));
        let payload = lines.flat_map(f32::to_le_bytes).collect();
        let full = full_scale(geometry);
        let y = Axis { label: "sample value", unit: "", from: -full, to: full };
        let header = Header {
            lines: shown.iter().map(|channel| format!("link {link} channel {channel}")).collect(),
            note: joined([faults(about, event, shot), first_part(geometry, samples)]),
            ..Header::new(KIND, Format::Lines, points, shown.len(), time_axis(geometry, samples), y)
        };
        Some(Picture { header, payload })
    }
}
