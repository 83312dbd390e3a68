//! Mapping of shots to frames of an array's plane waves.

use super::error::ExportError;
use super::shots::{Shots, Span};
use shotline_compute::ultrasound::Array;
use shotline_wire::shot::Geometry;

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
        let waves = array.waves();
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
