//! M-mode: the echoes along the middle line over time.

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
const DYNAMIC_RANGE_DB: f32 = 70.0;
/// Lines of a picture, and its duration in seconds: about 160 lines a second.
const LINES: u16 = 8;
const DURATION_S: f64 = 0.05;
/// Maximum time in seconds that a picture waits for its lines.
const MAX_WAIT_S: f64 = 0.5;
/// Part of the reference that remains from line to line.
const PERSISTENCE: f32 = 0.99;

/// The painter. Each picture is the next lines, one transmission each.
pub(super) struct MMode {
    array: Array,
    waves: usize,
    /// None: before the first picture. An error: why there are no pictures.
    state: Option<Result<(Beamformer, Samples), String>>,
    columns: Vec<Vec<u8>>,
    reference: f32,
}

impl MMode {
    pub(super) fn new(mut array: Array) -> Self {
        let waves = array.waves();
        // The lines are those of the first transmission of each frame.
        array.angles_rad.truncate(1);
        Self { array, waves, state: None, columns: Vec::new(), reference: 0.0 }
    }

    fn state(&mut self, about: &About) -> Option<&mut (Beamformer, Samples)> {
        let array = &self.array;
        let state = self.state.get_or_insert_with(|| {
            let mut config = bmode::config(array, about, 1, ROWS);
            config.grid.x_m = 0.0;
            Ok((bmode::beamformer(&config)?, Samples::default()))
        });
        state.as_mut().ok()
    }

    /// Adds the line of an event, if it is of the first transmission and no link is missing.
    fn add(&mut self, about: &About, event: &Event) {
        let is_first = event.number.is_multiple_of(self.waves as u64);
        let Some((beamformer, samples)) = self.state(about).filter(|_| is_first) else { return };
        let mut line = vec![Complex::default(); ROWS];
        let is_whole = bmode::add(beamformer, samples, about, 0, event);
        if beamformer.finish(&mut line).is_err() || !is_whole {
            return;
        }
        let peak = line.iter().map(|pixel| pixel.norm_sqr()).fold(0.0, f32::max).sqrt();
        self.reference = peak.max(self.reference * PERSISTENCE);
        let shown = if self.reference.is_normal() { Reference::Given(self.reference) } else { Reference::Maximum };
        let mut column = vec![0; ROWS];
        let drawn = Display::new(DYNAMIC_RANGE_DB, shown).map(|display| display.draw(&line, 1, &mut column));
        if drawn.is_ok_and(|drawn| drawn.is_ok()) {
            self.columns.push(column);
        }
    }
}

impl EventPainter for MMode {
    fn info(&self) -> PictureInfo {
        let about = "Echoes along the middle line over time, one column for a transmission, in dB below the maximum.";
        PictureInfo { kind: KIND, label: "M-mode".into(), about: about.into() }
    }

    fn request(&mut self, _about: &About, events_per_s: f64) -> Request {
        let frames_per_s = events_per_s / self.waves as f64;
        // Fewer lines of slow frames, so that other pictures need not wait for them.
        let lines = (frames_per_s * MAX_WAIT_S).clamp(1.0, LINES.into()) as u16;
        let frames = (frames_per_s * DURATION_S / f64::from(LINES)).max(1.0) as u32;
        let waves = self.waves as u32;
        Request { count: lines, stride: waves.saturating_mul(frames).min(MAX_STRIDE - 1), multiple: waves }
    }

    fn take(&mut self, about: &About, event: Event) -> Option<Event> {
        self.add(about, &event);
        None
    }

    fn paint(&mut self, about: &About, events: &[Event]) -> Option<Picture> {
        events.iter().for_each(|event| self.add(about, event));
        let grid = match self.state.as_ref()? {
            Ok((beamformer, _)) => *beamformer.grid(),
            Err(error) => return Some(Picture::message(KIND, error.clone())),
        };
        let columns = std::mem::take(&mut self.columns);
        let width = columns.len();
        if width == 0 {
            return None;
        }
        let payload = (0..ROWS).flat_map(|row| columns.iter().map(move |column| column[row])).collect();
        let x = Axis { label: "transmissions", unit: "", from: 0.0, to: width as f64 };
        let bottom = (grid.z_m + grid.row_pitch_m * (ROWS - 1) as f64) * 1e3;
        let y = Axis { label: "depth", unit: "mm", from: grid.z_m * 1e3, to: bottom };
        let value = Axis { label: "echo", unit: "dB", from: -f64::from(DYNAMIC_RANGE_DB), to: 0.0 };
        let header = Header { value, append: true, ..Header::new(KIND, Format::Gray8, width, ROWS, x, y) };
        Some(Picture { header, payload })
    }
}
