//! What an import format says of itself, and what it is shown of a source.

use super::error::ImportError;
use super::options::ImportOptions;
use crate::beneath::first_bytes;
use crate::metadata::header::SIGNATURE;
use std::cell::OnceCell;
use std::path::Path;

/// Options that only some formats have a use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// [`ImportOptions::samples`].
    Samples,
    /// [`ImportOptions::rate_hz`].
    RateHz,
    /// [`ImportOptions::channel`].
    Channel,
    /// [`ImportOptions::pauses`].
    Pauses,
}

impl Takes {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Samples => "--samples",
            Self::RateHz => "--rate-hz",
            Self::Channel => "--channel",
            Self::Pauses => "--pauses",
        }
    }

    /// Those that were given.
    pub(super) fn given(options: &ImportOptions) -> impl Iterator<Item = Self> {
        // Every source takes a scale and may replace a file.
        let ImportOptions { samples, rate_hz, channel, scale: _, pauses, overwrite: _ } = options;
        let all = [
            (Self::Samples, samples.is_some()),
            (Self::RateHz, rate_hz.is_some()),
            (Self::Channel, channel.is_some()),
            (Self::Pauses, *pauses),
        ];
        all.into_iter().filter(|(_, given)| *given).map(|(option, _)| option)
    }
}

/// What a format is and takes.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// What is expected of a source, in a few words.
    pub source: &'static str,
    /// Of a format in HDF5: what is expected in the file.
    pub hdf5: Option<&'static str>,
    /// The options that it has a use for.
    pub takes: &'static [Takes],
    /// The feature of this crate that its object stores need.
    pub feature: Option<&'static str>,
}

/// A source whose format is not known yet. What is read of it is read once, when a format asks for it.
pub(super) struct Candidate<'a> {
    pub path: &'a Path,
    first: OnceCell<Vec<u8>>,
    hdf5: OnceCell<hdf5::File>,
}

impl<'a> Candidate<'a> {
    pub fn new(path: &'a Path) -> Self {
        Self { path, first: OnceCell::new(), hdf5: OnceCell::new() }
    }

    /// Whether its name has an ending.
    pub fn is_named(&self, ending: &str) -> bool {
        self.path.extension().is_some_and(|found| found == ending)
    }

    /// Its first bytes.
    pub fn first(&self) -> Result<&[u8], ImportError> {
        if self.first.get().is_none() {
            let first = first_bytes(self.path).map_err(ImportError::io(self.path))?;
            let _ = self.first.set(first);
        }
        Ok(self.first.get().map_or(&[], Vec::as_slice))
    }

    /// The file, if it is one of HDF5.
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
