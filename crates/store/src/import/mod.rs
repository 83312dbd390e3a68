//! Recordings made from what others have. [`Format`] lists the formats.
//!
//! The result is a recording like any other, with a record behind every shot: it can be replayed, verified and
//! exported. [`import`] reads shot by shot, so its memory does not grow with the input.

mod about;
mod blocks;
mod bounds;
mod digital_rf;
mod error;
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

pub use about::{About, Takes};
pub use error::ImportError;
pub use format::{Format, HEADER, rows};
pub use options::ImportOptions;
use source::{Numbers, Source};
use std::path::Path;
pub use write::{Imported, Progress};

/// Makes the recording `to` of what is at `from`. An object store is named as `s3://bucket/prefix`.
pub fn import(
    from: &Path,
    to: &Path,
    options: &ImportOptions,
    progress: Progress<'_>,
) -> Result<Imported, ImportError> {
    if options.rate_hz == Some(0) {
        let found = "--rate-hz: expected 1 or more, found 0: leave it out if the sample rate is not known";
        return Err(ImportError::format(from, found));
    }
    let format = Format::of(from)?;
    let mut source = format.open(from, options)?;
    format.check(from, options)?;
    let scale = match (options.scale, source.described().numbers) {
        (Some(scale), _) => scale,
        (None, Numbers::Bytes | Numbers::Int16) => 1.0,
        (None, Numbers::Any) => {
            let scale = fitting(&mut *source, progress)?;
            source = format.open(from, options)?;
            scale
        }
    };
    write::write(&mut *source, to, options, scale, progress)
}

/// The factor that makes a source's numbers fit 16 bits: 1 if they do and are whole.
fn fitting(source: &mut dyn Source, progress: Progress<'_>) -> Result<f64, ImportError> {
    let (mut most, mut whole, mut done) = (0.0_f64, true, 0);
    let shots = source.described().shots;
    while let Some(pieces) = source.next()? {
        for sample in pieces.links.iter().flatten().flat_map(|piece| &piece.samples).filter(|x| x.is_finite()) {
            most = most.max(sample.abs());
            whole &= sample.fract() == 0.0;
        }
        done += 1;
        if progress(done, 2 * shots).is_break() {
            return Err(ImportError::Stopped);
        }
    }
    let limit = f64::from(i16::MAX);
    Ok(if (whole && most <= limit) || most == 0.0 { 1.0 } else { (limit / most).min(f64::MAX) })
}
