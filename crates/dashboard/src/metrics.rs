//! The state as metrics in the OpenMetrics text format, which Prometheus scrapes.

use crate::status::{Family, FamilyKind, LatencyReading, Phase, StageReading, Status};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// Type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Prefix of every name.
pub const PREFIX: &str = "shotline";

/// Returns the metrics of a state. `program`: name and version.
///
/// # Errors
/// Does not occur: a text in memory can always be extended.
pub fn text(status: Status, program: &str) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Snapshot { status, program: program.to_owned() }));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Snapshot {
    status: Status,
    program: String,
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let labels = [("program", self.program.clone())];
        let mut info = encoder.encode_descriptor("build", "The program", None, MetricType::Info)?;
        info.encode_info(&labels.to_vec())?;
        let running = u64::from(self.status.phase != Phase::Ended);
        let mut up = encoder.encode_descriptor("running", "1 until the command ends", None, MetricType::Gauge)?;
        up.encode_gauge(&(running as f64))?;
        for family in &self.status.families {
            encode_family(&mut encoder, family)?;
        }
        encode_stages(&mut encoder, &self.status.stages)?;
        encode_latencies(&mut encoder, &self.status.latencies)
    }
}

fn encode_family(encoder: &mut DescriptorEncoder<'_>, family: &Family) -> fmt::Result {
    let unit = family.unit.map(|unit| Unit::Other(unit.to_owned()));
    let kind = match family.kind {
        FamilyKind::Counter => MetricType::Counter,
        FamilyKind::Gauge => MetricType::Gauge,
    };
    let mut metric = encoder.encode_descriptor(&family.name, &family.help, unit.as_ref(), kind)?;
    for sample in &family.samples {
        let mut metric = metric.encode_family(&sample.labels)?;
        match family.kind {
            FamilyKind::Counter => metric.encode_counter::<NoLabelSet, _, f64>(&sample.value, None)?,
            FamilyKind::Gauge => metric.encode_gauge(&sample.value)?,
        }
    }
    Ok(())
}

fn encode_stages(encoder: &mut DescriptorEncoder<'_>, stages: &[StageReading]) -> fmt::Result {
    if stages.is_empty() {
        return Ok(());
    }
    let help = "Fraction of the time in which a stage was in a state";
    let mut metric = encoder.encode_descriptor("stage_time_ratio", help, None, MetricType::Gauge)?;
    for stage in stages {
        for (state, ratio) in [("busy", stage.busy), ("starved", stage.starved), ("stalled", stage.stalled)] {
            let labels = [("stage", stage.name.as_ref()), ("state", state)];
            metric.encode_family(&labels)?.encode_gauge(&ratio)?;
        }
    }
    Ok(())
}

fn encode_latencies(encoder: &mut DescriptorEncoder<'_>, latencies: &[LatencyReading]) -> fmt::Result {
    for (index, first) in latencies.iter().enumerate() {
        if latencies[..index].iter().any(|before| before.name == first.name) {
            continue;
        }
        let unit = Unit::Seconds;
        let mut metric = encoder.encode_descriptor(&first.name, &first.help, Some(&unit), MetricType::Histogram)?;
        for latency in latencies.iter().filter(|latency| latency.name == first.name) {
            let mut metric = metric.encode_family(&latency.labels)?;
            metric.encode_histogram::<NoLabelSet>(latency.sum_s, latency.count, &latency.bins, None)?;
        }
    }
    Ok(())
}
