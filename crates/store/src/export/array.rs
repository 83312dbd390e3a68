//! What the formats of ultrasound need to know and a recording does not say: the probe and its transmissions.

use super::error::ExportError;
use super::shots::{Shots, Span};
use shotline_wire::shot::Geometry;

/// A linear array and its plane waves.
#[derive(Clone, Debug)]
pub struct Array {
    /// Distance from element to element in metres.
    pub pitch_m: f64,
    /// Width of an element in metres.
    pub width_m: f64,
    /// Height of an element in metres.
    pub height_m: f64,
    /// Centre frequency of the pulse in Hz.
    pub centre_hz: f64,
    /// Speed of sound in metres per second.
    pub sound_speed_m_s: f64,
    /// Angles of the plane waves in radians, in the order of their transmission: one shot is one of them, a frame is
    /// all.
    pub angles_rad: Vec<f64>,
    /// Time from the transmission to the first sample, in seconds.
    pub initial_time_s: f64,
}

impl Default for Array {
    /// A common probe of 5 MHz, one plane wave straight ahead.
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
    /// Where the centres of `elements` elements lie on the x axis, in metres.
    pub(super) fn x_m(&self, elements: usize) -> Vec<f64> {
        let centre = (elements as f64 - 1.0) / 2.0;
        (0..elements).map(|element| (element as f64 - centre) * self.pitch_m).collect()
    }
}

/// Shots as frames of transmissions, by their numbers: shot `first + i` is transmission `i % waves` of frame
/// `i / waves`. So a lost shot leaves its place empty, and no other one moves.
#[derive(Clone, Debug)]
pub(super) struct Frames {
    /// What the rows span.
    pub span: Span,
    /// Transmissions of a frame.
    pub waves: usize,
    /// Frames, the last one perhaps not full.
    pub frames: usize,
    /// Elements: the channels of all links side by side.
    pub elements: usize,
    /// The shape of a link's shots.
    pub geometry: Geometry,
    /// The sample rate in Hz.
    pub rate: u32,
}

/// Frames that one file can have: beyond them numbers are damaged rather than shots lost.
const MOST_FRAMES: u64 = 1 << 32;

impl Frames {
    pub fn of(shots: &Shots<'_>, array: &Array, format: &'static str) -> Result<Self, ExportError> {
        let geometry = shots.geometry(format)?;
        let rate = shots.rate(shots.links()[0], format)?;
        let mut spans = shots.links().iter().map(|link| shots.span(*link));
        let mut span = spans.next().unwrap_or_else(|| Ok(Span::default()))?;
        for other in spans {
            span.held += other?.held;
        }
        let waves = array.angles_rad.len().max(1);
        let frames = span.count().div_ceil(waves as u64);
        if frames > MOST_FRAMES {
            let why = format!("shot numbers run from {} to {}: export a part (--from, --shots)", span.first, span.last);
            return Err(ExportError::Unfit { format, why });
        }
        let elements = usize::from(geometry.channels()) * shots.links().len();
        Ok(Self { span, waves, frames: frames as usize, elements, geometry, rate })
    }

    /// Frame and transmission of a shot.
    pub fn place(&self, number: u64) -> (usize, usize) {
        let at = (number - self.span.first) as usize;
        (at / self.waves, at % self.waves)
    }

    /// Places that no shot has because the last frame is not full.
    pub fn spare(&self) -> u64 {
        (self.frames * self.waves) as u64 - self.span.count()
    }
}
