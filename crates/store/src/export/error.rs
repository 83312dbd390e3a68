//! Why nothing was exported.

use crate::StoreError;
use crate::zarr::objects::ObjectError;
use std::path::{Path, PathBuf};

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
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
    pub(super) fn hdf5(path: &Path) -> impl FnOnce(hdf5::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Hdf5 { path, source }
    }
}
