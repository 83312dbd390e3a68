//! NumPy `.npy` files, versions 1 to 3: an array (shot, sample, channel), or (sample, channel) of one shot.

use super::about::{Candidate, FormatInfo, ImportOption};
use super::error::ImportError;
use super::frames::{Frames, Shape, source_info};
use super::options::ImportOptions;
use super::source::{LinkShot, NumberRange};
use crate::npy::Array;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(super) const ABOUT: FormatInfo = FormatInfo {
    name: "npy",
    source: "NumPy (.npy)",
    hdf5: None,
    used_options: &[ImportOption::SampleRateHz],
    feature: None,
};
const FORMAT: &str = ABOUT.name;

/// Recognises the magic number.
pub(super) fn recognizes(candidate: &Candidate<'_>) -> Result<bool, ImportError> {
    Ok(candidate.first()?.starts_with(b"\x93NUMPY"))
}

pub(super) fn open(path: &Path, options: &ImportOptions) -> Result<Frames, ImportError> {
    let array = Array::open(path)?;
    let wrong = |what: &str| array.wrong(path, what);
    let ((number, width), start) = ((array.kind, array.width), array.start);
    let (shots, samples, channels) = match array.dimensions.as_slice() {
        [shots, samples, channels] => (*shots, *samples, *channels),
        [samples, channels] => (1, *samples, *channels),
        _ => return Err(wrong("2 or 3 dimensions: (shot,) sample, channel")),
    };
    let numbers = match (number, width) {
        ('u', 1) => NumberRange::Bytes,
        ('i', 1 | 2) => NumberRange::Int16,
        _ => NumberRange::Any,
    };
    let rate_hz = options.sample_rate_hz.unwrap_or(0);
    let mut info = source_info(path, FORMAT, Shape { channels, samples, shots, rate_hz, numbers })?;
    if rate_hz == 0 {
        info.notes.push("its sample rate is not known: set it with --sample-rate-hz".into());
    }
    let shot = (samples * channels).saturating_mul(width as u64);
    array.check_length(path)?;
    let owned = path.to_owned();
    let (file, mut bytes) = (array.file, vec![0; shot as usize]);
    Ok(Frames::new(
        info,
        Box::new(move |shot| {
            let at = start + shot * bytes.len() as u64;
            file.read_exact_at(&mut bytes, at).map_err(ImportError::io(&owned))?;
            let samples = bytes.chunks_exact(width).map(|bytes| value(number, bytes)).collect();
            Ok(LinkShot { samples, ..LinkShot::default() })
        }),
    ))
}

/// Decodes a little-endian number.
pub(super) fn value(kind: char, bytes: &[u8]) -> f64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let unsigned = u64::from_le_bytes(wide);
    let unused = 64 - 8 * bytes.len() as u32;
    match (kind, bytes.len()) {
        ('f', 4) => f64::from(f32::from_bits(unsigned as u32)),
        ('f', _) => f64::from_bits(unsigned),
        ('u', _) => unsigned as f64,
        _ => ((unsigned << unused) as i64 >> unused) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_kind_are_read() {
        assert_eq!(value('i', &[0xFF]), -1.0);
        assert_eq!(value('i', &[0, 0x80]), -32768.0);
        assert_eq!(value('u', &[0xFF, 0xFF]), 65535.0);
        assert_eq!(value('f', &1.5_f32.to_le_bytes()), 1.5);
        assert_eq!(value('f', &(-2.25_f64).to_le_bytes()), -2.25);
    }
}
