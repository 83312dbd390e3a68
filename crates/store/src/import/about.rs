//! Descriptions of import formats, and candidate sources for their detection.

use super::error::ImportError;
use super::options::ImportOptions;
use crate::confined_path::read_magic;
use crate::metadata::header::SIGNATURE;
use std::cell::OnceCell;
use std::path::Path;

/// Option that only some formats use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportOption {
    /// [`ImportOptions::samples`].
    Samples,
    /// [`ImportOptions::sample_rate_hz`].
    SampleRateHz,
    /// [`ImportOptions::channel`].
    Channel,
    /// [`ImportOptions::pauses`].
    Pauses,
}

impl ImportOption {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Samples => "--samples",
            Self::SampleRateHz => "--sample-rate-hz",
            Self::Channel => "--channel",
            Self::Pauses => "--pauses",
        }
    }

    /// Returns the options that were given.
    pub(super) fn given(options: &ImportOptions) -> impl Iterator<Item = Self> {
        // Scale and overwrite apply to every format.
        let ImportOptions { samples, sample_rate_hz, channel, scale: _, pauses, overwrite: _ } = options;
        let all = [
            (Self::Samples, samples.is_some()),
            (Self::SampleRateHz, sample_rate_hz.is_some()),
            (Self::Channel, channel.is_some()),
            (Self::Pauses, *pauses),
        ];
        all.into_iter().filter(|(_, given)| *given).map(|(option, _)| option)
    }
}

/// Description of a format.
#[derive(Clone, Copy, Debug)]
pub struct FormatInfo {
    /// Name of the format.
    pub name: &'static str,
    /// Short description of an expected source.
    pub source: &'static str,
    /// For HDF5 formats: the expected contents of the file.
    pub hdf5: Option<&'static str>,
    /// Options that the format uses.
    pub used_options: &'static [ImportOption],
    /// Feature of this crate that object stores require.
    pub feature: Option<&'static str>,
}

/// A source of unknown format. Its contents are read once, on first use.
pub(super) struct Candidate<'a> {
    pub path: &'a Path,
    first: OnceCell<Vec<u8>>,
    hdf5: OnceCell<hdf5::File>,
}

impl<'a> Candidate<'a> {
    pub fn new(path: &'a Path) -> Self {
        Self { path, first: OnceCell::new(), hdf5: OnceCell::new() }
    }

    /// Returns `true` if the file name has this extension.
    pub fn has_extension(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|found| found == extension)
    }

    /// Returns the first 8 bytes of the file, or all of a shorter one.
    pub fn first(&self) -> Result<&[u8], ImportError> {
        if self.first.get().is_none() {
            let first = read_magic(self.path).map_err(ImportError::io(self.path))?;
            let _ = self.first.set(first);
        }
        Ok(self.first.get().map_or(&[], Vec::as_slice))
    }

    /// Returns the file if it is an HDF5 file.
    pub fn hdf5(&self) -> Result<Option<&hdf5::File>, ImportError> {
        if self.first()? != SIGNATURE {
            return Ok(None);
        }
        if self.hdf5.get().is_none() {
            let file = hdf5::File::open(self.path).map_err(ImportError::hdf5(self.path))?;
            let _ = self.hdf5.set(file);
        }
        Ok(self.hdf5.get())
    }
}
