//! Sources with shots: arrays in which one dimension is the shot.

use super::error::ImportError;
use super::source::{LinkShot, NumberRange, ShotSet, Source, SourceInfo};
use crate::info::{LinkInfo, RunInfo};
use shotline_wire::shot::{Geometry, MAX_SHOTS, Packing};
use std::path::Path;

type ReadShot = Box<dyn FnMut(u64) -> Result<LinkShot, ImportError>>;

/// Source of the shots of one link, numbered from 0.
pub(super) struct Frames {
    info: SourceInfo,
    next: u64,
    read: ReadShot,
}

impl Frames {
    /// Creates a source. `read` returns the shot of a number.
    pub fn new(info: SourceInfo, read: ReadShot) -> Self {
        Self { info, next: 0, read }
    }
}

impl Source for Frames {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn next(&mut self) -> Result<Option<ShotSet>, ImportError> {
        if self.next == self.info.shots {
            return Ok(None);
        }
        let number = self.next;
        self.next += 1;
        let link_shot = (self.read)(number)?;
        Ok(Some(ShotSet { number, links: vec![Some(link_shot)] }))
    }
}

/// Shape of the shots of a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub channels: u64,
    pub samples: u64,
    pub shots: u64,
    /// Sample rate in Hz; 0 if unknown.
    pub rate_hz: u32,
    pub numbers: NumberRange,
}

/// Describes a source of one link.
pub(super) fn source_info(path: &Path, format: &'static str, shape: Shape) -> Result<SourceInfo, ImportError> {
    let Shape { channels, samples, shots, rate_hz, numbers } = shape;
    let out_of_range = || {
        let found =
            format!("expected shots of 1 to 65535 channels and 1 or more samples, found {channels} x {samples}");
        ImportError::format(path, found)
    };
    if shots > MAX_SHOTS {
        return Err(ImportError::format(path, format!("expected at most {MAX_SHOTS} shots, found {shots}")));
    }
    let (channels, samples) =
        (u16::try_from(channels).map_err(|_| out_of_range())?, u32::try_from(samples).map_err(|_| out_of_range())?);
    let (bits, packing) = if numbers == NumberRange::Bytes { (8, Packing::Uint8) } else { (16, Packing::Int16Le) };
    let geometry = Geometry::new(channels, samples, bits, packing, rate_hz)
        .map_err(|source| ImportError::Geometry { path: path.to_owned(), source })?;
    let mut run = RunInfo::new(vec![LinkInfo { name: format.into(), stream: 0, geometry }]);
    run.instrument = format!("imported from {format}");
    // The shots were never sent as packets.
    run.framing = "import".into();
    run.config = format!("[import]\nfrom = {:?}\nformat = {format:?}\n", path.display().to_string());
    Ok(SourceInfo { format, numbers, run, shots, notes: Vec::new() })
}

/// Returns a sample rate as whole hertz, as stored in recordings; 0 (unknown) with a note for other rates.
pub(super) fn whole_rate(hz: f64, notes: &mut Vec<String>) -> u32 {
    if hz.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&hz) {
        return hz as u32;
    }
    notes.push(format!("its sample rate of {hz} Hz is not a positive integer: recorded as unknown"));
    0
}
