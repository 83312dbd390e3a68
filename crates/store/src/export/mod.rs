//! Export of recordings to formats of other programs. [`Format`] lists the formats.
//!
//! [`export`] reads and writes shot by shot, so its memory does not grow with the run. The output appears under its
//! name only when it is complete. Each format marks missing data in its own way; missing data is never silently
//! replaced by zeros: see `docs/formats.md`.

mod about;
pub mod conformance;
mod destination;
mod digital_rf;
mod error;
mod foreign;
mod format;
mod frames;
mod image;
mod options;
mod packets;
mod select;
mod shots;
mod sigmf;
mod timeline;
mod uff;
mod zarr;
mod zea;

use crate::draft::Replace;
use crate::read::Recording;
pub use about::{FormatInfo, Losses, OptionKind, Target};
use destination::Destination;
pub use error::ExportError;
pub use format::{Format, HEADER, rows};
pub use options::{Options, Radio, ZarrOptions};
pub use select::Selection;
use serde::Serialize;
pub use shots::Progress;
use shots::Shots;
use std::path::{Path, PathBuf};

/// Report of an export.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExportReport {
    /// Name of the format.
    pub format: &'static str,
    /// Path or address of the output.
    pub to: PathBuf,
    /// Number of exported links.
    pub links: usize,
    /// Complete shots.
    pub complete: u64,
    /// Shots that are incomplete or not verified.
    pub partial: u64,
    /// Lost shots between the first and the last.
    pub lost: u64,
    /// Missing samples of partial shots.
    pub missing_samples: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Remarks on the output.
    pub notes: Vec<String>,
}

/// Exports the selected shots of a recording to `to`, a path or an object store `s3://bucket/prefix`. `replace` permits
/// replacing an existing export.
///
/// # Errors
/// [`ExportError::Unsupported`] if the format does not take these options or cannot hold the recording,
/// [`ExportError::InvalidSelection`] if the selection is empty or invalid, and other variants for failures. After an
/// error no output is left. An existing file or folder at `to` is then unchanged; an existing export in an object store
/// is removed before the new one is written.
pub fn export(
    recording: &Recording,
    selection: &Selection,
    (format, options): (Format, &Options),
    to: &Path,
    replace: bool,
    progress: Progress<'_>,
) -> Result<ExportReport, ExportError> {
    options.check(format.about())?;
    // Refuse to replace the recording itself, under any name, or a folder that contains it.
    if let (Ok(recording_path), Ok(destination)) = (recording.path().canonicalize(), to.canonicalize())
        && recording_path.starts_with(&destination)
    {
        let source = std::io::Error::other("the recording that is exported is there");
        return Err(ExportError::Io { what: "replace", path: to.to_owned(), source });
    }
    let mut shots = Shots::new(recording, selection, progress)?;
    let mut notes = Vec::new();
    let replace = if replace { Replace::Folder(foreign::find_foreign) } else { Replace::Nothing };
    let bytes = format.write(&mut shots, options, &Destination { path: to, replace }, &mut notes)?;
    let counters = shots.counters();
    Ok(ExportReport {
        format: format.name(),
        to: to.to_owned(),
        links: shots.links().len(),
        complete: counters.complete,
        partial: counters.partial,
        lost: counters.lost,
        missing_samples: counters.missing_samples,
        bytes,
        notes,
    })
}
