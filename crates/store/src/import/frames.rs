//! Sources that have shots: arrays in which one index is the shot.

use super::error::ImportError;
use super::source::{Described, Numbers, Piece, Pieces, Source};
use crate::info::{LinkInfo, RunInfo};
use shotline_wire::shot::{Geometry, MAX_SHOTS, Packing};
use std::path::Path;

type ReadShot = Box<dyn FnMut(u64) -> Result<Piece, ImportError>>;

/// Shots that are numbered from 0, of one link.
pub(super) struct Frames {
    described: Described,
    next: u64,
    read: ReadShot,
}

impl Frames {
    /// `read` reads the shot of a number.
    pub fn new(described: Described, read: ReadShot) -> Self {
        Self { described, next: 0, read }
    }
}

impl Source for Frames {
    fn described(&self) -> &Described {
        &self.described
    }

    fn next(&mut self) -> Result<Option<Pieces>, ImportError> {
        if self.next == self.described.shots {
            return Ok(None);
        }
        let number = self.next;
        self.next += 1;
        let piece = (self.read)(number)?;
        Ok(Some(Pieces { number, links: vec![Some(piece)] }))
    }
}

/// What the shots of a source are like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub channels: u64,
    pub samples: u64,
    pub shots: u64,
    /// In Hz; 0: unknown.
    pub rate_hz: u32,
    pub numbers: Numbers,
}

/// Describes a source of one link.
pub(super) fn described(path: &Path, format: &'static str, shape: Shape) -> Result<Described, ImportError> {
    let Shape { channels, samples, shots, rate_hz, numbers } = shape;
    let unfit = || {
        let found =
            format!("expected shots of 1 to 65535 channels and 1 or more samples, found {channels} x {samples}");
        ImportError::format(path, found)
    };
    if shots > MAX_SHOTS {
        return Err(ImportError::format(path, format!("expected at most {MAX_SHOTS} shots, found {shots}")));
    }
    let (channels, samples) =
        (u16::try_from(channels).map_err(|_| unfit())?, u32::try_from(samples).map_err(|_| unfit())?);
    let (bits, packing) = if numbers == Numbers::Bytes { (8, Packing::Uint8) } else { (16, Packing::Int16Le) };
    let geometry = Geometry::new(channels, samples, bits, packing, rate_hz)
        .map_err(|source| ImportError::Geometry { path: path.to_owned(), source })?;
    let mut run = RunInfo::new(vec![LinkInfo { name: format.into(), stream: 0, geometry }]);
    run.instrument = format!("imported from {format}");
    // No packet of it ever was on a wire.
    run.framing = "import".into();
    run.config = format!("[import]\nfrom = {:?}\nformat = {format:?}\n", path.display().to_string());
    Ok(Described { format, numbers, run, shots, notes: Vec::new() })
}

/// A sample rate as recordings have it: whole hertz. Others are said to be unknown.
pub(super) fn whole_rate(hz: f64, notes: &mut Vec<String>) -> u32 {
    if hz.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&hz) {
        return hz as u32;
    }
    notes.push(format!("its sample rate of {hz} Hz is no whole number: the recording says that it is unknown"));
    0
}
