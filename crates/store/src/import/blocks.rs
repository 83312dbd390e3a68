//! Sources that go on without shots: samples one behind the other, perhaps with gaps.
//!
//! Each block without a gap is cut into shots from its beginning. What is left at its end is a partial shot.

use super::bounds::time;
use super::error::ImportError;
use super::options::ImportOptions;
use super::source::{Described, Piece, Pieces, Source};
use crate::info::RunInfo;
use shotline_wire::shot::MAX_SHOTS;
use std::path::{Path, PathBuf};

/// Samples of a shot, at most, where they are chosen here.
const MOST_SAMPLES: u64 = 16_384;
/// Where blocks have no common divisor above this, shots are as long as they like.
const LEAST_SAMPLES: u64 = 256;
/// Indices of samples stay below this: at a million million samples a second, the year 2116.
pub(super) const MOST_INDEX: u64 = 1 << 62;
/// Bytes of a shot's samples, at most.
const MOST_BYTES: u64 = 8 << 20;

/// Samples without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The index of the first one on the source's own line of samples.
    pub start: u64,
    /// How many.
    pub samples: u64,
    /// The number of the first shot, if the source tells it.
    pub number: Option<u64>,
}

/// Reads so many instants of a block, from an offset on.
pub(super) type ReadBlock = Box<dyn FnMut(usize, u64, usize) -> Result<Vec<f64>, ImportError>>;

/// The time of a block's sample, in TAI nanoseconds; 0: unknown.
pub(super) type Stamp = Box<dyn Fn(usize, u64) -> i128>;

/// A source of blocks.
pub(super) struct Blocks {
    path: PathBuf,
    described: Described,
    blocks: Vec<Block>,
    pauses: bool,
    stamp: Stamp,
    read: ReadBlock,
    block: usize,
    offset: u64,
    number: u64,
}

impl Blocks {
    /// `read` reads the samples of a block, all channels of each.
    pub fn new(
        path: &Path,
        described: Described,
        blocks: Vec<Block>,
        options: &ImportOptions,
        stamp: Stamp,
        read: ReadBlock,
    ) -> Self {
        let path = path.to_owned();
        Self { path, described, blocks, pauses: options.pauses, stamp, read, block: 0, offset: 0, number: 0 }
    }

    /// The number of the shot that begins here.
    fn number_here(&self, samples: u64) -> u64 {
        let here = self.blocks[self.block];
        if self.offset > 0 {
            return self.number;
        }
        let Some(before) = self.block.checked_sub(1).map(|before| self.blocks[before]) else {
            return here.number.unwrap_or(0);
        };
        // What a partial shot lacks is no other shot's.
        let end = before.start + before.samples.next_multiple_of(samples);
        let lost = if self.pauses { 0 } else { here.start.saturating_sub(end).div_ceil(samples) };
        here.number.map_or(self.number + lost, |number| number.max(self.number))
    }
}

impl Source for Blocks {
    fn described(&self) -> &Described {
        &self.described
    }

    fn next(&mut self) -> Result<Option<Pieces>, ImportError> {
        let Some(block) = self.blocks.get(self.block).copied() else { return Ok(None) };
        let geometry = self.described.run.links[0].geometry;
        let (samples, channels) = (u64::from(geometry.samples()), usize::from(geometry.channels()));
        let (number, at) = (self.number_here(samples), block.start + self.offset);
        if number >= MAX_SHOTS {
            let found = format!("expected shot numbers below {MAX_SHOTS}, found {number} at sample {at}");
            let found = format!("{found}: if its gaps are pauses, in which no shots are lost, say so (--pauses)");
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
        let piece = Piece { samples: values, stamp_tai_ns, table: None };
        Ok(Some(Pieces { number, links: vec![Some(piece)] }))
    }
}

/// Samples of a shot: as asked for, else as the source has them, else what divides every block.
pub(super) fn samples_of(path: &Path, blocks: &[Block], channels: u64, asked: Option<u32>) -> Result<u64, ImportError> {
    let longest = blocks.iter().map(|block| block.samples).max().unwrap_or(0);
    if longest == 0 || channels == 0 {
        return Err(ImportError::format(path, "expected 1 sample or more, found none"));
    }
    if let Some(asked) = asked {
        return Ok(u64::from(asked.max(1)));
    }
    let most = (MOST_BYTES / (channels * 2)).clamp(1, MOST_SAMPLES).min(longest);
    let common = blocks.iter().fold(0, |common, block| divisor(common, block.samples));
    let dividing = (1..=most).rev().find(|samples| common.is_multiple_of(*samples)).unwrap_or(1);
    Ok(if dividing >= LEAST_SAMPLES.min(longest) { dividing } else { most })
}

/// Shots that blocks are cut into.
pub(super) fn shots_of(blocks: &[Block], samples: u64) -> u64 {
    blocks.iter().map(|block| block.samples.div_ceil(samples)).sum()
}

/// The greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if a == 0 { b } else { divisor(b % a, a) }
}

/// Nanoseconds by which the recording's TAI is ahead of UTC: what the source says, else what this machine's clock
/// says (0 where that is not set). The run begins with the source's first sample, if its time is known.
pub(super) fn begin(run: &mut RunInfo, said_s: Option<i64>, first_utc_ns: Option<u64>) -> i64 {
    const SECOND: i64 = 1_000_000_000;
    let own = (run.start_tai_ns.saturating_sub(run.start_utc_ns) as i64 + SECOND / 2) / SECOND * SECOND;
    let ahead = said_s.map_or(own, |seconds| seconds * SECOND);
    run.start_utc_ns = first_utc_ns.unwrap_or(run.start_utc_ns);
    run.start_tai_ns = run.start_utc_ns.saturating_add_signed(ahead);
    ahead
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shots_divide_what_they_can() {
        let of = |lengths: &[u64]| {
            let blocks: Vec<_> = lengths.iter().map(|n| Block { start: 0, samples: *n, number: None }).collect();
            samples_of(Path::new("a"), &blocks, 2, None).unwrap()
        };
        assert_eq!(of(&[288_000]), 16_000);
        assert_eq!(of(&[356_868]), 15_516);
        assert_eq!(of(&[1000, 3000]), 1000);
        assert_eq!(of(&[100]), 100);
        assert_eq!(of(&[166, 67, 27, 538]), 538, "nothing divides them");
        assert_eq!(of(&[1_000_003]), 16_384, "a prime");
    }
}
