//! PCIe, the words of a DMA engine, memory.

/// A PCIe link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pcie {
    /// 1 to 6.
    pub generation: u8,
    /// 1, 2, 4, 8, 16 or 32.
    pub lanes: u8,
    /// Largest payload of a write, in bytes: a power of two from 64 to 4096. What devices agree on is 128, 256 or
    /// 512; an engine may send less.
    pub max_payload: u32,
}

/// Generations that a plan may name.
pub const PCIE_GENERATIONS: std::ops::RangeInclusive<u8> = 1..=6;
/// Widths that links have.
pub const PCIE_LANES: [u8; 6] = [1, 2, 4, 8, 16, 32];

impl Pcie {
    /// Line rate of all lanes in bits per second (transfers per second; PCI Express base specification 6.0, 4.2).
    pub fn line_bits_per_s(&self) -> f64 {
        let lane = match self.generation {
            1 => 2.5e9,
            2 => 5e9,
            3 => 8e9,
            4 => 16e9,
            5 => 32e9,
            _ => 64e9,
        };
        lane * f64::from(self.lanes)
    }

    /// What the line code leaves: 8b/10b up to generation 2, 128b/130b from 3 to 5, of generation 6's 256-byte flits
    /// the 236 bytes of transactions.
    pub fn data_bits_per_s(&self) -> f64 {
        let code = match self.generation {
            1 | 2 => 8.0 / 10.0,
            3..=5 => 128.0 / 130.0,
            _ => 236.0 / 256.0,
        };
        self.line_bits_per_s() * code
    }

    /// Bytes of data time for writing `bytes` to memory: each write has a header of 16 bytes (64-bit address), and up
    /// to generation 5 framing, sequence number and LCRC, 8 bytes. Acknowledgements and credits go the other way or
    /// in gaps; they are not counted.
    pub fn write_bytes(&self, bytes: u32) -> f64 {
        let around = if self.generation < 6 { 24.0 } else { 16.0 };
        f64::from(bytes) + f64::from(bytes.div_ceil(self.max_payload)) * around
    }
}

/// Seconds that a DMA engine takes for a packet of `bytes`: one word of `word_bytes` each cycle, and a word that is not
/// full takes its cycle too.
///
/// Paper 3, section 7: 512-bit words at 200 MHz; 129 bytes (a packet of 117, less 4 of FCS, with 16 of header) take
/// three cycles, which is 68.8 Gbit/s.
pub fn dma_s(bytes: u32, word_bytes: u32, clock_hz: f64) -> f64 {
    f64::from(bytes.div_ceil(word_bytes)) / clock_hz
}

/// Bits per second of a synchronous memory interface (paper 1, section 3: 32 banks of 256 bits at 450 MHz are the 460
/// GB/s of the card's HBM2).
pub fn memory_bits_per_s(width_bits: u32, banks: u32, clock_hz: f64) -> f64 {
    f64::from(width_bits) * f64::from(banks) * clock_hz
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pcie_3_x16_has_the_rates_of_the_specification() {
        let link = Pcie { generation: 3, lanes: 16, max_payload: 256 };
        assert_eq!(link.line_bits_per_s(), 128e9);
        assert!((link.data_bits_per_s() / 8e9 - 15.754).abs() < 1e-3);
        assert_eq!(link.write_bytes(4096), 4096.0 + 16.0 * 24.0);
        assert_eq!(link.write_bytes(257), 257.0 + 48.0);
    }

    #[test]
    fn a_byte_too_many_costs_a_whole_cycle() {
        let gbits = |bytes: u32| f64::from(bytes) * 8.0 / dma_s(bytes, 64, 200e6) / 1e9;
        assert!((gbits(128) - 102.4).abs() < 1e-9 && (gbits(129) - 68.8).abs() < 1e-9);
    }
}
