//! Why nothing was imported.

use crate::StoreError;
use crate::zarr::objects::ObjectError;
use shotline_wire::shot::GeometryError;
use std::path::{Path, PathBuf};

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The recording cannot be written.
    #[error(transparent)]
    Recording(#[from] StoreError),
    /// The kernel refused something.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// libhdf5 failed.
    #[error("HDF5 cannot read {}: {source}", path.display())]
    Hdf5 {
        /// The file.
        path: PathBuf,
        /// The library's reason.
        source: hdf5::Error,
    },
    /// It is not what it seems, or not what can be read here.
    #[error("{}: {found}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What was expected, what was found, what to do.
        found: String,
    },
    /// Its shots cannot be shots of ours.
    #[error("{}: {source}; choose other shots (--samples)", path.display())]
    Geometry {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: GeometryError,
    },
    /// There is no memory for the shots.
    #[error("no memory for shot buffers: {0}")]
    Memory(#[from] shotline_memory::MemoryError),
    /// An object store refused something.
    #[error(transparent)]
    Objects(#[from] ObjectError),
    /// The caller asked for it.
    #[error("the import was stopped; nothing of it is left")]
    Stopped,
}

impl ImportError {
    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
    pub(super) fn hdf5(path: &Path) -> impl FnOnce(hdf5::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Hdf5 { path, source }
    }
    pub(super) fn format(path: &Path, found: impl Into<String>) -> Self {
        Self::Format { path: path.to_owned(), found: found.into() }
    }
}
