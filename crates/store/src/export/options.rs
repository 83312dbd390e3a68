//! Format-specific options.

use super::about::{FormatInfo, OptionKind};
use super::error::ExportError;
use shotline_compute::ultrasound::Array;

/// Parameters of radio formats that are not in a recording.
#[derive(Clone, Debug, Default)]
pub struct Radio {
    /// Channels are IQ pairs: in phase, then quadrature.
    pub iq: bool,
    /// Centre frequency in Hz, if known.
    pub centre_hz: Option<f64>,
}

/// Chunking and compression of Zarr arrays.
#[derive(Clone, Copy, Debug, Default)]
pub struct ZarrOptions {
    /// Shots, samples and channels per chunk; `None` for whole shots, at least 512 KiB.
    pub chunk: Option<[u64; 3]>,
    /// Shots per shard, which is one file or object; `None` for about 32 MiB.
    pub shard_shots: Option<u64>,
    /// Zstandard level; `None` for no compression.
    pub zstd: Option<i32>,
}

/// Options of a format.
#[derive(Clone, Debug, Default)]
pub enum Options {
    /// No options.
    #[default]
    Nothing,
    /// Options of [`OptionKind::Array`].
    Array(Array),
    /// Options of [`OptionKind::Radio`].
    Radio(Radio),
    /// Options of [`OptionKind::Zarr`].
    Zarr(ZarrOptions),
}

impl Options {
    /// Returns the default options of a kind.
    pub fn of(kind: OptionKind) -> Self {
        match kind {
            OptionKind::Nothing => Self::Nothing,
            OptionKind::Array => Self::Array(Array::default()),
            OptionKind::Radio => Self::Radio(Radio::default()),
            OptionKind::Zarr => Self::Zarr(ZarrOptions::default()),
        }
    }

    /// Returns the kind of the options.
    pub fn kind(&self) -> OptionKind {
        match self {
            Self::Nothing => OptionKind::Nothing,
            Self::Array(_) => OptionKind::Array,
            Self::Radio(_) => OptionKind::Radio,
            Self::Zarr(_) => OptionKind::Zarr,
        }
    }

    /// Checks that the options are of the kind that the format takes.
    pub(super) fn check(&self, format: &FormatInfo) -> Result<(), ExportError> {
        if self.kind() == format.option_kind { Ok(()) } else { Err(self.wrong_kind(format)) }
    }

    pub(super) fn array(&self, format: &FormatInfo) -> Result<&Array, ExportError> {
        match self {
            Self::Array(array) => Ok(array),
            Self::Nothing | Self::Radio(_) | Self::Zarr(_) => Err(self.wrong_kind(format)),
        }
    }

    pub(super) fn radio(&self, format: &FormatInfo) -> Result<&Radio, ExportError> {
        match self {
            Self::Radio(radio) => Ok(radio),
            Self::Nothing | Self::Array(_) | Self::Zarr(_) => Err(self.wrong_kind(format)),
        }
    }

    pub(super) fn zarr(&self, format: &FormatInfo) -> Result<&ZarrOptions, ExportError> {
        match self {
            Self::Zarr(zarr) => Ok(zarr),
            Self::Nothing | Self::Array(_) | Self::Radio(_) => Err(self.wrong_kind(format)),
        }
    }

    fn wrong_kind(&self, format: &FormatInfo) -> ExportError {
        let (expected, found) = (format.option_kind.name(), self.kind().name());
        let why = format!(
            "expected options of the kind {expected:?}, found {found:?}: Options::of(OptionKind::{:?}) has the defaults",
            format.option_kind
        );
        ExportError::Unsupported { format: format.name, why }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::*;

    #[test]
    fn options_of_another_kind_are_refused_with_a_remedy() {
        for (format, found) in [(Format::Zea, Options::Nothing), (Format::Hdf5, Options::of(OptionKind::Array))] {
            let refused = found.check(format.about()).unwrap_err().to_string();
            let remedy = format!("Options::of(OptionKind::{:?})", format.about().option_kind);
            assert!(refused.contains(found.kind().name()) && refused.contains(&remedy), "{refused}");
        }
    }
}
