//! Service times and limits of stages: the formulas applied to a stage's parameters.

use crate::formula::bus;
use crate::plan::{Burst, Kind, Stage};
use crate::units::Rate;

impl Stage {
    /// Returns the service time of one unit for a packet with `bytes` of payload in seconds, by the formula alone.
    fn formula_s(&self, bytes: u32) -> f64 {
        let at = |bits_per_s: f64, bytes: f64| bytes * 8.0 / bits_per_s;
        match self.kind {
            Kind::Link { bits_per_s, framing, ipv6 } | Kind::Switch { bits_per_s, framing, ipv6, .. } => {
                at(bits_per_s, framing.line_bytes(bytes, ipv6).into())
            }
            Kind::Spacefibre { lanes, lane_bits_per_s, both_ways } => {
                at(crate::formula::link::spacefibre_bits_per_s(lanes, lane_bits_per_s, both_ways), bytes.into())
            }
            Kind::Dma { word_bytes, clock_hz } => bus::dma_s(bytes, word_bytes, clock_hz),
            Kind::Pcie(pcie) => at(pcie.data_bits_per_s(), pcie.write_bytes(bytes)),
            Kind::Receive { packet_s } => packet_s,
            Kind::Memory { bits_per_s, passes } => at(bits_per_s, f64::from(bytes) * passes),
            Kind::Accelerator { bits_per_s } | Kind::Drive { bits_per_s } => at(bits_per_s, bytes.into()),
        }
    }

    /// Returns the service time of one unit for a packet with `bytes` of payload in seconds, without stalls.
    pub fn packet_s(&self, bytes: u32) -> f64 {
        let measured = self.measured_bits_per_s.map_or(0.0, |rate| f64::from(bytes) * 8.0 / rate);
        self.formula_s(bytes).max(measured)
    }

    /// Returns the service time of one unit for a burst in seconds, without stalls.
    pub fn burst_s(&self, burst: &Burst) -> f64 {
        burst.sum(|bytes| self.packet_s(bytes))
    }

    /// Returns the payload rate of one unit in bits per second, by the formula alone.
    pub fn formula_bits_per_s(&self, burst: &Burst) -> f64 {
        burst.bytes() as f64 * 8.0 / burst.sum(|bytes| self.formula_s(bytes))
    }

    /// Returns the payload rate of one unit in bits per second, without stalls.
    pub fn peak_bits_per_s(&self, burst: &Burst) -> f64 {
        burst.bytes() as f64 * 8.0 / self.burst_s(burst)
    }

    /// Returns the long-run payload rate of one unit in bits per second, with stalls.
    pub fn limit_bits_per_s(&self, burst: &Burst) -> f64 {
        self.peak_bits_per_s(burst) * self.stall.map_or(1.0, |stall| stall.availability())
    }

    /// Returns a short derivation of the limit.
    pub fn derivation(&self, burst: &Burst) -> String {
        let (bytes, _) = burst.packet_bytes();
        let formula = match self.kind {
            Kind::Link { bits_per_s, framing, ipv6 } | Kind::Switch { bits_per_s, framing, ipv6, .. } => {
                format!("{} x {bytes}/{} bytes", Rate(bits_per_s), framing.line_bytes(bytes, ipv6))
            }
            Kind::Spacefibre { lanes, lane_bits_per_s, both_ways } => {
                let words = if both_ways { "64/68" } else { "64/66" };
                format!("{lanes} x {} x 8/10 x {words} words, SKIP", Rate(lane_bits_per_s))
            }
            Kind::Dma { word_bytes, clock_hz } => {
                format!("{bytes} bytes in {} words at {} MHz", bytes.div_ceil(word_bytes), clock_hz / 1e6)
            }
            Kind::Pcie(pcie) => {
                let (generation, lanes) = (pcie.generation, pcie.lanes);
                let data = Rate(pcie.data_bits_per_s());
                format!("gen {generation} x{lanes}: {data} x {bytes}/{} bytes", pcie.write_bytes(bytes))
            }
            Kind::Receive { packet_s } => format!("{:.0} ns per packet", packet_s * 1e9),
            Kind::Memory { bits_per_s, passes } if passes != 1.0 => format!("{} / {passes} passes", Rate(bits_per_s)),
            Kind::Memory { bits_per_s, .. } => Rate(bits_per_s).to_string(),
            Kind::Accelerator { bits_per_s } | Kind::Drive { bits_per_s } => Rate(bits_per_s).to_string(),
        };
        let measured = self.measured_bits_per_s.filter(|rate| *rate < self.formula_bits_per_s(burst));
        let limit = measured.map_or(formula.clone(), |_| format!("measured (formula: {formula})"));
        let stall =
            self.stall.map_or(String::new(), |stall| format!(", available {:.4} of the time", stall.availability()));
        limit + &stall
    }
}
