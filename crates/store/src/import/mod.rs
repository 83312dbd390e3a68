//! Import of foreign formats as recordings. [`Format`] lists the formats.
//!
//! The result is a normal recording with an end-of-shot record after every shot; it can be replayed, verified and
//! exported. [`import`] reads shot by shot, so its memory does not grow with the input.

mod about;
mod blocks;
mod bounds;
mod digital_rf;
pub(crate) mod error;
mod files;
mod format;
mod frames;
mod npy;
mod options;
mod sigmf;
mod source;
mod uff;
mod write;
mod zarr;
mod zea;

pub use about::{FormatInfo, ImportOption};
pub use error::ImportError;
pub use format::{Format, HEADER, rows};
pub use options::ImportOptions;
use source::{NumberRange, Source};
use std::path::Path;
pub use write::{ImportReport, Progress};

/// Imports `from`, a path or an object store `s3://bucket/prefix`, as the recording `to`.
///
/// # Errors
/// If the source cannot be read or its format is not supported, or if the recording cannot be written. No recording is
/// left then.
pub fn import(
    from: &Path,
    to: &Path,
    options: &ImportOptions,
    progress: Progress<'_>,
) -> Result<ImportReport, ImportError> {
    if options.sample_rate_hz == Some(0) {
        let found = "--sample-rate-hz: expected 1 or more, found 0: omit it if the sample rate is not known";
        return Err(ImportError::format(from, found));
    }
    let format = Format::of(from)?;
    let mut source = format.open(from, options)?;
    format.check(from, options)?;
    let scale = match (options.scale, source.info().numbers) {
        (Some(scale), _) => scale,
        (None, NumberRange::Bytes | NumberRange::Int16) => 1.0,
        (None, NumberRange::Any) => {
            let scale = find_scale(&mut *source, progress)?;
            source = format.open(from, options)?;
            scale
        }
    };
    write::write(&mut *source, to, options, scale, progress)
}

/// Returns the factor that makes the numbers of a source fit 16 bits: 1 if they are integers that fit.
fn find_scale(source: &mut dyn Source, progress: Progress<'_>) -> Result<f64, ImportError> {
    let (mut max, mut whole, mut done) = (0.0_f64, true, 0);
    let shots = source.info().shots;
    while let Some(shot_set) = source.next()? {
        for sample in shot_set.links.iter().flatten().flat_map(|link_shot| &link_shot.samples).filter(|x| x.is_finite())
        {
            max = max.max(sample.abs());
            whole &= sample.fract() == 0.0;
        }
        done += 1;
        if progress(done, 2 * shots).is_break() {
            return Err(ImportError::Stopped);
        }
    }
    let limit = f64::from(i16::MAX);
    Ok(if (whole && max <= limit) || max == 0.0 { 1.0 } else { (limit / max).min(f64::MAX) })
}
