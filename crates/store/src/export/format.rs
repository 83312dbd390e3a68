//! The registry of export formats.
//!
//! A format is a file of its own, with its description `ABOUT` and its function `write`, and a line of the table below.
//! One that makes a folder also lists its files in `own`, so that another export may replace it.

use super::about::{About, Takes};
use super::destination::Destination;
use super::error::ExportError;
use super::options::Options;
use super::shots::Shots;
use super::{digital_rf, image, packets, sigmf, uff, zarr, zea};
use std::path::Path;

macro_rules! formats {
    ($($(#[$what:meta])* $format:ident => $module:ident,)+) => {
        /// A format that recordings are exported to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Format {
            $($(#[$what])* $format,)+
        }

        impl Format {
            /// Every format, in the order of lists.
            pub const ALL: &'static [Self] = &[$(Self::$format,)+];

            /// What it is, takes and can express.
            pub fn about(self) -> &'static About {
                match self {
                    $(Self::$format => &$module::ABOUT,)+
                }
            }

            /// Writes the shots. Returns how many bytes that made.
            pub(super) fn write(
                self,
                shots: &mut Shots<'_>,
                options: &Options,
                to: &Destination<'_>,
                notes: &mut Vec<String>,
            ) -> Result<u64, ExportError> {
                match self {
                    $(Self::$format => $module::write(shots, options, to, notes),)+
                }
            }
        }
    };
}

formats! {
    /// Ultrasound File Format of the UltraSound ToolBox: one HDF5 file with `channel_data`.
    Uff => uff,
    /// zea's HDF5 format, as its version 0.1 reads it.
    Zea => zea,
    /// Digital RF 2: a folder with one channel for each link.
    DigitalRf => digital_rf,
    /// SigMF 1.2: `.sigmf-meta` and `.sigmf-data`, a pair for each link.
    SigMf => sigmf,
    /// Zarr version 3, in a folder or an object store.
    Zarr => zarr,
    /// A packet capture.
    Pcapng => packets,
    /// The recording as it is, from a raw device.
    Hdf5 => image,
}

impl Format {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.about().name
    }

    /// The formats that take options of a kind.
    pub fn taking(kind: Takes) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |format| format.about().takes == kind)
    }

    /// The format of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.name() == name)
    }

    /// The format that the ending of a file's name implies.
    pub fn implied_by(to: &Path) -> Option<Self> {
        let ending = to.extension()?.to_str()?;
        Self::ALL.iter().copied().find(|format| format.about().endings.contains(&ending))
    }
}

/// The columns of [`rows`].
pub const HEADER: [&str; 7] = ["format", "names", "what it is", "makes", "options", "losses", "feature"];

/// A row for each format: name, endings that imply it, summary, target, options, how losses are said, and the feature
/// that it needs for object stores.
pub fn rows() -> Vec<[String; 7]> {
    let row = |format: &Format| {
        let About { name, summary, endings, takes, target, losses, feature } = *format.about();
        let endings: Vec<_> = endings.iter().map(|ending| format!(".{ending}")).collect();
        let losses: Vec<_> = losses.iter().map(|losses| losses.name()).collect();
        [
            name.to_owned(),
            endings.join(" "),
            summary.to_owned(),
            target.name().to_owned(),
            takes.name().to_owned(),
            losses.join(", "),
            feature.unwrap_or_default().to_owned(),
        ]
    };
    Format::ALL.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_endings_mean_one_format() {
        for format in Format::ALL.iter().copied() {
            assert_eq!(Format::named(format.name()), Some(format));
            for ending in format.about().endings {
                assert_eq!(Format::implied_by(Path::new(&format!("a.b.{ending}"))), Some(format), "{ending}");
            }
        }
        assert_eq!(Format::implied_by(Path::new("uff")), None);
        assert_eq!(rows().len(), Format::ALL.len());
    }
}
