//! PCIe link: bytes of a TLP on the wire, and the rate that remains for them.

use std::str::FromStr;

/// Generation with 128b/130b coding (PCI Express base specification 5.0, 4.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Generation {
    /// 8 GT/s.
    #[default]
    Three,
    /// 16 GT/s.
    Four,
    /// 32 GT/s.
    Five,
}

impl Generation {
    /// Returns the generation of this number, 3 to 5.
    pub fn of(number: u8) -> Option<Self> {
        match number {
            3 => Some(Self::Three),
            4 => Some(Self::Four),
            5 => Some(Self::Five),
            _ => None,
        }
    }

    /// Returns the number.
    pub fn number(self) -> u8 {
        match self {
            Self::Three => 3,
            Self::Four => 4,
            Self::Five => 5,
        }
    }

    /// Returns the rate of a lane in GT/s.
    pub fn lane_gt_per_s(self) -> u32 {
        match self {
            Self::Three => 8,
            Self::Four => 16,
            Self::Five => 32,
        }
    }
}

/// A transaction layer packet that a card sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tlp {
    /// Memory write with this payload in bytes.
    Write(u32),
    /// Memory read request, without payload.
    Read,
}

impl Tlp {
    /// Returns the payload in bytes, in whole dwords.
    pub fn payload_bytes(self) -> u32 {
        match self {
            Self::Write(bytes) => bytes.next_multiple_of(4),
            Self::Read => 0,
        }
    }

    /// Returns the bytes on the link: STP token with sequence number 4, header of 4 dwords (64-bit address) 16, payload,
    /// LCRC 4 (PCI Express base specification 5.0, 2.2, 3.6 and 4.2.2).
    pub fn link_bytes(self) -> u32 {
        4 + 16 + self.payload_bytes() + 4
    }
}

/// Bytes of a DLLP on the wire: SDP token 2, contents 4, CRC 2 (PCI Express base specification 5.0, 3.5 and 4.2.2).
pub(super) const DLLP_BYTES: u32 = 8;
/// Bytes of a block on one lane, without its two bits of synchronization header; a SKP ordered set has the same length.
pub(super) const BLOCK_BYTES: u32 = 16;
/// Data blocks between two SKP ordered sets (PCI Express base specification 5.0, 4.2.7: 370 to 375).
pub(super) const SKP_BLOCKS: u32 = 370;

/// One direction of a PCIe link, from the card to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Generation.
    pub generation: Generation,
    /// Number of lanes, at least 1.
    pub lanes: u32,
    /// Maximum payload of a write in bytes: 128, 256, 512 or 1024.
    pub max_payload: u32,
    /// TLPs for each DLLP (acknowledgements of completions, and credits) that this direction carries; `None`: no DLLPs.
    pub tlps_per_dllp: Option<u32>,
}

impl Default for Link {
    /// Returns generation 3 with 16 lanes, payloads of 256 bytes, and a DLLP for every 16 TLPs. The number of DLLPs is
    /// an assumption: only completions of descriptor reads, which are rare, are acknowledged in this direction.
    fn default() -> Self {
        Self { generation: Generation::Three, lanes: 16, max_payload: 256, tlps_per_dllp: Some(16) }
    }
}

impl FromStr for Link {
    type Err = String;

    /// Parses generation and lanes, such as `3x16`, or with the maximum payload `3x16/512`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (slot, payload) = text.split_once('/').unwrap_or((text, "256"));
            let (generation, lanes) = slot.split_once('x')?;
            let lanes = lanes.parse().ok().filter(|lanes| [1, 2, 4, 8, 16].contains(lanes))?;
            let max_payload = payload.parse().ok().filter(|bytes| [128, 256, 512, 1024].contains(bytes))?;
            let generation = Generation::of(generation.parse().ok()?)?;
            Some(Self { generation, lanes, max_payload, ..Self::default() })
        };
        parse().ok_or_else(|| {
            format!(
                "expected generation 3 to 5, 1 to 16 lanes and a payload of 128 to 1024 bytes, such as 3x16 or 3x16/512, \
                 found {text}"
            )
        })
    }
}

impl Link {
    /// Returns the bytes per second for TLPs and DLLPs, after line code and SKP ordered sets.
    pub fn bytes_per_s(&self) -> f64 {
        let line = f64::from(self.generation.lane_gt_per_s() * self.lanes) * 1e9;
        line * 128.0 / 130.0 / 8.0 * f64::from(SKP_BLOCKS) / f64::from(SKP_BLOCKS + 1)
    }

    /// Returns the bytes of DLLPs for each TLP, on average.
    pub fn dllp_bytes_per_tlp(&self) -> f64 {
        self.tlps_per_dllp.map_or(0.0, |tlps| f64::from(DLLP_BYTES) / f64::from(tlps.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tlp_has_24_bytes_of_overhead_and_whole_dwords() {
        assert_eq!(Tlp::Write(256).link_bytes(), 280);
        assert_eq!(Tlp::Write(1).link_bytes(), 28);
        assert_eq!(Tlp::Read.link_bytes(), 24);
    }

    #[test]
    fn a_link_is_parsed_with_and_without_its_payload() {
        assert_eq!("3x16".parse(), Ok(Link::default()));
        let four = Link { generation: Generation::Four, lanes: 8, max_payload: 512, ..Link::default() };
        assert_eq!("4x8/512".parse(), Ok(four));
        for bad in ["", "3", "2x16", "3x3", "3x32", "x", "3x16/", "3x16/300"] {
            assert!(bad.parse::<Link>().unwrap_err().contains("3x16/512"), "{bad}");
        }
    }

    #[test]
    fn gen_3_x16_and_gen_4_x8_have_the_same_rate() {
        let three = Link::default();
        let four = Link { generation: Generation::Four, lanes: 8, ..three };
        assert_eq!(three.bytes_per_s(), four.bytes_per_s());
        // 15.754 GB/s after the line code (8 GT/s * 16 * 128 / 130), less one block in 371.
        assert!((three.bytes_per_s() / 15.7114e9 - 1.0).abs() < 1e-4);
    }
}
