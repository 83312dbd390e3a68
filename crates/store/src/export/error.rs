//! Errors of an export.

use crate::StoreError;
use crate::zarr::objects::ObjectError;
use std::path::{Path, PathBuf};

/// Error of an export. No output is left.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] StoreError),
    /// The destination exists already.
    #[error("{} exists already: choose another name, or overwrite it (--force)", path.display())]
    Exists {
        /// Existing file or folder.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// Operation that failed.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// libhdf5 failed.
    #[error("HDF5 cannot write {}: {source}", path.display())]
    Hdf5 {
        /// The file.
        path: PathBuf,
        /// Error of the library.
        source: hdf5::Error,
    },
    /// The format does not take these options or cannot hold this recording.
    #[error("this recording cannot be exported as {format}: {why}")]
    Unsupported {
        /// Name of the format.
        format: &'static str,
        /// What was expected, what was found, what to do.
        why: String,
    },
    /// The selection is empty, or names a link twice or one that does not exist.
    #[error("nothing to export: {0}")]
    InvalidSelection(String),
    /// An object store operation failed.
    #[error("{0}")]
    Objects(#[from] ObjectError),
    /// The progress callback stopped the export.
    #[error("the export was stopped and its output removed")]
    Stopped,
}

impl ExportError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
    pub(super) fn hdf5(path: &Path) -> impl FnOnce(hdf5::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Hdf5 { path, source }
    }
}
