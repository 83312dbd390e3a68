//! IQ: samples as points of a plane.

use super::EventPainter;
use super::notes::{faults, joined};
use super::rf::{ANY, first_shot};
use super::signal::{Analyser, Block, Signals, rate};
use crate::pictures::{Axis, Format, Header, Picture};
use crate::status::PictureInfo;
use shotline_acquire::live::About;
use shotline_acquire::tap::Request;
use shotline_compute::ddc::{Ddc, DdcConfig, Tuning};
use shotline_store::shot::Event;
use shotline_wire::shot::Geometry;

const KIND: &str = "iq";
/// Maximum number of points.
const POINTS: usize = 2048;
/// Decimation of real samples. A shorter shot is not decimated.
const DECIMATION: u32 = 8;
const MIN_SAMPLES: usize = 1024;
/// Points until the filter of the down-conversion has only samples of the shot.
const WARM_UP: usize = 32;
/// Samples that are taken.
const SAMPLES: usize = (POINTS + WARM_UP) * DECIMATION as usize;
/// Longest transform in the search for the strongest tone.
const MAX_FFT: usize = 4096;
/// Value that a 16-bit sample at full scale has.
const FULL_SCALE: f64 = 32768.0;

/// The painter.
#[derive(Default)]
pub(super) struct Constellation {
    signals: Signals,
    analyser: Option<Analyser>,
    /// Largest value that is shown, as a power of two, so that the range does not follow every picture.
    range: f64,
}

/// Points of the plane, and the time between them in samples.
struct Points {
    points: Vec<[i16; 2]>,
    step: usize,
    note: String,
}

impl EventPainter for Constellation {
    fn info(&self) -> PictureInfo {
        let about =
            "Samples of I and Q of the first link as points; real samples are mixed down from their strongest tone.";
        PictureInfo { kind: KIND, label: "IQ".into(), about: about.into() }
    }

    fn request(&mut self, _about: &About, _events_per_s: f64) -> Request {
        ANY
    }

    fn paint(&mut self, about: &About, events: &[Event]) -> Option<Picture> {
        let (event, _, shot) = first_shot(events)?;
        let geometry = &about.geometry;
        self.signals.take(geometry, shot, SAMPLES);
        if self.analyser.is_none() {
            self.analyser = Analyser::new(geometry, self.signals.samples(), MAX_FFT);
        }
        let Points { points, step, note } = match self.signals.get(0) {
            Block::Iq(pairs) => {
                Points { points: pairs[..pairs.len().min(POINTS)].to_vec(), step: 1, note: String::new() }
            }
            Block::Real(samples) => {
                let tone_hz = self.analyser.as_mut().and_then(|analyser| analyser.strongest_hz(Block::Real(samples)));
                down_converted(geometry, samples, tone_hz)?
            }
        };
        let largest = points.as_flattened().iter().map(|value| f64::from(value.unsigned_abs())).fold(1.0, f64::max);
        if largest > self.range || largest < self.range / 4.0 {
            self.range = 2_f64.powf(largest.log2().ceil());
        }
        let range = self.range / FULL_SCALE;
        let part = |part: usize| points.iter().map(move |point| (f64::from(point[part]) / FULL_SCALE) as f32);
        let payload = part(0).chain(part(1)).flat_map(f32::to_le_bytes).collect();
        let duration = (points.len() * step) as f64;
        let x = match geometry.sample_rate_hz() {
            0 => Axis { label: "sample", unit: "", from: 0.0, to: duration },
            rate => Axis { label: "time", unit: "us", from: 0.0, to: duration / f64::from(rate) * 1e6 },
        };
        let y = Axis { label: "value", unit: "of full scale", from: -range, to: range };
        let header = Header {
            lines: vec!["I".into(), "Q".into()],
            note: joined([faults(about, event, shot), note]),
            ..Header::new(KIND, Format::Lines, points.len(), 2, x, y)
        };
        Some(Picture { header, payload })
    }
}

/// Mixes real samples down from a tone; from a quarter of the sample rate if there is none.
fn down_converted(geometry: &Geometry, samples: &[i16], tone_hz: Option<f64>) -> Option<Points> {
    let (tuning, note) = match tone_hz {
        Some(hz) => {
            let word = match geometry.sample_rate_hz() {
                0 => format!("{hz:.4} cycles per sample"),
                _ => format!("{:.4} MHz", hz / 1e6),
            };
            (Tuning::hz(hz, rate(geometry)).ok()?, format!("mixed down from {word}"))
        }
        None => (Tuning::ratio(1, 4).ok()?, "no tone: mixed down from a quarter of the sample rate".into()),
    };
    let decimation = if samples.len() < MIN_SAMPLES { 1 } else { DECIMATION };
    let mut ddc = Ddc::<i16>::new(&DdcConfig { decimation, ..DdcConfig::tuned(tuning) }).ok()?;
    let mut points = vec![[0; 2]; ddc.output_len(samples.len())];
    ddc.process(samples, &mut points);
    let warm_up = if points.len() > 2 * WARM_UP { WARM_UP } else { 0 };
    points.drain(..warm_up);
    points.truncate(POINTS);
    Some(Points { points, step: decimation as usize, note })
}
