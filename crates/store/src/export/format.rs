//! Registry of export formats.
//!
//! A format is a module with its description `ABOUT` and its function `write`, and a line in the table below. A format
//! that creates a folder also lists its files in `foreign`, so that another export may replace it.

use super::about::{FormatInfo, OptionKind};
use super::destination::Destination;
use super::error::ExportError;
use super::options::Options;
use super::shots::Shots;
use super::{digital_rf, image, packets, sigmf, uff, zarr, zea};
use std::path::Path;

macro_rules! formats {
    ($($(#[$what:meta])* $format:ident => $module:ident,)+) => {
        /// Export format.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Format {
            $($(#[$what])* $format,)+
        }

        impl Format {
            /// All formats, in the order in which they are listed.
            pub const ALL: &'static [Self] = &[$(Self::$format,)+];

            /// Returns the description of the format.
            pub fn about(self) -> &'static FormatInfo {
                match self {
                    $(Self::$format => &$module::ABOUT,)+
                }
            }

            /// Writes the shots and returns the number of bytes written.
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
    /// Returns the name of the format.
    pub fn name(self) -> &'static str {
        self.about().name
    }

    /// Returns the formats that take a kind of options.
    pub fn with_options(kind: OptionKind) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |format| format.about().option_kind == kind)
    }

    /// Returns the format with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.name() == name)
    }

    /// Returns the format implied by the extension of a file name.
    pub fn implied_by(to: &Path) -> Option<Self> {
        let extension = to.extension()?.to_str()?;
        Self::ALL.iter().copied().find(|format| format.about().extensions.contains(&extension))
    }
}

/// Column headings of [`rows`].
pub const HEADER: [&str; 7] = ["format", "names", "summary", "output", "options", "losses", "feature"];

/// Returns a table row per format: name, extensions, summary, output, options, representation of losses, and the
/// feature required for object stores.
pub fn rows() -> Vec<[String; 7]> {
    let row = |format: &Format| {
        let FormatInfo { name, summary, extensions, option_kind: kind, target, losses, feature } = *format.about();
        let extensions: Vec<_> = extensions.iter().map(|extension| format!(".{extension}")).collect();
        let losses: Vec<_> = losses.iter().map(|losses| losses.name()).collect();
        [
            name.to_owned(),
            extensions.join(" "),
            summary.to_owned(),
            target.name().to_owned(),
            kind.name().to_owned(),
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
    fn names_and_extensions_are_unique() {
        for format in Format::ALL.iter().copied() {
            assert_eq!(Format::named(format.name()), Some(format));
            for extension in format.about().extensions {
                assert_eq!(Format::implied_by(Path::new(&format!("a.b.{extension}"))), Some(format), "{extension}");
            }
        }
        assert_eq!(Format::implied_by(Path::new("uff")), None);
        assert_eq!(rows().len(), Format::ALL.len());
    }
}
