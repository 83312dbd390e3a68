//! Registry of import formats.
//!
//! A format is a module with its description `ABOUT` and its functions `recognizes` and `open`, and a line in the table
//! below.

use super::about::{Candidate, FormatInfo, ImportOption};
use super::error::ImportError;
use super::options::ImportOptions;
use super::source::Source;
use super::{digital_rf, npy, sigmf, uff, zarr, zea};
use std::path::Path;

macro_rules! formats {
    ($($(#[$what:meta])* $format:ident => $module:ident,)+) => {
        /// Import format.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Format {
            $($(#[$what])* $format,)+
        }

        impl Format {
            /// All formats, in the order in which they are tried on a source.
            pub const ALL: &'static [Self] = &[$(Self::$format,)+];

            /// Returns the description of the format.
            pub fn about(self) -> &'static FormatInfo {
                match self {
                    $(Self::$format => &$module::ABOUT,)+
                }
            }

            /// Returns `true` if a source has this format, by its name and contents.
            fn recognizes(self, candidate: &Candidate<'_>) -> Result<bool, ImportError> {
                match self {
                    $(Self::$format => $module::recognizes(candidate),)+
                }
            }

            /// Opens a source of this format.
            pub(super) fn open(self, from: &Path, options: &ImportOptions) -> Result<Box<dyn Source>, ImportError> {
                match self {
                    $(Self::$format => Ok(Box::new($module::open(from, options)?)),)+
                }
            }
        }
    };
}

formats! {
    /// SigMF: a pair of metadata and samples.
    SigMf => sigmf,
    /// A Zarr group exported by this crate, in a folder or an object store.
    Zarr => zarr,
    /// A folder of Digital RF.
    DigitalRf => digital_rf,
    /// Ultrasound File Format of the UltraSound ToolBox.
    Uff => uff,
    /// zea's HDF5 format.
    Zea => zea,
    /// A NumPy array.
    Npy => npy,
}

impl Format {
    /// Detects the format of a source.
    ///
    /// # Errors
    /// If the source cannot be read, or has no supported format.
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

    /// Refuses options that the format does not use.
    pub(super) fn check(self, from: &Path, options: &ImportOptions) -> Result<(), ImportError> {
        let FormatInfo { name, used_options, .. } = self.about();
        match ImportOption::given(options).find(|option| !used_options.contains(option)) {
            Some(option) => {
                Err(ImportError::format(from, format!("{name} does not support {}: omit it", option.name())))
            }
            None => Ok(()),
        }
    }
}

/// Column headings of [`rows`].
pub const HEADER: [&str; 4] = ["format", "source", "options", "feature"];

/// Returns a table row per format: name, description of a source, options, and the feature required for object
/// stores.
pub fn rows() -> Vec<[String; 4]> {
    let row = |format: &Format| {
        let FormatInfo { name, source, hdf5: _, used_options, feature } = *format.about();
        let used_options: Vec<_> = used_options.iter().map(|option| option.name()).collect();
        [name.to_owned(), source.to_owned(), used_options.join(" "), feature.unwrap_or_default().to_owned()]
    };
    Format::ALL.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_source_lists_all_formats() {
        let folder = tempfile::tempdir().unwrap();
        let (other, hdf5) = (folder.path().join("other"), folder.path().join("other.h5"));
        std::fs::write(&other, "other").unwrap();
        drop(hdf5::File::create(&hdf5).unwrap());
        let refused = |path: &Path| Format::of(path).unwrap_err().to_string();
        for format in Format::ALL {
            let FormatInfo { source, hdf5: inside, .. } = *format.about();
            assert!(refused(&other).contains(source), "{source}");
            assert!(inside.is_none_or(|inside| refused(&hdf5).contains(inside)), "{inside:?}");
        }
        assert_eq!(rows().len(), Format::ALL.len());
    }
}
