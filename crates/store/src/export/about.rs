//! Descriptions of export formats.

/// Kind of options that a format takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// No options.
    Nothing,
    /// Geometry of an ultrasound array and its transmissions: [`shotline_compute::ultrasound::Array`].
    Array,
    /// Parameters of a radio recording: [`super::Radio`].
    Radio,
    /// Chunking and compression of arrays: [`super::ZarrOptions`].
    Zarr,
}

impl OptionKind {
    /// Returns the name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Array => "array geometry",
            Self::Radio => "radio",
            Self::Zarr => "zarr",
        }
    }
}

/// Kind of output of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One file.
    File,
    /// Two files per link: samples and metadata.
    Pairs,
    /// A folder.
    Folder,
    /// A folder, or objects below a prefix of an object store.
    FolderOrObjects,
}

impl Target {
    /// Returns the name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Pairs => "pair of files",
            Self::Folder => "folder",
            Self::FolderOrObjects => "folder or object store",
        }
    }
}

/// Representation of data that was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losses {
    /// Missing samples are NaN.
    Nan,
    /// Missing samples are 0, and a separate mask marks them.
    Mask,
    /// Missing samples are omitted, and the indexes of the others show the gap.
    Gap,
}

impl Losses {
    /// Returns the name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nan => "NaN",
            Self::Mask => "mask",
            Self::Gap => "gap",
        }
    }
}

/// Description of a format.
#[derive(Clone, Copy, Debug)]
pub struct FormatInfo {
    /// Name on the command line.
    pub name: &'static str,
    /// One-line summary.
    pub summary: &'static str,
    /// File extensions that imply the format, without the dot, the usual one first. If empty, the format must be named.
    pub extensions: &'static [&'static str],
    /// Options that the format takes.
    pub option_kind: OptionKind,
    /// Kind of output.
    pub target: Target,
    /// Representations of losses; empty if the format has none.
    pub losses: &'static [Losses],
    /// Feature of this crate that object stores require.
    pub feature: Option<&'static str>,
}
