//! Errors of an import.

use crate::StoreError;
use crate::zarr::objects::ObjectError;
use shotline_wire::shot::GeometryError;
use std::path::{Path, PathBuf};

/// Error of an import. No recording is left.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The recording cannot be written.
    #[error(transparent)]
    Recording(#[from] StoreError),
    /// A file operation failed.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// libhdf5 failed.
    #[error("HDF5 cannot read {}: {source}", path.display())]
    Hdf5 {
        /// The file.
        path: PathBuf,
        /// Error of the library.
        source: hdf5::Error,
    },
    /// The source is invalid or not supported.
    #[error("{}: {found}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What was expected, what was found, what to do.
        found: String,
    },
    /// The shots of the source have an unsupported geometry.
    #[error("{}: {source}; choose another number of samples per shot (--samples)", path.display())]
    Geometry {
        /// The file.
        path: PathBuf,
        /// Reason.
        source: GeometryError,
    },
    /// Shot buffers cannot be allocated.
    #[error("no memory for shot buffers: {0}")]
    Memory(#[from] shotline_memory::MemoryError),
    /// An object store operation failed.
    #[error(transparent)]
    Objects(#[from] ObjectError),
    /// The progress callback stopped the import.
    #[error("the import was stopped and its output removed")]
    Stopped,
}

impl ImportError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
    pub(super) fn hdf5(path: &Path) -> impl FnOnce(hdf5::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Hdf5 { path, source }
    }
    pub(crate) fn format(path: &Path, found: impl Into<String>) -> Self {
        Self::Format { path: path.to_owned(), found: found.into() }
    }
}
