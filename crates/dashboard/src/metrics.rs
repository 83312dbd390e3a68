//! The state as metrics in the text formats of OpenMetrics and of Prometheus.

use crate::process::Usage;
use crate::status::{Family, FamilyKind, LatencyReading, Phase, Status};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Arc;

/// Prefix of every name, except for those of the process, which every program has under the same names.
pub const PREFIX: &str = "shotline";

/// A text format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' own, which is also what a browser shows.
    #[default]
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// Returns the better accepted format for the `Accept` header of a request (RFC 9110, section 12.5.1).
    pub fn accepted(header: Option<&str>) -> Self {
        let quality = |parameters: &str| {
            let quality = parameters.split(';').find_map(|parameter| parameter.trim().strip_prefix("q="));
            quality.map_or(1.0, |quality| quality.trim().parse::<f64>().unwrap_or(0.0))
        };
        let best = |name: &str| {
            let ranges =
                header.unwrap_or_default().split(',').map(|range| range.split_once(';').unwrap_or((range, "")));
            let of_name = ranges.filter(|(range, _)| range.trim().eq_ignore_ascii_case(name));
            of_name.map(|(_, parameters)| quality(parameters)).fold(0.0, f64::max)
        };
        let open_metrics = best("application/openmetrics-text");
        if open_metrics > 0.0 && open_metrics >= best("text/plain") { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Returns the type of the text.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Returns the metrics of a state. `program`: name and version.
///
/// # Errors
/// Does not occur: a text in memory can always be extended.
pub fn text(status: Arc<Status>, program: &str, format: Format) -> Result<String, fmt::Error> {
    let version = program.split_once(' ').map_or(program, |(_, version)| version).to_owned();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Process(Usage::now())));
    registry.sub_registry_with_prefix(PREFIX).register_collector(Box::new(Snapshot { status, version }));
    let mut text = String::new();
    match format {
        Format::Prometheus => prometheus_text::encode(&mut text, &registry)?,
        Format::OpenMetrics => text::encode(&mut text, &registry)?,
    }
    Ok(text)
}

/// Metrics that every program has under the same names.
#[derive(Debug)]
struct Process(Option<Usage>);

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(Usage { cpu_s, resident_bytes, started_s }) = self.0 else { return Ok(()) };
        let help = "Processor time of all threads in user and kernel mode";
        let mut cpu = encoder.encode_descriptor("process_cpu", help, Some(&Unit::Seconds), MetricType::Counter)?;
        cpu.encode_counter::<NoLabelSet, _, f64>(&cpu_s, None)?;
        let gauges = [
            ("process_start_time", "Start of the process since 1970", Unit::Seconds, started_s),
            ("process_resident_memory", "Memory of the process in RAM", Unit::Bytes, resident_bytes),
        ];
        for (name, help, unit, value) in gauges {
            encoder.encode_descriptor(name, help, Some(&unit), MetricType::Gauge)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Snapshot {
    status: Arc<Status>,
    version: String,
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        let labels = [
            ("version", self.version.as_str()),
            ("arch", std::env::consts::ARCH),
            ("os", std::env::consts::OS),
            ("profile", profile),
        ];
        let mut info = encoder.encode_descriptor("build", "The program, always 1", None, MetricType::Info)?;
        info.encode_info(&labels.to_vec())?;
        let running = u64::from(self.status.phase != Phase::Ended);
        let mut up =
            encoder.encode_descriptor("running", "1 until the command, or its run, ends", None, MetricType::Gauge)?;
        up.encode_gauge(&(running as f64))?;
        let families = &self.status.families;
        for (index, family) in families.iter().enumerate() {
            if families[..index].iter().all(|before| before.name != family.name) {
                encode_family(
                    &mut encoder,
                    family,
                    families[index..].iter().filter(|other| other.name == family.name),
                )?;
            }
        }
        encode_latencies(&mut encoder, &self.status.latencies)
    }
}

