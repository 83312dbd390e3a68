//! Sources without shots: streams of samples, possibly with gaps.
//!
//! Each contiguous block is divided into shots from its start. The remainder at its end is a partial shot.

use super::bounds::time;
use super::error::ImportError;
use super::options::ImportOptions;
use super::source::{LinkShot, ShotSet, Source, SourceInfo};
use crate::info::RunInfo;
use shotline_wire::shot::MAX_SHOTS;
use std::path::{Path, PathBuf};

/// Maximum samples per shot, unless set by an option.
const MAX_SAMPLES: u64 = 16_384;
/// Minimum samples per shot for a length that divides all blocks. Below it, the maximum length is used.
const MIN_SAMPLES: u64 = 256;
/// Maximum sample index. At 10^9 samples per second it is reached in 2116.
pub(super) const MAX_INDEX: u64 = 1 << 62;
/// Maximum size of the samples of a shot, in bytes.
const MAX_SHOT_BYTES: u64 = 8 << 20;

/// A contiguous block of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Index of the first sample on the source's timeline.
    pub start: u64,
    /// Number of samples.
    pub samples: u64,
    /// Number of the first shot, if the source specifies it.
    pub number: Option<u64>,
}

/// Reads instants of a block: (block, offset, count).
pub(super) type ReadBlock = Box<dyn FnMut(usize, u64, usize) -> Result<Vec<f64>, ImportError>>;

/// Returns the time of a sample (block, offset) in TAI nanoseconds; 0 if unknown.
pub(super) type Stamp = Box<dyn Fn(usize, u64) -> i128>;

/// Source of contiguous blocks.
pub(super) struct Blocks {
    path: PathBuf,
    info: SourceInfo,
    blocks: Vec<Block>,
    pauses: bool,
    stamp: Stamp,
    read: ReadBlock,
    /// Index of the current block.
    block: usize,
    /// Samples of the current block that were read.
    offset: u64,
    /// Number of the next shot, without shots lost in a gap.
    number: u64,
}

impl Blocks {
    /// Creates a source. `read` returns all channels of each instant.
    pub fn new(
        path: &Path,
        info: SourceInfo,
        blocks: Vec<Block>,
        options: &ImportOptions,
        stamp: Stamp,
        read: ReadBlock,
    ) -> Self {
        let path = path.to_owned();
        Self { path, info, blocks, pauses: options.pauses, stamp, read, block: 0, offset: 0, number: 0 }
    }

    /// Returns the number of the shot at the current position.
    fn current_number(&self, samples: u64) -> u64 {
        let current = self.blocks[self.block];
        if self.offset > 0 {
            return self.number;
        }
        let Some(previous) = self.block.checked_sub(1).map(|index| self.blocks[index]) else {
            return current.number.unwrap_or(0);
        };
        // The missing part of a partial shot belongs to that shot.
        let end = previous.start + previous.samples.next_multiple_of(samples);
        let lost = if self.pauses { 0 } else { current.start.saturating_sub(end).div_ceil(samples) };
        current.number.map_or(self.number + lost, |number| number.max(self.number))
    }
}

impl Source for Blocks {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn next(&mut self) -> Result<Option<ShotSet>, ImportError> {
        let Some(block) = self.blocks.get(self.block).copied() else { return Ok(None) };
        let geometry = self.info.run.links[0].geometry;
        let (samples, channels) = (u64::from(geometry.samples()), usize::from(geometry.channels()));
        let (number, at) = (self.current_number(samples), block.start + self.offset);
        if number >= MAX_SHOTS {
            let found = format!("expected shot numbers below {MAX_SHOTS}, found {number} at sample {at}");
            let found = format!("{found}: if its gaps are pauses, in which no shots are lost, use --pauses");
            return Err(ImportError::format(&self.path, found));
        }
        let count = samples.min(block.samples - self.offset);
        let stamp = (self.stamp)(self.block, self.offset);
        let stamp_tai_ns = time(&self.path, &format!("the time of sample {at}"), stamp)?;
        let mut values = (self.read)(self.block, self.offset, count as usize)?;
        values.resize(samples as usize * channels, f64::NAN);
        self.number = number + 1;
        self.offset += count;
        if self.offset == block.samples {
            (self.block, self.offset) = (self.block + 1, 0);
        }
        let link_shot = LinkShot { samples: values, stamp_tai_ns, entry: None };
        Ok(Some(ShotSet { number, links: vec![Some(link_shot)] }))
    }
}

/// Returns the samples per shot: as requested, or else the largest length that divides every block.
pub(super) fn samples_per_shot(
    path: &Path,
    blocks: &[Block],
    channels: u64,
    requested: Option<u32>,
) -> Result<u64, ImportError> {
    let longest = blocks.iter().map(|block| block.samples).max().unwrap_or(0);
    if longest == 0 || channels == 0 {
        return Err(ImportError::format(path, "expected 1 sample or more, found none"));
    }
    if let Some(requested) = requested {
        return Ok(u64::from(requested.max(1)));
    }
    let max = (MAX_SHOT_BYTES / (channels * 2)).clamp(1, MAX_SAMPLES).min(longest);
    let common = blocks.iter().fold(0, |common, block| gcd(common, block.samples));
    let dividing = (1..=max).rev().find(|samples| common.is_multiple_of(*samples)).unwrap_or(1);
    Ok(if dividing >= MIN_SAMPLES.min(longest) { dividing } else { max })
}

/// Returns the number of shots into which blocks are divided.
pub(super) fn count_shots(blocks: &[Block], samples: u64) -> u64 {
    blocks.iter().map(|block| block.samples.div_ceil(samples)).sum()
}

/// Returns the greatest common divisor.
fn gcd(a: u64, b: u64) -> u64 {
    if a == 0 { b } else { gcd(b % a, a) }
}

/// Sets the start of the run to the first sample of the source, if its time is known, and returns TAI - UTC in
/// nanoseconds: that of the source, or else that of the system clock (0 if its TAI offset is not set).
pub(super) fn set_start(run: &mut RunInfo, source_s: Option<i64>, first_utc_ns: Option<u64>) -> i64 {
    const SECOND: i64 = 1_000_000_000;
    let system = (run.start_tai_ns.saturating_sub(run.start_utc_ns) as i64 + SECOND / 2) / SECOND * SECOND;
    let tai_minus_utc_ns = source_s.map_or(system, |seconds| seconds * SECOND);
    run.start_utc_ns = first_utc_ns.unwrap_or(run.start_utc_ns);
    run.start_tai_ns = run.start_utc_ns.saturating_add_signed(tai_minus_utc_ns);
    tai_minus_utc_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shot_lengths_divide_the_blocks_if_possible() {
        let of = |lengths: &[u64]| {
            let blocks: Vec<_> = lengths.iter().map(|n| Block { start: 0, samples: *n, number: None }).collect();
            samples_per_shot(Path::new("a"), &blocks, 2, None).unwrap()
        };
        assert_eq!(of(&[288_000]), 16_000);
        assert_eq!(of(&[356_868]), 15_516);
        assert_eq!(of(&[1000, 3000]), 1000);
        assert_eq!(of(&[100]), 100);
        assert_eq!(of(&[166, 67, 27, 538]), 538, "no common divisor");
        assert_eq!(of(&[1_000_003]), 16_384, "a prime");
    }
}
