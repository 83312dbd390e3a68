//! Access of the card to the memory behind the bus.

use super::memory::{Memory, REFUSED};

/// Memory that the card reads and writes. A refused read ends with an error completion, and a refused write gives the
/// card notice; either stops the channel.
pub trait Dma {
    /// Reads bytes. Returns `false` if the bus refuses the read.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool;

    /// Writes bytes. Returns `false` if the bus refuses the write.
    fn write(&mut self, address: u64, bytes: &[u8]) -> bool;

    /// Writes a report at a multiple of 8: one store of 8 bytes, which software must not see before the writes that
    /// precede it. Returns `false` if the bus refuses it.
    fn write_report(&mut self, address: u64, report: u64) -> bool;
}

impl Dma for Memory {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        Self::read(self, address, bytes);
        true
    }

    /// A refused write is stored, so that it can be compared.
    fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        Self::write(self, address, bytes);
        address & REFUSED == 0
    }

    fn write_report(&mut self, address: u64, report: u64) -> bool {
        Dma::write(self, address, &report.to_le_bytes())
    }
}
