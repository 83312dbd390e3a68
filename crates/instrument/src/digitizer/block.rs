//! Blocks: those that lie in on-board memory, and those that stand in the ring.

use super::dma::Piece;
use shotline_wire::block::Description;

/// A block that lies in on-board memory.
#[derive(Debug)]
pub struct Distinct {
    /// Where its bytes are, in order.
    pub pieces: Vec<Piece>,
    /// The CRC register after its samples.
    pub register: u32,
    /// Its spectrum.
    pub description: Description,
}

/// A block in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its number.
    pub number: u64,
    /// TAI of its first sample by the device's clock, in ns.
    pub tai_ns: u64,
    /// What that clock was ahead of its reference then, in ns.
    pub clock_offset_ns: i64,
    /// Blocks lost before it.
    pub overrun: u64,
    /// Of these, blocks lost just before it: since the one that was not.
    pub lost: u64,
}
