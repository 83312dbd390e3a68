//! Compressed chunks: bit planes compressed with LZ4 or zstd, in the format of HDF5's registered filter 32008
//! (bitshuffle).
//!
//! ```text
//! 0   decompressed bytes of the samples, u64 big-endian
//! 8   decompressed bytes of a block, u32 big-endian
//! 12  blocks: compressed length u32 big-endian, compressed bit planes (the last block may be short)
//!     the samples beyond a multiple of 8, little-endian
//!     the shot's trailer, uncompressed; the filter does not read it
//! ```
//!
//! A chunk decompresses to exactly the bytes of its slot, so the CRC of the end-of-shot record stays valid. A slot that
//! a chunk cannot represent (nonzero bytes in the padding) is not compressed.

mod decode;
mod encode;
#[cfg(test)]
mod tests;
pub(crate) mod workers;

use serde::{Serialize, Serializer};
use shotline_wire::shot::{Geometry, Packing};
use std::fmt;
use std::str::FromStr;

pub use decode::{DecodeError, Decoder};
pub use encode::Encoder;
pub use workers::max_held_buffers;

/// Identifier of the filter in HDF5's registry.
pub(crate) const FILTER: i32 = 32008;
/// Version of the filter format (major, minor).
const FILTER_VERSION: [u32; 2] = [0, 5];
/// Bytes before the first block.
const HEADER_BYTES: usize = 12;
/// Samples per byte of a bit plane.
const GROUP_SAMPLES: usize = 8;

/// Compression method of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Bit planes, then LZ4.
    Lz4,
    /// Bit planes, then zstd at this level.
    Zstd(i32),
}

impl Codec {
    /// Default zstd level. Level 3 takes 25% more time and saves only another 0.5%.
    pub const DEFAULT_LEVEL: i32 = 1;

    /// Returns the name without the level.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "bitshuffle-lz4",
            Self::Zstd(_) => "bitshuffle-zstd",
        }
    }

    /// Returns the samples per block: the size with the best compression at which all planes of a block fit the L1
    /// cache (LZ4) or the L2 cache (zstd, which has one table per plane).
    fn block_samples(self) -> usize {
        match self {
            Self::Lz4 => 8192,
            Self::Zstd(_) => 16_384,
        }
    }

    /// Returns the filter parameters of a dataset: filter version (major, minor) and element size, which the filter
    /// itself would set, then samples per block, codec and level.
    pub(crate) fn filter(self, packing: Packing) -> Vec<u32> {
        let element = element_bytes(packing) as u32;
        let [major, minor] = FILTER_VERSION;
        let mut values = vec![major, minor, element, self.block_samples() as u32];
        match self {
            Self::Lz4 => values.push(2),
            Self::Zstd(level) => values.extend([3, level as u32]),
        }
        values
    }

    /// Returns the codec for the filter parameters of a dataset, or `None` if it is not supported.
    pub(crate) fn from_filter(values: &[u32]) -> Option<Self> {
        match values.get(4)? {
            2 => Some(Self::Lz4),
            3 => Some(Self::Zstd(values.get(5).map_or(0, |level| *level as i32))),
            _ => None,
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lz4 => f.write_str(self.name()),
            Self::Zstd(level) => write!(f, "{} level {level}", self.name()),
        }
    }
}

impl FromStr for Codec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "lz4" | "bitshuffle-lz4" => Ok(Self::Lz4),
            "zstd" | "bitshuffle-zstd" => Ok(Self::Zstd(Self::DEFAULT_LEVEL)),
            _ => Err(format!("expected lz4 or zstd, found {text}")),
        }
    }
}

impl Serialize for Codec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn element_bytes(packing: Packing) -> usize {
    if packing == Packing::Uint8 { 1 } else { 2 }
}

/// Division of the samples of a shot into the blocks of a chunk.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    /// Samples of a shot, over all channels.
    samples: usize,
    /// Samples per block.
    block: usize,
}

impl Blocks {
    fn new(geometry: &Geometry, block: usize) -> Self {
        Self { samples: usize::from(geometry.channels()) * geometry.samples() as usize, block }
    }
    /// Iterates over the blocks as (first sample, count). The last block may be short; samples beyond a multiple of 8
    /// are in no block.
    fn iter(self) -> impl Iterator<Item = (usize, usize)> {
        let end = self.samples - self.remainder();
        (0..end).step_by(self.block).map(move |first| (first, self.block.min(end - first)))
    }
    /// Returns the number of samples that are in no block, 0 to 7.
    fn remainder(self) -> usize {
        self.samples % GROUP_SAMPLES
    }
}
