//! The registry of import formats, and how a source is known for one.
//!
//! A format is a file of its own, with its description `ABOUT`, its functions `recognizes` and `open`, and a line of the
//! table below.

use super::{ImportError, ImportOptions, Source};
use super::{digital_rf, npy, sigmf, uff, zarr, zea};
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
    fn given(options: &ImportOptions) -> impl Iterator<Item = Self> {
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

macro_rules! formats {
    ($($(#[$what:meta])* $format:ident => $module:ident,)+) => {
        /// A format that recordings are made from.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Format {
            $($(#[$what])* $format,)+
        }

        impl Format {
            /// Every format, in the order in which a source is asked for them.
            pub const ALL: &'static [Self] = &[$(Self::$format,)+];

            /// What it is and takes.
            pub fn about(self) -> &'static About {
                match self {
                    $(Self::$format => &$module::ABOUT,)+
                }
            }

            /// Whether a source is of it, by its name and its first bytes.
            fn recognizes(self, candidate: &Candidate<'_>) -> Result<bool, ImportError> {
                match self {
                    $(Self::$format => $module::recognizes(candidate),)+
                }
            }

            /// Opens a source of it.
            pub(super) fn open(self, from: &Path, options: &ImportOptions) -> Result<Box<dyn Source>, ImportError> {
                match self {
                    $(Self::$format => Ok(Box::new($module::open(from, options)?)),)+
                }
            }
        }
    };
}

formats! {
    /// SigMF: metadata and samples side by side.
    SigMf => sigmf,
    /// A group of Zarr that was exported from here, in a folder or an object store.
    Zarr => zarr,
    /// A folder of Digital RF.
    DigitalRf => digital_rf,
    /// Ultrasound File Format of the UltraSound ToolBox.
    Uff => uff,
    /// zea's HDF5 format.
    Zea => zea,
    /// An array of NumPy.
    Npy => npy,
}

impl Format {
    /// The format of a source.
    ///
    /// # Errors
    /// If it cannot be read, or is of no format that is known here.
    pub(super) fn of(from: &Path) -> Result<Self, ImportError> {
        let candidate = Candidate { path: from, first: OnceCell::new(), hdf5: OnceCell::new() };
        for format in Self::ALL.iter().copied() {
            if format.recognizes(&candidate)? {
                return Ok(format);
            }
        }
        let abouts = Self::ALL.iter().map(|format| format.about());
        let found = if candidate.hdf5()?.is_some() {
            let expected: Vec<_> = abouts.filter_map(|about| about.hdf5).collect();
            format!("expected {} in this HDF5 file, found none of them", expected.join(" or "))
        } else {
            let expected: Vec<_> = abouts.map(|about| about.source).collect();
            format!("expected {}, found none of them", expected.join(", "))
        };
        Err(ImportError::format(from, found))
    }

    /// Refuses options that would change nothing.
    pub(super) fn check(self, from: &Path, options: &ImportOptions) -> Result<(), ImportError> {
        let About { name, takes, .. } = self.about();
        match Takes::given(options).find(|option| !takes.contains(option)) {
            Some(option) => Err(ImportError::format(from, format!("{name} has no {}: leave it out", option.name()))),
            None => Ok(()),
        }
    }
}

/// A source whose format is not known yet. What is read of it is read once, when a format asks for it.
pub(super) struct Candidate<'a> {
    pub path: &'a Path,
    first: OnceCell<Vec<u8>>,
    hdf5: OnceCell<hdf5::File>,
}

impl Candidate<'_> {
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

/// The columns of [`rows`].
pub const HEADER: [&str; 4] = ["format", "source", "options", "feature"];

/// A row for each format: name, what a source is, options that it has a use for, and the feature that it needs for
/// object stores.
pub fn rows() -> Vec<[String; 4]> {
    let row = |format: &Format| {
        let About { name, source, hdf5: _, takes, feature } = *format.about();
        let takes: Vec<_> = takes.iter().map(|option| option.name()).collect();
        [name.to_owned(), source.to_owned(), takes.join(" "), feature.unwrap_or_default().to_owned()]
    };
    Format::ALL.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_of_no_format_lists_what_there_is() {
        let folder = tempfile::tempdir().unwrap();
        let (other, hdf5) = (folder.path().join("other"), folder.path().join("other.h5"));
        std::fs::write(&other, "other").unwrap();
        drop(hdf5::File::create(&hdf5).unwrap());
        let refused = |path: &Path| Format::of(path).unwrap_err().to_string();
        for format in Format::ALL {
            let About { source, hdf5: inside, .. } = *format.about();
            assert!(refused(&other).contains(source), "{source}");
            assert!(inside.is_none_or(|inside| refused(&hdf5).contains(inside)), "{inside:?}");
        }
        assert_eq!(rows().len(), Format::ALL.len());
    }
}
