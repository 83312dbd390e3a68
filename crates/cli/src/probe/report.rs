//! Output of the probe commands.

use crate::array::ArrayReport;
use crate::framing;
use crate::output::Rows;
use serde::Serialize;
use shotline_wire::framing::Kind;
use shotline_wire::framing::description::Keys;
use shotline_wire::setup::{Describe, Report};
use std::net::SocketAddr;

fn row(name: &str, value: impl ToString) -> (String, String) {
    (name.into(), value.to_string())
}

/// Properties of a probe.
#[derive(Serialize)]
pub struct Description {
    probe: String,
    model: String,
    links: u8,
    channels: u16,
    bits: u8,
    packing: &'static str,
    sample_rate_hz: u32,
    max_samples: u32,
    framings: Vec<&'static str>,
    pattern_period: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    array: Option<ArrayReport>,
}

impl Description {
    pub fn of(probe: SocketAddr, describe: &Describe) -> Self {
        let supported = Kind::with_set_up().filter(|kind| kind.id().is_some_and(|id| describe.supports(id)));
        Self {
            probe: probe.to_string(),
            model: describe.model.to_string(),
            links: describe.links,
            channels: describe.channels,
            bits: describe.bits,
            packing: describe.packing.name(),
            sample_rate_hz: describe.sample_rate_hz,
            max_samples: describe.max_samples,
            framings: supported.map(Kind::name).collect(),
            pattern_period: describe.pattern_period,
            array: describe.array.as_ref().map(ArrayReport::of),
        }
    }
}

impl Rows for Description {
    fn rows(&self) -> Vec<(String, String)> {
        let samples = match self.pattern_period {
            0 => "from the device".into(),
            period => format!("test patterns, {period} distinct shots"),
        };
        let mut rows = vec![
            row("probe", &self.probe),
            row("model", &self.model),
            row("links", self.links),
            row("channels of each", self.channels),
            row("bits", format!("{} ({})", self.bits, self.packing)),
            row("sample rate", format!("{} MHz", f64::from(self.sample_rate_hz) / 1e6)),
            row("maximum samples of a shot", self.max_samples),
            row("framings", self.framings.join(", ")),
            row("samples", samples),
        ];
        rows.extend(self.array.iter().flat_map(ArrayReport::rows));
        rows
    }
}

/// Configuration of a link.
#[derive(Serialize)]
pub struct ConfigureReport {
    pub probe: String,
    pub link: u8,
    #[serde(serialize_with = "framing::name")]
    pub framing: Kind,
    pub channels: u16,
    pub samples: u32,
    pub bits: u8,
    pub packing: &'static str,
    pub destination: String,
    pub queue_pair: u32,
    pub q_key: u32,
    pub stream: u32,
    pub source: String,
    pub source_queue_pair: u32,
    pub first_psn: u32,
    pub packets_per_shot: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Vec<u16>>,
}

impl Rows for ConfigureReport {
    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = vec![
            row("probe", &self.probe),
            row("link", self.link),
            row("shots", format!("{} channels x {} samples, {} bit", self.channels, self.samples, self.bits)),
            row("packets of a shot", format!("{}, framing {}", self.packets_per_shot, self.framing)),
            row("from", &self.source),
            row("to", &self.destination),
            row("stream", self.stream),
        ];
        if self.framing.description().keys != Keys::None {
            rows.push(row("queue pair", format!("{:#08x} to {:#08x}", self.source_queue_pair, self.queue_pair)));
            rows.push(row("first sequence number", format!("{:#08x}", self.first_psn)));
        }
        if let Some(events) = &self.sequence {
            let events: Vec<_> = events.iter().map(ToString::to_string).collect();
            rows.push(row("transmit events", if events.is_empty() { "none".into() } else { events.join(", ") }));
        }
        rows
    }
}

#[derive(Serialize)]
pub struct StartReport {
    pub probe: String,
    pub first_shot: u64,
}

impl Rows for StartReport {
    fn rows(&self) -> Vec<(String, String)> {
        vec![row("probe", &self.probe), row("first shot", self.first_shot)]
    }
}

/// Status of a probe.
#[derive(Serialize)]
pub struct Status {
    probe: String,
    running: bool,
    next_shot: u64,
    triggers_missed: u64,
    links: Vec<LinkStatus>,
}

#[derive(Serialize)]
struct LinkStatus {
    link: u8,
    shots_sent: u64,
    packets_sent: u64,
    lost: u32,
    duplicated: u32,
    reordered: u32,
    corrupted: u32,
}

impl Status {
    pub fn of(probe: SocketAddr, reports: &[Report]) -> Self {
        let link = |report: &Report| LinkStatus {
            link: report.link,
            shots_sent: report.shots_sent,
            packets_sent: report.packets_sent,
            lost: report.lost,
            duplicated: report.duplicated,
            reordered: report.reordered,
            corrupted: report.corrupted,
        };
        let latest = reports.last().copied().unwrap_or_default();
        Self {
            probe: probe.to_string(),
            running: latest.running,
            next_shot: latest.next_shot,
            triggers_missed: latest.triggers_missed,
            links: reports.iter().map(link).collect(),
        }
    }
}

impl Rows for Status {
    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = vec![
            row("probe", &self.probe),
            row("running", if self.running { "yes" } else { "no" }),
            row("next shot", self.next_shot),
            row("triggers missed", self.triggers_missed),
        ];
        for link in &self.links {
            let name = format!("link {}", link.link);
            rows.push((name.clone(), format!("{} shots, {} packets", link.shots_sent, link.packets_sent)));
            if link.lost + link.duplicated + link.reordered + link.corrupted > 0 {
                let LinkStatus { lost, duplicated, reordered, corrupted, .. } = link;
                let faults =
                    format!("{lost} lost, {duplicated} duplicated, {reordered} reordered, {corrupted} corrupted");
                rows.push((name + " faults injected", faults));
            }
        }
        rows
    }
}

#[derive(Serialize)]
pub struct TriggerReport {
    pub probe: String,
    pub sequence: u32,
    pub command_only: bool,
    pub shot: u64,
    pub response_us: f64,
}

impl Rows for TriggerReport {
    fn rows(&self) -> Vec<(String, String)> {
        let shot = if self.command_only { "next shot" } else { "shot" };
        vec![
            row("probe", &self.probe),
            row(shot, self.shot),
            row("response time", format!("{:.1} us", self.response_us)),
        ]
    }
}
