//! Errors of creating a probe.

use super::config::ConfigError;
use shotline_memory::MemoryError;
use shotline_wire::shot::GeometryError;
use std::path::PathBuf;

/// Reason why a probe could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The settings are invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The sample source could not be opened.
    #[error(transparent)]
    Samples(#[from] SampleError),
    /// Memory for the distinct shots could not be allocated.
    #[error("{0}; or prepare fewer distinct shots")]
    Memory(#[from] MemoryError),
}

/// Reason why a sample source could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// HDF5 could not read the file.
    #[error("cannot read {path}: {source}")]
    Hdf5 {
        /// The file.
        path: PathBuf,
        /// HDF5's reason.
        source: hdf5::Error,
    },
    /// The file has no shots in the expected layout.
    #[error(
        "{path} has no /data/rf_data/frame_N/shot_M: expected one (channels, samples) dataset per shot, as in PICMUS files"
    )]
    NoShots {
        /// The file.
        path: PathBuf,
    },
    /// Shots of one file differ in shape.
    #[error("{path}: {dataset} has shape {found:?}, expected {expected:?} (channels, samples) like the previous shots")]
    Shape {
        /// The file.
        path: PathBuf,
        /// The dataset in it.
        dataset: String,
        /// The first shot's shape.
        expected: Vec<usize>,
        /// This shot's shape.
        found: Vec<usize>,
    },
    /// The links' channels do not add up to the file's.
    #[error("{path} has {found} channels, but {links} links of {channels} require {}: set --links or --channels", usize::from(*.links) * usize::from(*.channels))]
    Channels {
        /// The file.
        path: PathBuf,
        /// Channels in it.
        found: usize,
        /// Links configured.
        links: u8,
        /// Channels per link.
        channels: u16,
    },
    /// More samples were requested than the file has.
    #[error("{path} has {found} samples per channel, but {requested} are requested: omit --samples, or request fewer")]
    Samples {
        /// The file.
        path: PathBuf,
        /// Samples in it.
        found: usize,
        /// Samples requested.
        requested: u32,
    },
    /// The samples of a program have other channels or fewer samples than the probe.
    #[error(
        "expected {links} links of {channels} channels and at most {found_samples} samples, found {found_channels} \
         channels in all and a request for {requested} samples: change the links, the channels, or the samples"
    )]
    GivenMismatch {
        /// Links configured.
        links: u8,
        /// Channels per link.
        channels: u16,
        /// Channels given.
        found_channels: usize,
        /// Samples given per channel.
        found_samples: u32,
        /// Samples requested per channel.
        requested: u32,
    },
    /// The sample rate is too low for a phantom's pulse.
    #[error(
        "a phantom with a centre frequency of {} MHz needs at least {} MS/s, found {}: raise the sample rate, or lower the centre frequency",
        .centre_hz / 1e6, .lowest_hz / 1e6, .found_hz / 1e6
    )]
    SlowSampling {
        /// Centre frequency of the pulse in Hz.
        centre_hz: f64,
        /// Lowest sample rate for it in Hz.
        lowest_hz: f64,
        /// Configured sample rate in Hz.
        found_hz: f64,
    },
    /// The samples of a phantom end before its transmission.
    #[error("the last sample of a phantom must be after the transmission, found {} us: raise the initial time", .end_s * 1e6)]
    EarlyEnd {
        /// Time of the last sample after the transmission, in seconds.
        end_s: f64,
    },
    /// The echoes of a phantom and its distinct shots do not fit in memory.
    #[error(
        "a phantom with {waves} waves, {phases} phases and {samples} samples: {source}; fewer --angles, --phases or \
         --samples need less"
    )]
    PhantomMemory {
        /// Plane waves of a frame.
        waves: usize,
        /// Phases of the wall.
        phases: u32,
        /// Samples per channel.
        samples: u32,
        /// Needed and available memory.
        source: MemoryError,
    },
    /// The resulting geometry is invalid.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}