/// Encodes families of one name as one; `family` is the first of them.
fn encode_family<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    family: &Family,
    all: impl Iterator<Item = &'a Family>,
) -> fmt::Result {
    let unit = family.unit.map(|unit| Unit::Other(unit.to_owned()));
    let kind = match family.kind {
        FamilyKind::Counter => MetricType::Counter,
        FamilyKind::Gauge => MetricType::Gauge,
    };
    let mut metric = encoder.encode_descriptor(&family.name, &family.help, unit.as_ref(), kind)?;
    for sample in all.flat_map(|family| &family.samples) {
        let mut metric = metric.encode_family(&sample.labels)?;
        match family.kind {
            FamilyKind::Counter => metric.encode_counter::<NoLabelSet, _, f64>(&sample.value, None)?,
            FamilyKind::Gauge => metric.encode_gauge(&sample.value)?,
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
            metric.encode_histogram::<NoLabelSet>(latency.sum_s, latency.count, &buckets(latency), None)?;
        }
    }
    Ok(())
}

/// Returns the upper ends of the buckets with the number of durations in each. The encoder adds them up.
fn buckets(latency: &LatencyReading) -> Vec<(f64, u64)> {
    let mut below = 0;
    let all = latency.bins.iter().copied().chain([(f64::INFINITY, latency.count)]);
    all.map(|(end, upto)| (end, upto - std::mem::replace(&mut below, upto))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_the_better_accepted_one() {
        // Headers of Prometheus 2.42 and 3.5, browsers and curl.
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let of_3_5 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,*/*;q=0.1";
        let browser = "text/html,application/xhtml+xml,*/*;q=0.8";
        for header in
            [prometheus, of_3_5, "Application/OpenMetrics-Text", "text/plain;q=0.5, application/openmetrics-text"]
        {
            assert_eq!(Format::accepted(Some(header)), Format::OpenMetrics, "{header}");
        }
        for header in
            [browser, "*/*", "", "text/plain,application/openmetrics-text;q=0.9", "application/openmetrics-text;q=0"]
        {
            assert_eq!(Format::accepted(Some(header)), Format::Prometheus, "{header}");
        }
        assert_eq!(Format::accepted(None), Format::Prometheus);
    }

    fn of_latency() -> Arc<Status> {
        let latencies = vec![LatencyReading {
            name: "shot_latency".into(),
            help: "Time of a shot".into(),
            labels: vec![("link", "0".into())],
            count: 9,
            sum_s: 4.5,
            quantiles_s: [0.0; 5],
            bins: vec![(0.001, 2), (0.002, 2), (0.004, 7)],
        }];
        Arc::new(Status { latencies, ..Status::default() })
    }

    #[test]
    fn buckets_count_all_durations_up_to_their_end() {
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let text = text(of_latency(), "shotline 1.2.3", format).unwrap();
            let counts: Vec<_> = text
                .lines()
                .filter(|line| line.starts_with("shotline_shot_latency_seconds_bucket"))
                .map(|line| line.rsplit_once(' ').unwrap().1)
                .collect();
            assert_eq!(counts, ["2", "2", "7", "9"], "{format:?}: {text}");
            assert!(text.contains("\nshotline_shot_latency_seconds_count{link=\"0\"} 9\n"), "{format:?}: {text}");
            assert_eq!(text.contains("# EOF"), format == Format::OpenMetrics);
        }
    }

    #[test]
    fn the_process_has_the_names_of_all_programs() {
        let text = text(Arc::default(), "shotline 1.2.3", Format::Prometheus).unwrap();
        for start in [
            "process_cpu_seconds_total ",
            "process_start_time_seconds ",
            "process_resident_memory_bytes ",
            "shotline_build_info{version=\"1.2.3\",",
            "shotline_running 1",
        ] {
            assert!(text.lines().any(|line| line.starts_with(start)), "{start}: {text}");
        }
    }
}
