//! Parameters of ultrasound formats that are not in a recording: the probe and its transmissions.

use super::error::ExportError;
use super::shots::{Shots, Span};
use shotline_wire::shot::Geometry;

/// Linear array and its plane waves.
#[derive(Clone, Debug)]
pub struct Array {
    /// Element pitch in metres.
    pub pitch_m: f64,
    /// Width of an element in metres.
    pub width_m: f64,
    /// Height of an element in metres.
    pub height_m: f64,
    /// Centre frequency of the pulse in Hz.
    pub centre_hz: f64,
    /// Speed of sound in metres per second.
    pub sound_speed_m_s: f64,
    /// Angles of the plane waves in radians, in the order of transmission. Each shot is one transmission; a frame is
    /// one of each.
    pub angles_rad: Vec<f64>,
    /// Time from the transmission to the first sample, in seconds.
    pub initial_time_s: f64,
}

impl Default for Array {
    /// Returns a common 5 MHz probe with one plane wave at angle 0.
    fn default() -> Self {
        Self {
            pitch_m: 0.3e-3,
            width_m: 0.27e-3,
            height_m: 5e-3,
            centre_hz: 5e6,
            sound_speed_m_s: 1540.0,
            angles_rad: vec![0.0],
            initial_time_s: 0.0,
        }
    }
}

impl Array {
    /// Returns the x coordinates of the centres of `elements` elements, in metres.
    pub(super) fn x_m(&self, elements: usize) -> Vec<f64> {
        let centre = (elements as f64 - 1.0) / 2.0;
        (0..elements).map(|element| (element as f64 - centre) * self.pitch_m).collect()
    }
}

/// Mapping of shot numbers to frames of transmissions: shot `first + i` is transmission `i % waves` of frame
/// `i / waves`. A lost shot leaves its entry empty and does not shift the others.
#[derive(Clone, Debug)]
pub(super) struct Frames {
    /// Range of shot numbers and timestamps of the rows.
    pub span: Span,
    /// Transmissions per frame.
    pub waves: usize,
    /// Number of frames; the last one may be incomplete.
    pub frames: usize,
    /// Number of elements: the channels of all links.
    pub elements: usize,
    /// Geometry of the shots of a link.
    pub geometry: Geometry,
    /// Sample rate in Hz.
    pub rate: u32,
}

/// Maximum number of frames in a file. A larger number indicates damaged shot numbers rather than losses.
const MAX_FRAMES: u64 = 1 << 32;

impl Frames {
    /// Maps the shot numbers of the selected rows to frames of the array's plane waves.
    pub fn of(shots: &Shots<'_>, array: &Array, format: &'static str) -> Result<Self, ExportError> {
        let geometry = shots.geometry(format)?;
        let rate = shots.rate(shots.links()[0], format)?;
        let mut spans = shots.links().iter().map(|link| shots.span(*link));
        let mut span = spans.next().unwrap_or_else(|| Ok(Span::default()))?;
        for other in spans {
            span.recorded += other?.recorded;
        }
        let waves = array.angles_rad.len().max(1);
        let frames = span.count().div_ceil(waves as u64);
        if frames > MAX_FRAMES {
            let why = format!("shot numbers run from {} to {}: export a part (--from, --shots)", span.first, span.last);
            return Err(ExportError::Unsupported { format, why });
        }
        let elements = usize::from(geometry.channels()) * shots.links().len();
        Ok(Self { span, waves, frames: frames as usize, elements, geometry, rate })
    }

    /// Returns the frame and transmission of a shot.
    pub fn locate(&self, number: u64) -> (usize, usize) {
        let index = (number - self.span.first) as usize;
        (index / self.waves, index % self.waves)
    }

    /// Returns the number of unused transmissions in the last frame.
    pub fn unused(&self) -> u64 {
        (self.frames * self.waves) as u64 - self.span.count()
    }
}
