//! What an export format says of itself.

/// Kinds of options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// No options of its own.
    Nothing,
    /// The geometry of an ultrasound array and its transmissions: [`super::Array`].
    Array,
    /// What a radio knows: [`super::Radio`].
    Radio,
    /// How arrays are cut and packed: [`super::ZarrOptions`].
    Zarr,
}

impl Takes {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Array => "array geometry",
            Self::Radio => "radio",
            Self::Zarr => "zarr",
        }
    }
}

/// What an export makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One file.
    File,
    /// Two files for each link, side by side: samples, and metadata about them.
    Pairs,
    /// A folder.
    Folder,
    /// A folder, or the objects below a prefix of an object store.
    FolderOrObjects,
}

impl Target {
    /// Words for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Pairs => "pair of files",
            Self::Folder => "folder",
            Self::FolderOrObjects => "folder or object store",
        }
    }
}

/// How a format expresses what was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losses {
    /// Missing samples are NaN.
    Nan,
    /// Missing samples are 0, and something beside them says which.
    Mask,
    /// What is missing is not there, and the places of the rest show that.
    Gap,
}

impl Losses {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nan => "NaN",
            Self::Mask => "mask",
            Self::Gap => "gap",
        }
    }
}

/// What a format is, takes and can express.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Endings of names that imply it, without the dot, the usual one first. None: it has to be named.
    pub endings: &'static [&'static str],
    /// The options that it takes.
    pub takes: Takes,
    /// What it makes.
    pub target: Target,
    /// How it expresses losses; empty: not at all.
    pub losses: &'static [Losses],
    /// The feature of this crate that its object stores need.
    pub feature: Option<&'static str>,
}
