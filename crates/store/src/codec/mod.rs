//! Compressed chunks: bit planes through LZ4 or zstd, as HDF5's registered filter 32008 (bitshuffle) has them.
//!
//! ```text
//! 0   bytes of the samples when unpacked, u64 big-endian
//! 8   bytes of a block when unpacked, u32 big-endian
//! 12  blocks: bytes that follow u32 big-endian, a block's bit planes compressed (the last block may be short)
//!     the samples beyond a multiple of 8, little-endian
//!     what closes the shot, as it came: here the filter has read all that it wants
//! ```
//!
//! A chunk unpacks to the slot that it was made of, byte for byte, so the record's CRC goes on proving it: what a chunk
//! cannot give back (bytes in the padding that are not zero) is not compressed.

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
pub use workers::held;

/// The filter's number in HDF5's registry.
pub(crate) const FILTER: i32 = 32008;
/// The version of the filter that these chunks are written for.
const FILTER_VERSION: [u32; 2] = [0, 5];
/// Bytes before the first block.
const HEAD: usize = 12;
/// Planes take samples in eights.
const EIGHT: usize = 8;

/// How chunks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Bit planes, then LZ4.
    Lz4,
    /// Bit planes, then zstd at a level.
    Zstd(i32),
}

impl Codec {
    /// The level of `zstd` if nobody names one: level 3 takes a quarter more time and gains half a hundredth.
    pub const DEFAULT_LEVEL: i32 = 1;

    /// The name without the level.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "bitshuffle-lz4",
            Self::Zstd(_) => "bitshuffle-zstd",
        }
    }

    /// Samples of a block: as many as compress best while all planes of a block stay in the first-level cache (LZ4)
    /// or the second (zstd, which keeps a table for each plane).
    fn block_samples(self) -> usize {
        match self {
            Self::Lz4 => 8192,
            Self::Zstd(_) => 16_384,
        }
    }

    /// The parameters of the filter as they stand in a dataset: the filter's version (two) and bytes of an element, which
    /// the filter itself would enter, then samples of a block, the codec, and its level.
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

    /// The codec of a dataset whose filter has these parameters; none of those that are not ours to read.
    pub(crate) fn of_filter(values: &[u32]) -> Option<Self> {
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

/// The samples of a shot in the blocks of a chunk.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    samples: usize,
    block: usize,
}

impl Blocks {
    fn new(geometry: &Geometry, block: usize) -> Self {
        Self { samples: usize::from(geometry.channels()) * geometry.samples() as usize, block }
    }
    /// First sample and count of each block. The last one is short if need be; samples beyond a multiple of 8 are in
    /// none.
    fn each(self) -> impl Iterator<Item = (usize, usize)> {
        let end = self.samples - self.left_over();
        (0..end).step_by(self.block).map(move |first| (first, self.block.min(end - first)))
    }
    /// Samples that are in no block.
    fn left_over(self) -> usize {
        self.samples % EIGHT
    }
}
