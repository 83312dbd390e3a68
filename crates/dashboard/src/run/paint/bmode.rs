//! B-mode: the echoes of a frame of transmissions as an image.

use super::EventPainter;
use super::notes::{links, missing};
use super::part::Samples;
use crate::pictures::{Axis, Format, Header, Picture};
use crate::status::PictureInfo;
use realfft::num_complex::Complex;
use shotline_acquire::live::About;
use shotline_acquire::tap::{MAX_EVENTS, Request};
use shotline_compute::ultrasound::{Array, Beamformer, BeamformerConfig, Display, Grid, Reference, Rf};
use shotline_store::shot::Event;

const KIND: &str = "bmode";
/// Maximum size of the image: what a screen shows, and what one processor computes many times a second.
const MAX_COLUMNS: usize = 192;
const MAX_ROWS: usize = 320;
/// Dynamic range in dB that the bytes cover. The page shows a part of it.
const DYNAMIC_RANGE_DB: f32 = 70.0;
/// Part of the reference that remains from picture to picture, so that the brightness does not flicker.
const PERSISTENCE: f32 = 0.9;

/// Maximum number of samples of a transmission, which are copied, and of a frame, which take 4 or 8 bytes each.
const MAX_SAMPLES: usize = 1 << 23;
const MAX_FRAME: usize = 1 << 26;

/// The painter.
pub(super) struct BMode {
    /// The array, with no more transmissions than an observer gets at a time.
    array: Array,
    /// All transmissions of a frame.
    waves: usize,
    /// None: before the first picture. An error: why there are no pictures.
    state: Option<Result<State, String>>,
}

/// What the first picture allocates.
struct State {
    beamformer: Beamformer,
    image: Vec<Complex<f32>>,
    picture: Vec<u8>,
    samples: Samples,
    reference: f32,
    /// Number of the frame that is being taken, and which of its transmissions are there.
    frame: Option<u64>,
    taken: Vec<bool>,
}

/// Returns the configuration for an image of at most `columns` x `rows` pixels.
pub(super) fn config(array: &Array, about: &About, columns: usize, rows: usize) -> BeamformerConfig {
    let (geometry, elements) = (&about.geometry, usize::from(about.geometry.channels()) * about.links);
    let rate = if geometry.sample_rate_hz() > 0 { geometry.sample_rate_hz() } else { 40_000_000 };
    let mut config = BeamformerConfig::new(array, elements, geometry.samples() as usize, f64::from(rate));
    let depth_m = config.grid.row_pitch_m * config.grid.rows as f64;
    config.grid = Grid::in_front(array, elements, columns.min(elements.max(1)), rows, depth_m);
    config
}

/// Creates a beamformer.
///
/// # Errors
/// Why there are no pictures: the array is not valid, or it would take too much memory.
pub(super) fn beamformer(config: &BeamformerConfig) -> Result<Beamformer, String> {
    let samples = config.samples.saturating_mul(config.elements);
    if samples > MAX_SAMPLES || samples.saturating_mul(config.waves.len()) > MAX_FRAME {
        return Err("the shots are too large for images of echoes: choose other --pictures".into());
    }
    Beamformer::new(config)
        .map_err(|error| format!("no image: {error}; check --angles and the other arguments of the array"))
}

/// Adds the shots of an event as a wave. Returns `false` if a link is missing or its shot has another shape.
pub(super) fn add(
    beamformer: &mut Beamformer,
    samples: &mut Samples,
    about: &About,
    wave: usize,
    event: &Event,
) -> bool {
    let (packing, channels) = (about.geometry.packing(), usize::from(about.geometry.channels()));
    let mut all = links(event) == about.links;
    for (link, shot) in event.shots.iter().enumerate() {
        let Some(shot) = shot else { continue };
        let rf = Rf::Shot { bytes: samples.of(about, shot), packing, channels };
        all &= beamformer.add(wave, link * channels, rf).is_ok();
    }
    all
}

