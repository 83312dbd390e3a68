//! Limits of the stages for every length, by formula.

use super::card::{Card, Load, REPORT_BYTES, Requester, Writes};
use super::link::{Link, Tlp};
use super::{LENGTHS, LINE_EXTRA_BYTES};
use serde::Serialize;

/// Rate of the Ethernet line in bits per second.
pub const LINE_BITS_PER_S: f64 = 100e9;
/// Relative difference below which two rates are the same.
const ROUNDING: f64 = 1e-12;

/// Stage that limits the rate of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The Ethernet line.
    Line,
    /// The words of the card.
    Module,
    /// The requester stream of the PCIe block.
    Requester,
    /// The PCIe link.
    Link,
}

impl Stage {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Module => "module",
            Self::Requester => "requester stream",
            Self::Link => "PCIe link",
        }
    }
}

/// A card in its slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct System {
    /// The PCIe link.
    pub link: Link,
    /// The requester stream.
    pub requester: Requester,
    /// The words of the card.
    pub card: Card,
    /// How a packet is cut into writes.
    pub writes: Writes,
    /// Descriptor reads and reports; `None`: neither.
    pub load: Option<Load>,
}

/// Packets per second that each stage permits for one length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Length in bytes with FCS.
    pub packet_bytes: u32,
    /// Packets per second of the line.
    pub line_hz: f64,
    /// Packets per second of the words of the card.
    pub module_hz: f64,
    /// Packets per second of the requester stream.
    pub requester_hz: f64,
    /// Packets per second of the PCIe link.
    pub link_hz: f64,
    /// The stage with the lowest rate; the line if no stage is slower.
    pub limited_by: Stage,
    /// Share of the line's packets that pass, 0 to 1.
    pub passed_share: f64,
    /// Throughput in bits per second: line rate by the share of packets that pass (Kubálek, formula 1).
    pub throughput_bits_per_s: f64,
}

impl Limits {
    /// Returns the packets per second of the slowest stage.
    pub fn packets_hz(&self) -> f64 {
        self.line_hz * self.passed_share
    }
}

/// Consecutive lengths with the same limiting stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// Shortest length in bytes with FCS.
    pub first_bytes: u32,
    /// Longest length in bytes with FCS.
    pub last_bytes: u32,
    /// The limiting stage.
    pub limited_by: Stage,
    /// The length with the lowest throughput, the shortest if there are several.
    pub worst: Limits,
}

impl System {
    /// Creates a system with the default card, requester stream and additional load.
    pub fn new(link: Link) -> Self {
        Self {
            link,
            requester: Requester::default(),
            card: Card::default(),
            writes: Writes::default(),
            load: Some(Load::default()),
        }
    }

    /// Returns the sum of a cost over the TLPs of one packet, with its share of the additional TLPs.
    fn per_packet(&self, length: u32, cost: impl Fn(Tlp) -> f64) -> f64 {
        let writes = self.writes.of(&self.link, length).into_iter().filter(|&(count, _)| count > 0);
        let mut sum = writes.map(|(count, payload)| f64::from(count) * cost(Tlp::Write(payload))).sum::<f64>();
        if let Some(load) = self.load {
            sum += cost(Tlp::Read) / f64::from(load.packets_per_read.max(1));
            sum += cost(Tlp::Write(REPORT_BYTES)) / f64::from(load.packets_per_report.max(1));
        }
        sum
    }

    /// Returns the limits for packets of `length` bytes with FCS.
    pub fn limits(&self, length: u32) -> Limits {
        let line_hz = LINE_BITS_PER_S / 8.0 / f64::from(length + LINE_EXTRA_BYTES);
        let module_hz = self.card.packets_hz(length);
        let halves = self.per_packet(length, |tlp| f64::from(self.requester.half_beats(tlp)));
        let requester_hz = self.requester.clock_hz * 2.0 / halves;
        let dllp = self.link.dllp_bytes_per_tlp();
        let link_hz = self.link.bytes_per_s() / self.per_packet(length, |tlp| f64::from(tlp.link_bytes()) + dllp);
        let others = [(Stage::Module, module_hz), (Stage::Requester, requester_hz), (Stage::Link, link_hz)];
        let slower = |least: (Stage, f64), of: (Stage, f64)| if of.1 < least.1 * (1.0 - ROUNDING) { of } else { least };
        let (limited_by, packets_hz) = others.into_iter().fold((Stage::Line, line_hz), slower);
        let passed_share = packets_hz / line_hz;
        Limits {
            packet_bytes: length,
            line_hz,
            module_hz,
            requester_hz,
            link_hz,
            limited_by,
            passed_share,
            throughput_bits_per_s: LINE_BITS_PER_S * passed_share,
        }
    }

    /// Returns all lengths of [`LENGTHS`] as ranges with the same limiting stage, in ascending order.
    pub fn ranges(&self) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        for limits in LENGTHS.map(|length| self.limits(length)) {
            match ranges.last_mut().filter(|range| range.limited_by == limits.limited_by) {
                Some(range) => {
                    range.last_bytes = limits.packet_bytes;
                    if limits.passed_share < range.worst.passed_share * (1.0 - ROUNDING) {
                        range.worst = limits;
                    }
                }
                None => ranges.push(Range {
                    first_bytes: limits.packet_bytes,
                    last_bytes: limits.packet_bytes,
                    limited_by: limits.limited_by,
                    worst: limits,
                }),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the ranges of lengths below line rate, with the stages that limit them.
    fn below(system: &System) -> Vec<(u32, u32, Stage)> {
        let slow = system.ranges().into_iter().filter(|range| range.limited_by != Stage::Line);
        slow.map(|range| (range.first_bytes, range.last_bytes, range.limited_by)).collect()
    }

    #[test]
    fn only_the_straddle_costs_with_one_write_of_256_bytes() {
        let system = System { load: None, ..System::new(Link::default()) };
        assert_eq!(below(&system), [(69, 79, Stage::Requester), (101, 104, Stage::Requester)]);
    }

    #[test]
    fn writes_of_64_bytes_never_carry_100g_on_gen_3_x16() {
        let system = System { writes: Writes::Words, load: None, ..System::new(Link::default()) };
        assert!(LENGTHS.map(|length| system.limits(length)).all(|limits| limits.limited_by != Stage::Line));
        // A long packet takes 88 bytes of the link for every 64: 91.4 Gbit/s of 125.7.
        assert!(system.limits(1526).throughput_bits_per_s < 93e9);
    }

    #[test]
    fn additional_load_only_lowers_the_limits_of_the_bus() {
        let loaded = System::new(Link::default());
        let alone = System { load: None, ..loaded };
        for length in LENGTHS {
            let (with, without) = (loaded.limits(length), alone.limits(length));
            assert!(with.link_hz < without.link_hz && with.requester_hz < without.requester_hz, "{length}");
            assert_eq!((with.line_hz, with.module_hz), (without.line_hz, without.module_hz));
        }
    }

    #[test]
    fn ranges_cover_every_length_once() {
        let ranges = System::new(Link { max_payload: 128, ..Link::default() }).ranges();
        let lengths: Vec<_> = ranges.iter().flat_map(|range| range.first_bytes..=range.last_bytes).collect();
        assert_eq!(lengths, LENGTHS.collect::<Vec<_>>());
        assert!(ranges.windows(2).all(|pair| pair[0].limited_by != pair[1].limited_by));
    }
}
