//! Results of the simulated card.

use crate::Result;
use crate::output::{CpuTime, Report, columns, print_table};
use serde::Serialize;
use shotline_acquire::summary::ByCause;
use shotline_instrument::card::{Interface, Sent};
use shotline_plan::pcie::Link;
use shotline_rtl::card::{Counters, Distributed, Outcome, Tally};

/// Packets and bytes of a channel, with the card's header of 16 bytes.
#[derive(Serialize)]
struct ChannelReport {
    channel: usize,
    packets: u64,
    bytes: u64,
    dropped: ByCause,
}

/// Frames that software sent through a queue.
#[derive(Serialize)]
pub struct SentReport {
    queue: usize,
    frames: u64,
    bytes: u64,
    /// Frames that were not in memory that the card may access, or whose length is impossible.
    #[serde(skip_serializing_if = "is_zero")]
    refused: u64,
}

impl SentReport {
    /// Returns the report of a queue.
    pub fn of(queue: usize, sent: &Sent) -> Self {
        let Sent { frames, bytes, refused } = *sent;
        Self { queue, frames, bytes, refused }
    }

    /// Returns `true` if software has not sent.
    pub fn is_empty(&self) -> bool {
        self.frames == 0 && self.refused == 0
    }
}

/// Frames of one length.
#[derive(Serialize)]
pub struct LengthReport {
    /// Bytes with FCS.
    pub length: u16,
    /// Frames that came over the wire.
    pub arrived: u64,
    /// Frames that were found in host memory.
    pub received: u64,
    /// Rate of the line by the share of received frames.
    pub throughput_gbps: f64,
}

/// A PCIe link.
#[derive(Serialize)]
struct LinkReport {
    generation: u8,
    lanes: u32,
    max_payload_bytes: u32,
}

