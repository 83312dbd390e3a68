//! Recordings as other programs of the field read them. [`Format`] lists the formats.
//!
//! [`export`] reads a recording shot by shot and writes as it reads, so its memory does not grow with the run. The
//! result appears under its name only when it is whole. What a recording lacks is said in each format's
//! own way, never passed over as zeros: see `docs/formats.md`.

mod about;
mod array;
pub mod conformance;
mod destination;
mod digital_rf;
mod error;
mod format;
mod image;
mod options;
mod own;
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
pub use about::{About, Losses, Takes, Target};
pub use array::Array;
use destination::Destination;
pub use error::ExportError;
pub use format::{Format, HEADER, rows};
pub use options::{Options, Radio, ZarrOptions};
pub use select::Selection;
use serde::Serialize;
pub use shots::Progress;
use shots::Shots;
use std::path::{Path, PathBuf};

/// What was exported.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Exported {
    /// The format's name.
    pub format: &'static str,
    /// Where it is.
    pub to: PathBuf,
    /// Links that were exported.
    pub links: usize,
    /// Their shots that are whole.
    pub complete: u64,
    /// Shots of which something is missing, or unproven.
    pub partial: u64,
    /// Shots between the first and the last that are not there at all.
    pub lost: u64,
    /// Samples that are missing in the partial ones.
    pub missing_samples: u64,
    /// Bytes written.
    pub bytes: u64,
    /// What a reader of the result should know.
    pub notes: Vec<String>,
}

/// Exports what is selected of a recording to `to`; with `replace` over what is there. An object store is named as
/// `s3://bucket/prefix`.
///
/// # Errors
/// [`ExportError::Unfit`] if the format does not take these options or cannot hold the recording,
/// [`ExportError::Nothing`] if nothing is selected, and the others as they say. Nothing of the export is left then, and
/// what was at `to` is as it was.
pub fn export(
    recording: &Recording,
    selection: &Selection,
    (format, options): (Format, &Options),
    to: &Path,
    replace: bool,
    progress: Progress<'_>,
) -> Result<Exported, ExportError> {
    options.check(format.about())?;
    // The recording itself, also by another name, and any folder that holds it.
    if let (Ok(from), Ok(there)) = (recording.path().canonicalize(), to.canonicalize())
        && from.starts_with(&there)
    {
        let source = std::io::Error::other("the recording that is exported is there");
        return Err(ExportError::Io { what: "replace", path: to.to_owned(), source });
    }
    let mut shots = Shots::new(recording, selection, progress)?;
    let mut notes = Vec::new();
    let replace = if replace { Replace::Folder(own::foreign) } else { Replace::Nothing };
    let bytes = format.write(&mut shots, options, &Destination { path: to, replace }, &mut notes)?;
    let tally = shots.tally();
    Ok(Exported {
        format: format.name(),
        to: to.to_owned(),
        links: shots.links().len(),
        complete: tally.complete,
        partial: tally.partial,
        lost: tally.lost,
        missing_samples: tally.missing_samples,
        bytes,
        notes,
    })
}
