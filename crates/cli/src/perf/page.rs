//! What the page shows of measurements. States are published between iterations, never during one.

use super::pairs::{ConnectedQp, QpSet};
use super::point::Point;
use super::report::{AverageAndWorst, Iteration, Row, rate};
use crate::interop::Service;
use crate::link::page::families;
use crate::serve::metrics::{Labels, Metrics, counter, gauge, latency, loss, table, with_unit};
use crate::values::Size;
use shotline_dashboard::Board;
use shotline_dashboard::status::{Family, LatencyReading, Phase, Status};
use std::sync::Arc;

/// Queue pairs in the table.
const PAIRS: usize = 64;
/// Bytes in a second of a Gbit/s.
const GBPS: f64 = 1e9 / 8.0;

/// What is measured and was measured. Without a page nothing is collected.
#[derive(Default)]
pub struct PerfPage {
    board: Option<Arc<Board>>,
    /// Iterations that are over, and those of the whole plan.
    iterations: [u64; 2],
    /// The present point.
    now: Option<Now>,
    pairs: Vec<Vec<String>>,
    rows: Vec<Vec<String>>,
    metrics: Metrics,
    latencies: Vec<LatencyReading>,
    /// Metrics of SpaceFibre links after the newest point.
    links: Vec<Family>,
}

/// The point that is being measured.
struct Now {
    words: Vec<String>,
    iteration: usize,
    last_gbps: Option<f64>,
}

impl PerfPage {
    /// Begins with nothing.
    pub fn new(board: Option<Arc<Board>>, plan: &[Point]) -> Self {
        let all = plan.iter().map(|point| u64::from(point.iterations)).sum();
        Self { board, iterations: [0, all], ..Self::default() }
    }

    /// Notes the beginning of a point with its queue pairs.
    pub fn begin(&mut self, row: &Row, qps: &QpSet) {
        if self.board.is_none() {
            return;
        }
        let pair = |pair: &ConnectedQp| {
            let address = pair.address.map_or("this machine".into(), |address| address.to_string());
            let [own, peer] = [pair.qp.0.to_string(), pair.peer.get().to_string()];
            vec![own, service(row.qp).into(), pair.service_level.to_string(), address, peer]
        };
        self.pairs = qps.all.iter().take(PAIRS).map(pair).collect();
        let words = vec![row.verb.into(), Size(row.size.into()).to_string(), row.group.to_string()];
        self.now = Some(Now { words, iteration: 0, last_gbps: None });
        self.publish();
    }

    /// Notes the end of an iteration.
    pub fn add_iteration(&mut self, row: &Row, iteration: &Iteration) {
        self.iterations[0] += 1;
        if let Some(now) = &mut self.now {
            (now.iteration, now.last_gbps) = (row.iterations.len() + 1, Some(iteration.gbps()));
            self.publish();
        }
    }

    /// Notes that a point is not measured.
    pub fn skip(&mut self, point: &Point) {
        self.iterations[0] += u64::from(point.iterations);
    }

    /// Adds the result of a point.
    pub fn add_row(&mut self, row: &Row) {
        if self.board.is_none() {
            return;
        }
        self.rows.push(cells(row));
        add_metrics(&mut self.metrics, row);
        let labels = labels(row);
        // A point that was measured again replaces the one before.
        self.latencies.retain(|reading| reading.labels != labels);
        if let Some(times) = &row.times {
            let help = "Time of a group, from its post to its completion; for a latency, of an operation";
            let name = ("perf_time", help);
            self.latencies.extend(latency(name, labels, times.quantiles(), times.sum(), |end| times.below(end)));
        }
        self.links = row.spacefibre.as_ref().map(families).unwrap_or_default();
        (self.now, self.pairs) = (None, Vec::new());
        self.publish();
    }

    fn publish(&self) {
        self.board.iter().for_each(|board| board.publish(self.status(true)));
    }

    /// Returns the state.
    pub fn status(&self, is_connected: bool) -> Status {
        let mut families = [self.metrics.families(), self.links.clone()].concat();
        families.push(Family::gauge("target_connected", CONNECTED, u8::from(is_connected).into()));
        let [done, all] = self.iterations;
        let now = self.now.iter().map(|now| {
            let last = now.last_gbps.map_or("-".into(), |gbps| format!("{gbps:.2}"));
            now.words.iter().cloned().chain([now.iteration.to_string(), last]).collect()
        });
        let tables = [
            table("Now", &["operation", "size", "group", "iterations", "Gbit/s of the last"], &now.collect::<Vec<_>>()),
            table("Results", &COLUMNS, &self.rows),
            table("Queue pairs", &["number", "service", "service level", "destination", "its number"], &self.pairs),
        ];
        Status {
            phase: Phase::Running,
            progress: Some(done as f64 / all.max(1) as f64),
            families,
            latencies: self.latencies.clone(),
            tables: tables.into_iter().filter(|table| !table.rows.is_empty()).collect(),
            ..Status::default()
        }
    }
}

const CONNECTED: &str = "1 while the control connection to the target is open";
const COLUMNS: [&str; 20] = [
    "operation",
    "size",
    "group",
    "queue pairs",
    "iterations",
    "Gbit/s",
    "reverse",
    "operations/s",
    "not received",
    "CPU %",
    "target's CPU %",
    "p50 us",
    "p99",
    "p99.9",
    "max",
    "post ns",
    "complete ns",
    "retransmitted",
    "timeouts",
    "paper's Gbit/s",
];