/// The JSON object.
#[derive(Serialize)]
pub struct CardReport {
    /// Rate of all wires.
    line_gbps: f64,
    /// The link of each module.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<LinkReport>,
    /// Rate of the line by the share of received frames (formula 1 of Kubálek).
    throughput_gbps: f64,
    arrived: u64,
    received: u64,
    /// Dropped frames by cause, of the distributor and of all channels.
    dropped: ByCause,
    /// Frames that the capture truncated.
    #[serde(skip_serializing_if = "is_zero")]
    truncated: u64,
    /// Frames of each length, if each was sent alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lengths: Vec<LengthReport>,
    channels: Vec<ChannelReport>,
    /// Frames that software sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sent: Vec<SentReport>,
    /// Frames of software that the interface did not take.
    #[serde(skip_serializing_if = "is_zero")]
    unsent: u64,
    /// Drivers that connected; those in a guest do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<u64>,
    /// Entries of the table of channels: entry n is channel n modulo the number of channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    table_entries: Option<usize>,
    /// Clocks of 5 ns that were simulated.
    clocks: u64,
    /// Time from the first frame to the end, with idle time that was not simulated.
    simulated_s: f64,
    #[serde(flatten)]
    cpu: CpuTime,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Returns the throughput by formula 1 of Kubálek.
pub fn throughput(line_gbps: f64, received: u64, arrived: u64) -> f64 {
    if arrived == 0 { 0.0 } else { line_gbps * received as f64 / arrived as f64 }
}

/// Returns the causes of loss that occurred.
fn dropped<const N: usize>(causes: [(&'static str, u64); N]) -> ByCause {
    causes.into_iter().filter(|&(_, count)| count > 0).collect()
}

impl ChannelReport {
    fn of(channel: usize, counters: &Counters) -> Self {
        let Counters { received: Tally { packets, bytes }, stopped, no_descriptor, late } = *counters;
        let dropped =
            dropped([("stopped", stopped.packets), ("no_descriptor", no_descriptor.packets), ("late", late.packets)]);
        Self { channel, packets, bytes, dropped }
    }
}

/// What a report needs besides the counters.
pub struct Facts {
    /// Rate of all wires.
    pub line_gbps: f64,
    /// The link of each module.
    pub link: Option<Link>,
    /// Frames that the capture truncated.
    pub truncated: u64,
    /// Frames of each length.
    pub lengths: Vec<LengthReport>,
    /// Entries of the table of channels, unless a driver has written them.
    pub table_entries: Option<usize>,
    /// Clocks that were simulated.
    pub clocks: u64,
    /// Time from the first frame to the end.
    pub simulated_s: f64,
}

impl CardReport {
    /// Returns the report of a run.
    pub fn of(outcome: &Outcome, facts: Facts) -> Self {
        let channels =
            outcome.channels.iter().enumerate().map(|(channel, counters)| ChannelReport::of(channel, counters));
        let channels = channels.collect::<Vec<_>>();
        let Distributed { error, runt, giant, overflow, .. } = outcome.distributed;
        let mut all = dropped([("error", error), ("runt", runt), ("giant", giant), ("overflow", overflow)]);
        for (&cause, &count) in channels.iter().flat_map(|channel| &channel.dropped) {
            *all.entry(cause).or_default() += count;
        }
        let received = channels.iter().map(|channel| channel.packets).sum();
        Self {
            line_gbps: facts.line_gbps,
            link: facts.link.map(|Link { generation, lanes, max_payload, .. }| LinkReport {
                generation: generation.number(),
                lanes,
                max_payload_bytes: max_payload,
            }),
            throughput_gbps: throughput(facts.line_gbps, received, outcome.frames),
            arrived: outcome.frames,
            received,
            dropped: all,
            truncated: facts.truncated,
            lengths: facts.lengths,
            channels,
            sent: Vec::new(),
            unsent: 0,
            connections: None,
            table_entries: facts.table_entries,
            clocks: facts.clocks,
            simulated_s: facts.simulated_s,
            cpu: CpuTime::now(),
        }
    }

    /// Returns the report of a card with drivers, with the channels that had packets.
    pub fn of_driver(mut self, connections: Option<u64>, sent: Vec<SentReport>) -> Self {
        self.channels.retain(|channel| channel.packets > 0 || !channel.dropped.is_empty());
        Self { connections, sent, ..self }
    }

    /// Returns the report of a card on an interface: some frames did not come to the wire, because the kernel had no space
    /// for them, or because no driver received.
    pub fn of_interface(mut self, interface: &Interface) -> Self {
        let (missed, unwanted, unsent) = (interface.missed(), interface.unwanted(), interface.unsent());
        self.throughput_gbps = throughput(self.line_gbps, self.received, self.arrived + missed);
        self.arrived += missed + unwanted;
        self.dropped.extend(dropped([("wire", missed), ("no_driver", unwanted)]));
        Self { unsent, ..self }
    }
}

impl Report for CardReport {
    fn print(&self) -> Result {
        let mut rows = vec![("frames arrived".into(), self.arrived.to_string())];
        rows.push(("received in memory".into(), self.received.to_string()));
        rows.extend(self.dropped.iter().map(|(cause, count)| (format!("dropped: {cause}"), count.to_string())));
        if self.dropped.is_empty() {
            rows.push(("dropped".into(), "0".into()));
        }
        if self.truncated > 0 {
            rows.push(("truncated by the capture".into(), self.truncated.to_string()));
        }
        rows.push(("throughput".into(), format!("{:.1} of {} Gbit/s", self.throughput_gbps, self.line_gbps)));
        if let Some(LinkReport { generation, lanes, max_payload_bytes }) = &self.link {
            rows.push(("link".into(), format!("PCIe gen {generation} x{lanes}, {max_payload_bytes} bytes")));
        }
        if self.unsent > 0 {
            rows.push(("not taken by the interface".into(), self.unsent.to_string()));
        }
        if let Some(connections) = self.connections {
            rows.push(("driver connections".into(), connections.to_string()));
        }
        rows.push(("simulated".into(), format!("{} clocks, {:.1} us", self.clocks, self.simulated_s * 1e6)));
        print_table(&rows);
        if !self.lengths.is_empty() {
            outln!();
            let row = |of: &LengthReport| {
                let share = of.throughput_gbps / self.line_gbps;
                let numbers = [of.length.to_string(), of.arrived.to_string(), of.received.to_string()];
                [&numbers[..], &[format!("{:.1}", of.throughput_gbps), format!("{share:.4}")]].concat()
            };
            let rows = self.lengths.iter().map(row).collect::<Vec<_>>();
            columns(&[">length", ">arrived", ">received", ">Gbit/s", ">of the line"], &rows);
        }
        if !self.channels.is_empty() {
            outln!();
            let row = |of: &ChannelReport| {
                let dropped = of.dropped.iter().map(|(cause, count)| format!("{cause} {count}")).collect::<Vec<_>>();
                [of.channel.to_string(), of.packets.to_string(), of.bytes.to_string(), dropped.join(", ")]
            };
            let rows = self.channels.iter().map(row).collect::<Vec<_>>();
            columns(&[">channel", ">packets", ">bytes", "dropped"], &rows);
        }
        if !self.sent.is_empty() {
            outln!();
            let row = |of: &SentReport| {
                [of.queue, of.frames as usize, of.bytes as usize, of.refused as usize].map(|n| n.to_string())
            };
            let rows = self.sent.iter().map(row).collect::<Vec<_>>();
            columns(&[">queue", ">sent", ">bytes", ">refused"], &rows);
        }
        Ok(())
    }
}
