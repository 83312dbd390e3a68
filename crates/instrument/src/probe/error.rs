//! Why there is no probe.

use super::config::ConfigError;
use shotline_memory::MemoryError;
use shotline_wire::shot::GeometryError;
use std::path::PathBuf;

/// Why there is no probe.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Its settings make no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It has no samples.
    #[error(transparent)]
    Samples(#[from] SampleError),
    /// It has no room for its distinct shots.
    #[error("{0}; or prepare fewer distinct shots")]
    Memory(#[from] MemoryError),
}

/// Why there are no samples.
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
    /// The file holds nothing that looks like shots.
    #[error(
        "{path} has no /data/rf_data/frame_N/shot_M: expected one (channels, samples) dataset a shot, as PICMUS-like files have"
    )]
    NoShots {
        /// The file.
        path: PathBuf,
    },
    /// Shots of one file differ in shape.
    #[error("{path}: {dataset} is {found:?}, expected {expected:?} (channels, samples) as the shots before it")]
    Shape {
        /// The file.
        path: PathBuf,
        /// The dataset in it.
        dataset: String,
        /// The first shot's shape.
        expected: Vec<usize>,
        /// This one's shape.
        found: Vec<usize>,
    },
    /// The links do not take the file's channels.
    #[error("{path} has {found} channels, {links} links of {channels} take {}: set --links or --channels", usize::from(*.links) * usize::from(*.channels))]
    Channels {
        /// The file.
        path: PathBuf,
        /// Channels in it.
        found: usize,
        /// Links configured.
        links: u8,
        /// Channels of each.
        channels: u16,
    },
    /// More samples were asked for than the file has.
    #[error("{path} has {found} samples per channel, {asked} were asked for: leave --samples out, or ask for fewer")]
    Samples {
        /// The file.
        path: PathBuf,
        /// Samples in it.
        found: usize,
        /// Samples asked for.
        asked: u32,
    },
    /// The shot that results cannot exist.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}
