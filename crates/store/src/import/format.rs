//! The registry of import formats.
//!
//! A format is a file of its own, with its description `ABOUT`, its functions `recognizes` and `open`, and a line of the
//! table below.

use super::about::{About, Candidate, Takes};
use super::error::ImportError;
use super::options::ImportOptions;
use super::source::Source;
use super::{digital_rf, npy, sigmf, uff, zarr, zea};
use std::path::Path;

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
        let candidate = Candidate::new(from);
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