impl BMode {
    pub(super) fn new(mut array: Array) -> Self {
        let waves = array.waves();
        array.angles_rad.truncate(MAX_EVENTS.into());
        Self { array, waves, state: None }
    }
}

impl State {
    fn new(array: &Array, about: &About) -> Result<Self, String> {
        let config = config(array, about, MAX_COLUMNS, MAX_ROWS);
        let beamformer = beamformer(&config)?;
        let pixels = config.grid.pixels();
        let (image, picture) = (vec![Complex::default(); pixels], vec![0; pixels]);
        let (frame, taken) = (None, vec![false; array.waves()]);
        Ok(Self { beamformer, image, picture, samples: Samples::default(), reference: 0.0, frame, taken })
    }

    /// Adds an event of the frame that is being taken. Those of other frames are ignored.
    fn add(&mut self, about: &About, waves: usize, event: &Event) {
        let (frame, wave) = (event.number / waves as u64, (event.number % waves as u64) as usize);
        if wave < self.taken.len() && *self.frame.get_or_insert(frame) == frame {
            self.taken[wave] |= add(&mut self.beamformer, &mut self.samples, about, wave, event);
        }
    }

    /// Computes the image of the frame, and begins the next one. Returns how many transmissions are in it.
    fn finish(&mut self) -> Option<usize> {
        let found = self.taken.iter().filter(|taken| **taken).count();
        self.frame = None;
        self.taken.fill(false);
        self.beamformer.finish(&mut self.image).ok()?;
        Some(found).filter(|found| *found > 0)
    }
}

impl EventPainter for BMode {
    fn info(&self) -> PictureInfo {
        let about = "Envelope of the echoes by delay and sum of the plane waves of a frame, in dB below the maximum.";
        PictureInfo { kind: KIND, label: "B-mode".into(), about: about.into() }
    }

    fn request(&mut self, _about: &About, _events_per_s: f64) -> Request {
        Request { count: self.array.waves() as u16, stride: 1, multiple: self.waves as u32 }
    }

    fn take(&mut self, about: &About, event: Event) -> Option<Event> {
        if let Ok(state) = self.state.get_or_insert_with(|| State::new(&self.array, about)) {
            state.add(about, self.waves, &event);
        }
        None
    }

    fn paint(&mut self, about: &About, events: &[Event]) -> Option<Picture> {
        let state = match self.state.get_or_insert_with(|| State::new(&self.array, about)) {
            Ok(state) => state,
            Err(error) => return Some(Picture::message(KIND, error.clone())),
        };
        events.iter().for_each(|event| state.add(about, self.waves, event));
        let found = state.finish()?;
        let State { beamformer, image, picture, reference, .. } = state;
        let peak = image.iter().map(|pixel| pixel.norm_sqr()).fold(0.0, f32::max).sqrt();
        *reference = peak.max(*reference * PERSISTENCE);
        let shown = if reference.is_normal() { Reference::Given(*reference) } else { Reference::Maximum };
        let grid = *beamformer.grid();
        Display::new(DYNAMIC_RANGE_DB, shown).ok()?.draw(image, grid.columns, picture).ok()?;
        let mm = |first: f64, pitch: f64, count: usize| [first * 1e3, (first + pitch * (count - 1) as f64) * 1e3];
        let ([left, right], [top, bottom]) =
            (mm(grid.x_m, grid.column_pitch_m, grid.columns), mm(grid.z_m, grid.row_pitch_m, grid.rows));
        let x = Axis { label: "lateral", unit: "mm", from: left, to: right };
        let y = Axis { label: "depth", unit: "mm", from: top, to: bottom };
        let value = Axis { label: "echo", unit: "dB", from: -f64::from(DYNAMIC_RANGE_DB), to: 0.0 };
        let note = missing(found, self.waves, "transmissions");
        let header = Header { value, note, ..Header::new(KIND, Format::Gray8, grid.columns, grid.rows, x, y) };
        Some(Picture { header, payload: picture.clone() })
    }
}
