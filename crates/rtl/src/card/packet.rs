//! Packets whose contents follow from a few numbers.

use shotline_random::mix;

/// Bytes of a block: packets begin at multiples of it.
pub(crate) const BLOCK: usize = 8;

/// A packet: its contents are a function of these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Channel of the card.
    pub channel: u8,
    /// Number of the packet within its channel.
    pub number: u32,
    /// Bytes, 1 to 16383.
    pub length: u16,
}

impl Packet {
    /// Returns the 8 bytes of a block, the first in the lowest bits. Block 0 has the numbers themselves.
    pub(crate) fn block(&self, index: usize) -> u64 {
        let identity = u64::from(self.number) | u64::from(self.channel) << 32 | u64::from(self.length) << 40;
        if index == 0 { identity } else { mix(identity ^ (index as u64) << 54) }
    }

    /// Returns the number of blocks, of which the last may be incomplete.
    pub(crate) fn blocks(&self) -> usize {
        usize::from(self.length).div_ceil(BLOCK)
    }

    /// Returns the contents.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = (0..self.blocks()).flat_map(|index| self.block(index).to_le_bytes()).collect::<Vec<_>>();
        bytes.truncate(self.length.into());
        bytes
    }
}

/// Number of packets, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// Bytes of the packets.
    pub bytes: u64,
}

impl Tally {
    pub(crate) fn count(&mut self, length: u16) {
        self.packets += 1;
        self.bytes += u64::from(length);
    }
}

impl std::ops::Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |sum, tally| sum + tally)
    }
}
