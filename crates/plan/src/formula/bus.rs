//! PCIe, DMA engines, memory.

/// A PCIe link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pcie {
    /// Generation, 1 to 6.
    pub generation: u8,
    /// Number of lanes: 1, 2, 4, 8, 16 or 32.
    pub lanes: u8,
    /// Maximum payload of a write in bytes: a power of two from 64 to 4096. Devices negotiate 128, 256 or 512; an
    /// engine may send less.
    pub max_payload: u32,
}

/// Supported generations.
pub const PCIE_GENERATIONS: std::ops::RangeInclusive<u8> = 1..=6;
/// Valid link widths.
pub const PCIE_LANES: [u8; 6] = [1, 2, 4, 8, 16, 32];

impl Pcie {
    /// Returns the line rate of all lanes in bits per second (transfers per second; PCI Express base specification 6.0,
    /// 4.2).
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

    /// Returns the data rate after line coding: 8b/10b up to generation 2, 128b/130b for 3 to 5, and for generation 6
    /// the 236 transaction bytes of each 256-byte flit.
    pub fn data_bits_per_s(&self) -> f64 {
        let code = match self.generation {
            1 | 2 => 8.0 / 10.0,
            3..=5 => 128.0 / 130.0,
            _ => 236.0 / 256.0,
        };
        self.line_bits_per_s() * code
    }

    /// Returns the bytes on the link for a memory write of `bytes`. Each TLP has a header of 16 bytes (64-bit address),
    /// and up to generation 5 also 8 bytes of framing, sequence number and LCRC. Acknowledgements and credits use the
    /// other direction or gaps; they are not counted.
    pub fn write_bytes(&self, bytes: u32) -> f64 {
        let overhead = if self.generation < 6 { 24.0 } else { 16.0 };
        f64::from(bytes) + f64::from(bytes.div_ceil(self.max_payload)) * overhead
    }
}

/// Returns the time in seconds of a DMA engine for a packet of `bytes`: one word of `word_bytes` per cycle; a partial
/// word takes a full cycle.
///
/// Kubálek, section 7: 512-bit words at 200 MHz; 129 bytes (a packet of 117, less 4 of FCS, plus 16 of header) take
/// three cycles, which is 68.8 Gbit/s.
pub fn dma_s(bytes: u32, word_bytes: u32, clock_hz: f64) -> f64 {
    f64::from(bytes.div_ceil(word_bytes)) / clock_hz
}

/// Returns the rate of a synchronous memory interface in bits per second (Cilardo, section 3: 32 banks of 256 bits at
/// 450 MHz are the 460 GB/s of the card's HBM2).
pub fn memory_bits_per_s(width_bits: u32, banks: u32, clock_hz: f64) -> f64 {
    f64::from(width_bits) * f64::from(banks) * clock_hz
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pcie_3_x16_has_the_specified_rates() {
        let link = Pcie { generation: 3, lanes: 16, max_payload: 256 };
        assert_eq!(link.line_bits_per_s(), 128e9);
        assert!((link.data_bits_per_s() / 8e9 - 15.754).abs() < 1e-3);
        assert_eq!(link.write_bytes(4096), 4096.0 + 16.0 * 24.0);
        assert_eq!(link.write_bytes(257), 257.0 + 48.0);
    }

    #[test]
    fn a_partial_word_takes_a_full_cycle() {
        let gbits = |bytes: u32| f64::from(bytes) * 8.0 / dma_s(bytes, 64, 200e6) / 1e9;
        assert!((gbits(128) - 102.4).abs() < 1e-9 && (gbits(129) - 68.8).abs() < 1e-9);
    }
}
