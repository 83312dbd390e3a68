//! M-mode: the echoes along the middle line over time.

use super::part::Samples;
use super::{EventPainter, bmode};
use crate::pictures::{Axis, Format, Header, Picture};
use crate::status::PictureInfo;
use realfft::num_complex::Complex;
use shotline_acquire::live::About;
use shotline_acquire::tap::{MAX_STRIDE, Request};
use shotline_compute::ultrasound::{Array, Beamformer, Display, Reference};
use shotline_store::shot::{Event, ShotMeta};

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
    columns: Vec<Column>,
    reference: f32,
    /// None: before the first line.
    times: Option<Times>,
}

/// A line of the picture, and its time in seconds after the first one of the painter.
struct Column {
    time_s: f64,
    pixels: Vec<u8>,
}

/// Returns a time of a shot in ns.
type Clock = fn(&ShotMeta) -> u64;

/// Times of lines by one clock: the sender's if the first line has its time, else the receiver's. They never decrease,
/// so that columns of several pictures follow one another although a clock was set.
struct Times {
    clock: Clock,
    first_ns: u64,
    newest_ns: u64,
}

impl Times {
    /// Chooses the clock for the first line.
    fn new(meta: &ShotMeta) -> Self {
        let clocks: [Clock; 2] = [|meta| meta.stamp_tai_ns, |meta| meta.arrived_tai_ns];
        let clock = clocks.into_iter().find(|clock| clock(meta) != 0).unwrap_or(|meta| meta.completed_tai_ns);
        Self { clock, first_ns: clock(meta), newest_ns: clock(meta) }
    }

    /// Returns the time of a line in seconds after the first one.
    fn next(&mut self, meta: &ShotMeta) -> f64 {
        self.newest_ns = (self.clock)(meta).max(self.newest_ns);
        (self.newest_ns - self.first_ns) as f64 / 1e9
    }
}

impl MMode {
    pub(super) fn new(mut array: Array) -> Self {
        let waves = array.waves();
        // The lines are those of the first transmission of each frame.
        array.angles_rad.truncate(1);
        Self { array, waves, state: None, columns: Vec::new(), reference: 0.0, times: None }
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
        let mut pixels = vec![0; ROWS];
        let drawn = Display::new(DYNAMIC_RANGE_DB, shown).map(|display| display.draw(&line, 1, &mut pixels));
        if drawn.is_ok_and(|drawn| drawn.is_ok())
            && let Some(shot) = event.shots.iter().flatten().next()
        {
            let times = self.times.get_or_insert_with(|| Times::new(&shot.meta));
            self.columns.push(Column { time_s: times.next(&shot.meta), pixels });
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
        let (width, first, newest) = (columns.len(), columns.first()?, columns.last()?);
        // The page shows times relative to the newest column.
        let x = Axis { label: "time", unit: "s", from: first.time_s, to: newest.time_s };
        let payload = (0..ROWS).flat_map(|row| columns.iter().map(move |column| column.pixels[row])).collect();
        let bottom = (grid.z_m + grid.row_pitch_m * (ROWS - 1) as f64) * 1e3;
        let y = Axis { label: "depth", unit: "mm", from: grid.z_m * 1e3, to: bottom };
        let value = Axis { label: "echo", unit: "dB", from: -f64::from(DYNAMIC_RANGE_DB), to: 0.0 };
        let header = Header { value, append: true, ..Header::new(KIND, Format::Gray8, width, ROWS, x, y) };
        Some(Picture { header, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Camera, about, check};
    use super::*;
    use shotline_wire::shot::{Packing, Trailer};

    fn camera() -> Camera {
        Camera::new(about(2, (8, 400), (16, Packing::Int16Le), 40_000_000, Trailer::None), 32)
    }

    /// Returns an event whose links have these times in ns, by the sender's clock and the receiver's.
    fn event(camera: &Camera, number: u64, stamp_ns: u64, arrived_ns: u64) -> Event {
        let values: Vec<i16> = (0..8 * 400).map(|at| (at % 97) as i16 * 20 - 900).collect();
        let mut event = camera.event(number, &values);
        for shot in event.shots.iter_mut().flatten() {
            (shot.meta.stamp_tai_ns, shot.meta.arrived_tai_ns) = (stamp_ns, arrived_ns);
        }
        event
    }

    /// Returns the axis of time of a picture of these lines.
    fn axis(painter: &mut MMode, camera: &Camera, events: &[Event]) -> (f64, f64) {
        let picture = painter.paint(&camera.about, events).unwrap();
        check(&picture);
        let x = &picture.header.x;
        assert_eq!((x.label, x.unit, picture.header.width), ("time", "s", events.len() as u32));
        (x.from, x.to)
    }

    #[test]
    fn columns_of_all_pictures_have_their_times() {
        let (camera, start) = (camera(), 1_800_000_000_000_000_000);
        let mut painter = MMode::new(Array::default());
        let at = |number, ms: u64| event(&camera, number, start + ms * 1_000_000, 5);
        assert_eq!(axis(&mut painter, &camera, &[at(10, 0), at(11, 5), at(12, 10)]), (0.0, 0.01));
        assert_eq!(axis(&mut painter, &camera, &[at(15, 25), at(16, 30)]), (0.025, 0.03));
        assert_eq!(axis(&mut painter, &camera, &[at(400, 3000)]), (3.0, 3.0));
    }

    #[test]
    fn lines_of_several_waves_are_a_frame_apart() {
        let (camera, start) = (camera(), 1_800_000_000_000_000_000);
        let mut painter = MMode::new(Array { angles_rad: vec![-0.1, 0.0, 0.1], ..Array::default() });
        let events: Vec<_> = (0..9).map(|shot| event(&camera, shot, start + shot * 1_000_000, 0)).collect();
        let picture = painter.paint(&camera.about, &events).unwrap();
        assert_eq!((picture.header.width, picture.header.x.from, picture.header.x.to), (3, 0.0, 0.006));
    }

    #[test]
    fn times_are_of_one_clock_and_never_decrease() {
        let camera = camera();
        let mut painter = MMode::new(Array::default());
        // The sender has no clock.
        assert_eq!(
            axis(&mut painter, &camera, &[event(&camera, 1, 0, 2_000), event(&camera, 2, 0, 1_000_002_000)]),
            (0.0, 1.0)
        );
        // The receiver's clock was set back; later the sender has one.
        assert_eq!(
            axis(&mut painter, &camera, &[event(&camera, 3, 0, 7), event(&camera, 4, 9, 1_500_002_000)]),
            (1.0, 1.5)
        );
        let mut painter = MMode::new(Array::default());
        // The second shot lacks the time of its sender.
        assert_eq!(axis(&mut painter, &camera, &[event(&camera, 1, 10, 900), event(&camera, 2, 0, 999)]), (0.0, 0.0));
    }
}
