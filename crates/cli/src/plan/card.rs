//! `shotline plan --packet-card`: the PCIe bus of a packet card, length by length.

use super::table::percent;
use crate::Result;
use crate::output::{columns, print_table};
use serde::Serialize;
use shotline_plan::pcie::{Generation, LENGTHS, Limits, Link, Load, Range, Requester, Stage, System, Writes};
use shotline_plan::units::{Hertz, Rate};

/// Arguments of `--packet-card`.
#[derive(clap::Args)]
pub struct CardArgs {
    /// Compute the PCIe bus of a card that writes every packet of a 100G line to host memory, for all lengths
    #[arg(long, help_heading = "Packet card",
          conflicts_with_all = ["file", "paper", "Flags", "simulate", "svg"])]
    pub packet_card: bool,
    /// PCIe generation of the card
    #[arg(long, help_heading = "Packet card", requires = "packet_card", value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u8).range(3..=5))]
    generation: u8,
    /// PCIe lanes of the card
    #[arg(long, help_heading = "Packet card", requires = "packet_card", value_name = "N", default_value = "16",
          value_parser = ["1", "2", "4", "8", "16"])]
    lanes: String,
    /// Maximum payload of a write in bytes
    #[arg(long, help_heading = "Packet card", requires = "packet_card", value_name = "BYTES", default_value = "256",
          value_parser = ["128", "256", "512", "1024"])]
    payload: String,
    /// One write for every 64 bytes of a packet, not one for the packet
    #[arg(long, help_heading = "Packet card", requires = "packet_card")]
    one_write_64: bool,
    /// One write for the first bytes of a packet, with the card's header of 16 bytes, and others for the rest
    #[arg(long, help_heading = "Packet card", requires = "packet_card", conflicts_with = "one_write_64",
          value_name = "BYTES", value_parser = clap::value_parser!(u32).range(16..=256))]
    header_split: Option<u32>,
    /// TLPs of the requester stream begin only at byte 0 of a beat
    #[arg(long, help_heading = "Packet card", requires = "packet_card")]
    no_straddle: bool,
    /// Count packets alone, without descriptor reads and reports
    #[arg(long, help_heading = "Packet card", requires = "packet_card")]
    packets_only: bool,
}

/// Output of `--packet-card`.
#[derive(Serialize)]
pub struct CardOutput {
    generation: u8,
    lanes: u32,
    max_payload_bytes: u32,
    /// Payload of a write in bytes, if the packet is longer.
    write_bytes: u32,
    /// Number of lengths below line rate.
    lengths_below: usize,
    /// First and last length of each range below line rate, in bytes.
    below_line_rate: Vec<(u32, u32)>,
    worst: Limits,
    ranges: Vec<Range>,
}

impl CardArgs {
    /// Computes all lengths.
    pub fn output(&self) -> Result<CardOutput> {
        let (lanes, max_payload) = (self.lanes.parse()?, self.payload.parse()?);
        let generation = Generation::of(self.generation).unwrap_or_default();
        let mut system = System::new(Link { generation, lanes, max_payload, ..Link::default() });
        system.requester = Requester { straddle: !self.no_straddle, ..Requester::default() };
        if self.one_write_64 {
            system.writes = Writes::Words;
        }
        if let Some(header) = self.header_split {
            system.writes = Writes::Split(header);
            system.load = Some(Load::of_pairs());
        }
        if self.packets_only {
            system.load = None;
        }
        let ranges = system.ranges();
        let below_line_rate = below(&ranges);
        let lowest = |a: Limits, b: Limits| if b.passed_share < a.passed_share { b } else { a };
        Ok(CardOutput {
            generation: self.generation,
            lanes,
            max_payload_bytes: max_payload,
            write_bytes: if self.one_write_64 { 64 } else { max_payload },
            lengths_below: below_line_rate.iter().map(|(first, last)| (last - first + 1) as usize).sum(),
            below_line_rate,
            worst: ranges.iter().map(|range| range.worst).fold(system.limits(*LENGTHS.start()), lowest),
            ranges,
        })
    }
}

/// Returns the ranges below line rate, with adjacent ones joined.
fn below(ranges: &[Range]) -> Vec<(u32, u32)> {
    let mut joined: Vec<(u32, u32)> = Vec::new();
    for range in ranges.iter().filter(|range| range.limited_by != Stage::Line) {
        match joined.last_mut().filter(|(_, last)| last + 1 == range.first_bytes) {
            Some((_, last)) => *last = range.last_bytes,
            None => joined.push((range.first_bytes, range.last_bytes)),
        }
    }
    joined
}

impl crate::output::Report for CardOutput {
    fn print(&self) -> Result {
        let (generation, lanes) = (self.generation, self.lanes);
        outln!("Packet card, PCIe gen {generation} x{lanes}, writes of at most {} bytes\n", self.write_bytes);
        let rows: Vec<_> = self.ranges.iter().map(row).collect();
        let names = [">lengths", "limited by", ">worst", ">line", ">module", ">requester", ">link", ">throughput"];
        columns(&names, &rows);
        outln!();
        let lengths: Vec<_> = self.below_line_rate.iter().map(|(first, last)| span(*first, *last)).collect();
        let worst = &self.worst;
        let throughput = Rate(worst.throughput_bits_per_s);
        let mut sums = vec![(
            "lengths below line rate".to_owned(),
            format!("{} of {}", self.lengths_below, LENGTHS.end() - LENGTHS.start() + 1),
        )];
        if self.lengths_below > 0 {
            let of = format!("{} B: {throughput}, {}", worst.packet_bytes, percent(worst.passed_share));
            sums.push(("worst length".into(), of));
        }
        print_table(&sums);
        if self.lengths_below > 0 {
            outln!("\n  below line rate, in bytes: {}", lengths.join(", "));
        }
        Ok(())
    }
}

fn span(first: u32, last: u32) -> String {
    if first == last { first.to_string() } else { format!("{first} to {last}") }
}

fn row(range: &Range) -> [String; 8] {
    let worst = &range.worst;
    let packets = |hz: f64| Hertz(hz).to_string();
    [
        span(range.first_bytes, range.last_bytes),
        range.limited_by.name().to_owned(),
        format!("{} B", worst.packet_bytes),
        packets(worst.line_hz),
        packets(worst.module_hz),
        packets(worst.requester_hz),
        packets(worst.link_hz),
        Rate(worst.throughput_bits_per_s).to_string(),
    ]
}