/// Returns the name of a transport service.
pub fn service(service: Service) -> &'static str {
    match service {
        Service::Rc => "RC",
        Service::Uc => "UC",
        Service::Ud => "UD",
    }
}

/// Returns the cells of a result; averages, the worst in parentheses.
fn cells(row: &Row) -> Vec<String> {
    let words = |value: Option<AverageAndWorst>, digits| value.map_or("-".into(), |value| value.words(digits));
    let mut cells = vec![row.verb.into(), Size(row.size.into()).to_string(), row.group.to_string()];
    cells.extend([row.queue_pairs.to_string(), row.iteration_count.to_string()]);
    cells.extend([row.gbps.words(2), words(row.reverse_gbps, 2), rate(row.operations_per_s.average)]);
    cells.push(not_received(row).map_or("-".into(), |bytes| Size(bytes).to_string()));
    cells.extend([row.cpu_initiator_percent, row.cpu_target_percent].map(|cpu| cpu.words(0)));
    let times = row.time_us.map(|us| [us.p50, us.p99, us.p999, us.max].map(|us| format!("{us:.2}")));
    cells.extend(times.unwrap_or_else(|| ["-"; 4].map(str::to_owned)));
    cells.extend([row.post_ns, row.complete_ns].map(|ns| words(ns, 1)));
    cells.extend([row.retransmitted, row.timeouts].map(|count| count.to_string()));
    cells.push(row.paper.map_or("-".into(), |paper| format!("{:.2} ({:.2})", paper.gbps[0], paper.gbps[1])));
    cells
}

/// Returns the bytes of messages that the target has not received: services without acknowledgements lose some.
fn not_received(row: &Row) -> Option<u64> {
    row.received_bytes.map(|bytes| row.bytes.saturating_sub(bytes))
}

fn labels(row: &Row) -> Labels {
    let [size, group] = [row.size.to_string(), row.group.to_string()];
    vec![("operation", row.verb.to_owned()), ("size", size), ("group", group)]
}

/// Sets the gauges of a point, and adds the counters of all points.
fn add_metrics(metrics: &mut Metrics, row: &Row) {
    let mut set = |family: &Family, more: &[(&'static str, &str)], value: AverageAndWorst, scale: f64| {
        for (statistic, value) in [("average", value.average), ("worst", value.worst)] {
            let more = more.iter().map(|(label, value)| (*label, (*value).to_owned()));
            let labels = labels(row).into_iter().chain(more).chain([("statistic", statistic.to_owned())]).collect();
            metrics.set(family.clone(), labels, value * scale);
        }
    };
    let of_paper = |[average, worst]: [f64; 2]| AverageAndWorst { average, worst };
    let rate = with_unit("bytes_per_second", gauge("perf_rate", "Payload in a second, over the iterations of a point"));
    set(&rate, &[("direction", "forward")], row.gbps, GBPS);
    if let Some(reverse) = row.reverse_gbps {
        set(&rate, &[("direction", "reverse")], reverse, GBPS);
    }
    if let Some(paper) = row.paper {
        set(&rate, &[("direction", "paper")], of_paper(paper.gbps), GBPS);
    }
    let operations = "Operations in a second, over the iterations of a point";
    set(&with_unit("hertz", gauge("perf_operation_rate", operations)), &[], row.operations_per_s, 1.0);
    let cpu = with_unit("ratio", gauge("perf_cpu", "Processor time in a second, with that of the page"));
    set(&cpu, &[("side", "initiator")], row.cpu_initiator_percent, 0.01);
    set(&cpu, &[("side", "target")], row.cpu_target_percent, 0.01);
    if let Some(paper) = row.paper {
        set(&cpu, &[("side", "paper")], of_paper(paper.cpu_percent), 0.01);
    }
    let overheads = [("post", row.post_ns), ("complete", row.complete_ns)];
    let overhead = with_unit("seconds", gauge("perf_overhead", "Processor time to post or complete an operation"));
    for (step, ns) in overheads.into_iter().filter_map(|(step, ns)| Some((step, ns?))) {
        set(&overhead, &[("step", step)], ns, 1e-9);
    }
    let totals = [
        (counter("perf_operations", "Operations that are complete, of all points"), row.operations),
        (with_unit("bytes", counter("perf_payload", "Payload of complete operations, of all points")), row.bytes),
        (counter("packets_retransmitted", "Packets that were sent again"), row.retransmitted),
        (counter("acknowledgement_timeouts", "Acknowledgements that did not come in time"), row.timeouts),
        (counter("perf_iterations", "Iterations that are over"), row.iteration_count as u64),
    ];
    for (family, count) in totals {
        metrics.add(family, Vec::new(), count);
    }
    let seconds = with_unit("seconds", gauge("perf_measured", "Time of the iterations of a point"));
    metrics.set(seconds, labels(row), row.seconds);
    if let Some(bytes) = row.received_bytes {
        let help = "Bytes of messages that the target has received, of all points";
        metrics.add(with_unit("bytes", counter("perf_received", help)), Vec::new(), bytes);
    }
    if let Some(bytes) = not_received(row) {
        let help = "Bytes of messages that were sent and that the target has not received, of all points";
        metrics.add(loss(with_unit("bytes", counter("perf_not_received", help))), Vec::new(), bytes);
    }
}
