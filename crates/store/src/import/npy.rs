//! NumPy `.npy` files, versions 1 to 3: an array (shot, sample, channel), or (sample, channel) of one shot.

use super::about::{Candidate, FormatInfo, ImportOption};
use super::error::ImportError;
use super::frames::{Frames, Shape, source_info};
use super::options::ImportOptions;
use super::source::{LinkShot, NumberRange};
use std::fs::File;
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
/// Maximum size of a header, in bytes.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Recognises the magic number.
pub(super) fn recognizes(candidate: &Candidate<'_>) -> Result<bool, ImportError> {
    Ok(candidate.first()?.starts_with(b"\x93NUMPY"))
}

pub(super) fn open(path: &Path, options: &ImportOptions) -> Result<Frames, ImportError> {
    let file = File::open(path).map_err(ImportError::io(path))?;
    let (header, start) = header(&file, path)?;
    let wrong = |what: &str| ImportError::format(path, format!("expected {what}, found the header {header}"));
    let (number, width) = number(field(&header, "descr").unwrap_or_default())
        .ok_or_else(|| wrong("little-endian integers or floating-point numbers"))?;
    if field(&header, "fortran_order") != Some("False") {
        return Err(wrong("an array in C order (numpy.ascontiguousarray)"));
    }
    let shape = header.split_once("'shape'").and_then(|(_, rest)| rest.split_once('(')?.1.split_once(')'));
    let dimensions: Option<Vec<u64>> = shape
        .map(|(inside, _)| inside.split(',').map(str::trim).filter(|n| !n.is_empty()).map(|n| n.parse().ok()).collect())
        .unwrap_or_default();
    let (shots, samples, channels) = match dimensions.as_deref() {
        Some([shots, samples, channels]) => (*shots, *samples, *channels),
        Some([samples, channels]) => (1, *samples, *channels),
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
    let (needed, available) =
        (shot.saturating_mul(shots), file.metadata().map_err(ImportError::io(path))?.len() - start);
    if available < needed {
        return Err(wrong(&format!("{needed} bytes of numbers after its header, which has {available}")));
    }
    let owned = path.to_owned();
    let mut bytes = vec![0; shot as usize];
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

/// Reads the header. Returns its text and the offset of the array.
fn header(file: &File, path: &Path) -> Result<(String, u64), ImportError> {
    let mut first = [0; 12];
    file.read_exact_at(&mut first, 0).map_err(ImportError::io(path))?;
    let (bytes, at) = match first[6] {
        1 => (u64::from(u16::from_le_bytes([first[8], first[9]])), 10),
        _ => (u64::from(u32::from_le_bytes([first[8], first[9], first[10], first[11]])), 12),
    };
    if bytes > MAX_HEADER_BYTES {
        return Err(ImportError::format(
            path,
            format!("expected a header of at most {MAX_HEADER_BYTES} bytes, found {bytes}"),
        ));
    }
    let mut text = vec![0; bytes as usize];
    file.read_exact_at(&mut text, at).map_err(ImportError::io(path))?;
    Ok((String::from_utf8_lossy(&text).trim().to_owned(), at + bytes))
}

/// Returns a scalar value of the header dictionary.
fn field<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let rest = header.split_once(&format!("'{name}':"))?.1.trim_start();
    Some(rest.split([',', '}']).next()?.trim().trim_matches('\''))
}

/// Parses a type descriptor to the kind and the size in bytes.
fn number(descr: &str) -> Option<(char, usize)> {
    let mut letters = descr.chars();
    let (order, kind, width) = (letters.next()?, letters.next()?, letters.as_str().parse().ok()?);
    let known = matches!((kind, width), ('i' | 'u', 1 | 2 | 4 | 8) | ('f', 4 | 8));
    (known && (order == '<' || width == 1)).then_some((kind, width))
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
        assert_eq!(
            (number("<i2"), number("|u1"), number(">i2"), number("<c8")),
            (Some(('i', 2)), Some(('u', 1)), None, None)
        );
    }
}
