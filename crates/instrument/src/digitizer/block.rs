//! Blocks in on-board memory and in the ring.

use super::dma::Piece;
use shotline_wire::block::Description;

/// A distinct block in on-board memory.
#[derive(Debug)]
pub struct DistinctBlock {
    /// Pieces of memory that hold its bytes, in sample order.
    pub pieces: Vec<Piece>,
    /// CRC register after its samples.
    pub register: u32,
    /// Description, with the peaks of its spectrum.
    pub description: Description,
}

/// A block in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Block number.
    pub number: u64,
    /// TAI of the first sample by the device's clock, in ns.
    pub tai_ns: u64,
    /// Offset of that clock from its reference at that time, in ns; positive if ahead.
    pub clock_offset_ns: i64,
    /// Blocks lost since the start.
    pub overrun: u64,
    /// Blocks lost since the previous block in the ring.
    pub lost: u64,
}
