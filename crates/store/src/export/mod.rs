//! Recordings as other programs of the field read them. [`Format`] lists the formats.
//!
//! [`export`] reads a recording shot by shot and writes as it reads, so its memory does not grow with the run. The
//! result appears under its name only when it is whole. What a recording lacks is said in each format's
//! own way, never passed over as zeros: see `docs/formats.md`.

mod about;
mod array;
pub mod conformance;
mod digital_rf;
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

use crate::StoreError;
use crate::draft::{Draft, Replace};
use crate::read::Recording;
use crate::zarr::objects::ObjectError;
pub use about::{About, Losses, Takes, Target};
pub use array::Array;
pub use format::{Format, HEADER, rows};
pub use options::{Options, Radio};
pub use select::Selection;
use serde::Serialize;
use shots::Shots;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
pub use zarr::ZarrOptions;

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

/// Why nothing was exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] StoreError),
    /// Something of that name is there already.
    #[error("{} exists already: choose another name, or overwrite it (--force)", path.display())]
    Exists {
        /// What is there.
        path: PathBuf,
    },
    /// The kernel refused something.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// libhdf5 failed.
    #[error("HDF5 cannot write {}: {source}", path.display())]
    Hdf5 {
        /// The file.
        path: PathBuf,
        /// The library's reason.
        source: hdf5::Error,
    },
    /// The format cannot hold this recording.
    #[error("this recording does not become {format}: {why}")]
    Unfit {
        /// The format.
        format: &'static str,
        /// What was expected, what was found, what to do.
        why: String,
    },
    /// There is nothing of that in the recording.
    #[error("nothing to export: {0}")]
    Nothing(String),
    /// An object store refused something.
    #[error("{0}")]
    Objects(#[from] ObjectError),
    /// The caller asked for it.
    #[error("the export was stopped; nothing of it is left")]
    Stopped,
}

impl ExportError {
    fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
    fn hdf5(path: &Path) -> impl FnOnce(hdf5::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Hdf5 { path, source }
    }
}

/// Is told how many shots of how many are done, and says whether to go on.
pub type Progress<'a> = &'a dyn Fn(u64, u64) -> ControlFlow<()>;

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

/// Where an export is written.
#[derive(Clone, Copy, Debug)]
struct Destination<'a> {
    /// Its name, or that of an object store.
    path: &'a Path,
    /// What it may take the place of.
    replace: Replace,
}

impl Destination<'_> {
    /// Begins a file or folder of the name.
    fn draft(&self) -> Result<Draft, StoreError> {
        Draft::new(self.path, self.replace)
    }
}
