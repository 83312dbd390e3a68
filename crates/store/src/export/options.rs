//! Options that only some formats take.

use super::about::{About, Takes};
use super::array::Array;
use super::error::ExportError;

/// What is not in a recording of a radio, and its formats have a place for.
#[derive(Clone, Debug, Default)]
pub struct Radio {
    /// Channels are pairs: in phase, then in quadrature.
    pub iq: bool,
    /// Centre frequency in Hz, if it is known.
    pub centre_hz: Option<f64>,
}

/// How samples are cut and packed.
#[derive(Clone, Copy, Debug, Default)]
pub struct ZarrOptions {
    /// Shots, samples and channels of a chunk [whole shots, some hundred kilobytes].
    pub chunk: Option<[u64; 3]>,
    /// Shots of a shard, which is one file or object [about 32 MiB].
    pub shard_shots: Option<u64>,
    /// Zstandard level; none: not compressed.
    pub zstd: Option<i32>,
}

/// The options of one format: those of the kind that it takes.
#[derive(Clone, Debug, Default)]
pub enum Options {
    /// None.
    #[default]
    Nothing,
    /// Of [`Takes::Array`].
    Array(Array),
    /// Of [`Takes::Radio`].
    Radio(Radio),
    /// Of [`Takes::Zarr`].
    Zarr(ZarrOptions),
}

impl Options {
    /// The defaults of a kind.
    pub fn of(takes: Takes) -> Self {
        match takes {
            Takes::Nothing => Self::Nothing,
            Takes::Array => Self::Array(Array::default()),
            Takes::Radio => Self::Radio(Radio::default()),
            Takes::Zarr => Self::Zarr(ZarrOptions::default()),
        }
    }

    /// Their kind.
    pub fn kind(&self) -> Takes {
        match self {
            Self::Nothing => Takes::Nothing,
            Self::Array(_) => Takes::Array,
            Self::Radio(_) => Takes::Radio,
            Self::Zarr(_) => Takes::Zarr,
        }
    }

    /// Refuses options of another kind than the format takes.
    pub(super) fn check(&self, format: &About) -> Result<(), ExportError> {
        if self.kind() == format.takes { Ok(()) } else { Err(self.misfit(format)) }
    }

    pub(super) fn array(&self, format: &About) -> Result<&Array, ExportError> {
        match self {
            Self::Array(array) => Ok(array),
            Self::Nothing | Self::Radio(_) | Self::Zarr(_) => Err(self.misfit(format)),
        }
    }

    pub(super) fn radio(&self, format: &About) -> Result<&Radio, ExportError> {
        match self {
            Self::Radio(radio) => Ok(radio),
            Self::Nothing | Self::Array(_) | Self::Zarr(_) => Err(self.misfit(format)),
        }
    }

    pub(super) fn zarr(&self, format: &About) -> Result<&ZarrOptions, ExportError> {
        match self {
            Self::Zarr(zarr) => Ok(zarr),
            Self::Nothing | Self::Array(_) | Self::Radio(_) => Err(self.misfit(format)),
        }
    }

    fn misfit(&self, format: &About) -> ExportError {
        let (expected, found) = (format.takes.name(), self.kind().name());
        let why = format!(
            "expected options of the kind {expected:?}, found {found:?}: Options::of(Takes::{:?}) has the defaults",
            format.takes
        );
        ExportError::Unfit { format: format.name, why }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::*;

    #[test]
    fn options_of_another_kind_are_refused_with_those_to_take() {
        for (format, found) in [(Format::Zea, Options::Nothing), (Format::Hdf5, Options::of(Takes::Array))] {
            let refused = found.check(format.about()).unwrap_err().to_string();
            let remedy = format!("Options::of(Takes::{:?})", format.about().takes);
            assert!(refused.contains(found.kind().name()) && refused.contains(&remedy), "{refused}");
        }
    }
}
