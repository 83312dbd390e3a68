//! M-mode: the echoes along the middle line over time.

use super::notes::missing;
use super::part::Samples;
use super::{EventPainter, bmode};
use crate::pictures::{Axis, Format, Header, Picture};
use crate::status::PictureInfo;
use realfft::num_complex::Complex;
use shotline_acquire::live::About;
use shotline_acquire::tap::{MAX_STRIDE, Request};
use shotline_compute::ultrasound::{Array, Beamformer, Display, Reference};
use shotline_store::shot::Event;

const KIND: &str = "mmode";
const ROWS: usize = 320;
const DYNAMIC_RANGE_DB: f32 = 80.0;
/// Lines of a picture, and its duration in seconds: about 160 lines a second.
const LINES: u16 = 8;
const DURATION_S: f64 = 0.05;
/// Part of the reference that remains from line to line.
const PERSISTENCE: f32 = 0.99;

/// The painter. Each picture is the next lines, one transmission each.
pub(super) struct MMode {
    array: Array,
    waves: usize,
    state: Option<(Beamformer, Samples)>,
    reference: f32,
}

impl MMode {
    pub(super) fn new(mut array: Array) -> Self {
        let waves = array.waves();
        // The lines are those of the first transmission of each frame.
        array.angles_rad.truncate(1);
        Self { array, waves, state: None, reference: 0.0 }
    }
}

impl EventPainter for MMode {
    fn info(&self) -> PictureInfo {
        let about = "Echoes along the middle line over time, one column for a transmission, in dB below the maximum.";
        PictureInfo { kind: KIND, label: "M-mode".into(), about: about.into() }
    }

    fn request(&self, _about: &About, events_per_s: f64) -> Request {
        let frames = (events_per_s * DURATION_S / f64::from(LINES) / self.waves as f64).max(1.0) as u32;
        let waves = self.waves as u32;
        Request { count: LINES, stride: waves.saturating_mul(frames).min(MAX_STRIDE - 1), multiple: waves }
    }

    fn paint(&mut self, about: &About, events: &[Event]) -> Option<Picture> {
        if self.state.is_none() {
            let mut config = bmode::config(&self.array, about, 1, ROWS);
            config.grid.x_m = 0.0;
            self.state = Some((bmode::beamformer(&config)?, Samples::default()));
        }
        let (beamformer, samples) = self.state.as_mut()?;
        let mut line = vec![Complex::default(); ROWS];
        let mut columns = Vec::new();
        for event in events.iter().filter(|event| event.number.is_multiple_of(self.waves as u64)) {
            if !bmode::add(beamformer, samples, about, 0, event) {
                continue;
            }
            beamformer.finish(&mut line).ok()?;
            let peak = line.iter().map(|pixel| pixel.norm_sqr()).fold(0.0, f32::max).sqrt();
            self.reference = peak.max(self.reference * PERSISTENCE);
            let shown = if self.reference.is_normal() { Reference::Given(self.reference) } else { Reference::Maximum };
            let mut column = vec![0; ROWS];
            Display::new(DYNAMIC_RANGE_DB, shown).ok()?.draw(&line, 1, &mut column).ok()?;
            columns.push(column);
        }
        let width = columns.len();
        if width == 0 {
            return None;
        }
        let payload = (0..ROWS).flat_map(|row| columns.iter().map(move |column| column[row])).collect();
        let grid = beamformer.grid();
        let x = Axis { label: "transmissions", unit: "", from: 0.0, to: width as f64 };
        let bottom = (grid.z_m + grid.row_pitch_m * (ROWS - 1) as f64) * 1e3;
        let y = Axis { label: "depth", unit: "mm", from: grid.z_m * 1e3, to: bottom };
        let value = Axis { label: "echo", unit: "dB", from: -f64::from(DYNAMIC_RANGE_DB), to: 0.0 };
        let note = missing(width, LINES.into(), "lines");
        let header = Header { value, note, append: true, ..Header::new(KIND, Format::Gray8, width, ROWS, x, y) };
        Some(Picture { header, payload })
    }
}
