//! Results of measurements, as tables and as JSON.

use super::args::Args;
use super::histogram::Histogram;
use super::paper::Paper;
use super::point::{Metric, Point, Verb};
use super::snapshot::Snapshot;
use crate::interop::Service;
use crate::output::columns;
use crate::trigger::stats::Quantiles;
use crate::values::Size;
use serde::Serialize;
use shotline_verbs::spacefibre::LinksStatus;
use std::io::IsTerminal as _;
use std::time::Duration;

/// One iteration of a measurement.
#[derive(Debug)]
pub struct Iteration {
    seconds: f64,
    operations: u64,
    bytes: u64,
    own_cpu: f64,
    target_cpu: f64,
    retransmitted: u64,
    timeouts: u64,
    role_bytes: u64,
    times: Histogram,
    /// Nanoseconds to post an operation, and to complete it.
    pub overhead_ns: Option<(f64, f64)>,
}

impl Iteration {
    /// Creates the result from the snapshots before and after an iteration.
    pub fn new(from: Snapshot, to: Snapshot, elapsed: Duration, operations: u64, bytes: u64, times: Histogram) -> Self {
        Self {
            seconds: elapsed.as_secs_f64(),
            operations,
            bytes,
            // The snapshots are a little further apart than the first and the last operation.
            own_cpu: (to.own_cpu - from.own_cpu) / (to.at - from.at).as_secs_f64(),
            target_cpu: (to.target_cpu - from.target_cpu) / (to.at - from.at).as_secs_f64(),
            retransmitted: to.retransmitted.saturating_sub(from.retransmitted),
            timeouts: to.timeouts.saturating_sub(from.timeouts),
            role_bytes: to.role_bytes.saturating_sub(from.role_bytes),
            times,
            overhead_ns: None,
        }
    }

    /// Returns the rate of the payload in Gbit/s.
    pub fn gbps(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.seconds.max(1e-9)
    }
}

/// Average and worst of the iterations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AverageAndWorst {
    /// Arithmetic mean.
    pub average: f64,
    /// The lowest rate, or the highest cost.
    pub worst: f64,
}

impl AverageAndWorst {
    /// Computes both over iterations. They are 0 without any.
    fn of(values: impl Iterator<Item = f64> + Clone, worst: fn(f64, f64) -> f64) -> Self {
        let count = values.clone().count().max(1) as f64;
        let average = values.clone().sum::<f64>() / count;
        Self { average, worst: values.reduce(worst).unwrap_or(0.0) }
    }

    /// Formats the average, with the worst in parentheses as in the paper.
    pub fn words(&self, digits: usize) -> String {
        format!("{:.digits$} ({:.digits$})", self.average, self.worst)
    }
}

/// Result of a measurement.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Name of the measurement.
    pub verb: &'static str,
    pub transport: &'static str,
    pub qp: Service,
    /// Bytes of an operation.
    pub size: u32,
    /// Operations of a group.
    pub group: u16,
    pub depth: u16,
    pub queue_pairs: u16,
    pub mtu: u32,
    pub bidirectional: bool,
    pub event: bool,
    /// Number of completed iterations.
    #[serde(rename = "iterations")]
    pub iteration_count: usize,
    pub seconds: f64,
    pub operations: u64,
    pub bytes: u64,
    /// Bytes of the messages that the target has received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// Acknowledged payload in one direction.
    pub gbps: AverageAndWorst,
    /// Payload in the other direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverse_gbps: Option<AverageAndWorst>,
    pub operations_per_s: AverageAndWorst,
    /// Percent of one processor.
    pub cpu_initiator_percent: AverageAndWorst,
    /// Percent of one processor.
    pub cpu_target_percent: AverageAndWorst,
    /// Times of groups or, for a latency, of operations.
    pub time_us: Option<Quantiles>,
    /// The times are half of the round trips.
    pub half_round_trip: bool,
    /// Nanoseconds to post an operation, and to poll its completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_ns: Option<AverageAndWorst>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete_ns: Option<AverageAndWorst>,
    /// Packets retransmitted by both sides.
    pub retransmitted: u64,
    /// Response timeouts on both sides.
    pub timeouts: u64,
    /// SpaceFibre links of this end after the measurement, and their packets, if the transport has links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spacefibre: Option<LinksStatus>,
    /// The figures of the paper.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper: Option<&'static Paper>,
    #[serde(skip)]
    pub iterations: Vec<Iteration>,
    /// Times of all iterations.
    #[serde(skip)]
    pub times: Option<Histogram>,
}

impl Row {
    /// Creates the result before the first iteration.
    pub fn new(verb: Verb, args: &Args, point: &Point, transport: &'static str) -> Self {
        let none = AverageAndWorst { average: 0.0, worst: 0.0 };
        let latency = match point.metric {
            Metric::Latency(kind) => Some(kind),
            _ => None,
        };
        let single = latency.is_some() || matches!(point.metric, Metric::Overhead(_));
        Self {
            verb: latency.map_or(verb.name(), |kind| kind.name()),
            transport,
            qp: args.qp,
            size: point.size,
            group: point.group,
            depth: if single { 1 } else { args.depth },
            queue_pairs: if single { 1 } else { args.queue_pairs },
            mtu: args.mtu().bytes(),
            bidirectional: args.bidirectional,
            event: args.event,
            iteration_count: 0,
            seconds: 0.0,
            operations: 0,
            bytes: 0,
            received_bytes: (verb == Verb::Send && latency.is_none()).then_some(0),
            gbps: none,
            reverse_gbps: args.bidirectional.then_some(none),
            operations_per_s: none,
            cpu_initiator_percent: none,
            cpu_target_percent: none,
            time_us: None,
            half_round_trip: latency.is_some_and(|kind| kind.is_halved()),
            post_ns: None,
            complete_ns: None,
            retransmitted: 0,
            timeouts: 0,
            spacefibre: None,
            paper: args.matrix.then(|| Paper::of(verb, point.size, point.group)).flatten(),
            iterations: Vec::new(),
            times: None,
        }
    }

    /// Computes the totals after the last iteration.
    pub fn sum_up(&mut self) {
        let all = std::mem::take(&mut self.iterations);
        let gbps = |bytes: u64, seconds: f64| bytes as f64 * 8e-9 / seconds.max(1e-9);
        self.iteration_count = all.len();
        self.seconds = all.iter().map(|one| one.seconds).sum();
        self.operations = all.iter().map(|one| one.operations).sum();
        self.bytes = all.iter().map(|one| one.bytes).sum();
        let arrived = || all.iter().map(|one| one.role_bytes).sum();
        self.received_bytes = self.received_bytes.map(|_| arrived());
        self.gbps = AverageAndWorst::of(all.iter().map(|one| gbps(one.bytes, one.seconds)), f64::min);
        let back = || AverageAndWorst::of(all.iter().map(|one| gbps(one.role_bytes, one.seconds)), f64::min);
        self.reverse_gbps = self.reverse_gbps.map(|_| back());
        let rate = all.iter().map(|one| one.operations as f64 / one.seconds.max(1e-9));
        self.operations_per_s = AverageAndWorst::of(rate, f64::min);
        self.cpu_initiator_percent = AverageAndWorst::of(all.iter().map(|one| one.own_cpu * 100.0), f64::max);
        self.cpu_target_percent = AverageAndWorst::of(all.iter().map(|one| one.target_cpu * 100.0), f64::max);
        self.retransmitted = all.iter().map(|one| one.retransmitted).sum();
        self.timeouts = all.iter().map(|one| one.timeouts).sum();
        let overheads = || all.iter().filter_map(|one| one.overhead_ns);
        if overheads().next().is_some() {
            self.post_ns = Some(AverageAndWorst::of(overheads().map(|(post, _)| post), f64::max));
            self.complete_ns = Some(AverageAndWorst::of(overheads().map(|(_, complete)| complete), f64::max));
        }
        let mut times = Histogram::new();
        all.iter().for_each(|one| times.merge(&one.times));
        self.time_us = times.quantiles();
        self.times = Some(times);
    }
}

/// Prints a finished measurement if standard error is a terminal.
pub fn progress(row: &Row) {
    if std::io::stderr().is_terminal() {
        let size = Size(row.size.into());
        errln!("{} {size} x {}: {} Gbit/s", row.verb, row.group, row.gbps.words(2));
    }
}

/// Prints the table of rates, costs and times.
pub fn print(rows: &[Row]) {
    let costs = rows.iter().all(|row| row.post_ns.is_some());
    let back = rows.iter().any(|row| row.reverse_gbps.is_some());
    let mut head = vec![">", ">size", ">group"];
    if costs {
        head.extend([">post ns", ">complete ns"]);
    } else {
        head.extend([">Gbit/s"]);
        if back {
            head.push(">reverse");
        }
        head.extend([
            ">op/s",
            ">CPU %",
            ">target's",
            ">p50 us",
            ">p99",
            ">p99.9",
            ">max",
            ">retransmitted",
            ">timeouts",
        ]);
    }
    let mut table = Vec::new();
    for row in rows {
        let mut cells = vec![row.verb.to_owned(), Size(row.size.into()).to_string(), row.group.to_string()];
        match (row.post_ns, row.complete_ns) {
            (Some(post), Some(complete)) => cells.extend([post.words(1), complete.words(1)]),
            _ => {
                cells.push(row.gbps.words(2));
                if back {
                    cells.push(row.reverse_gbps.map_or("-".into(), |back| back.words(2)));
                }
                cells.push(rate(row.operations_per_s.average));
                cells.extend([row.cpu_initiator_percent, row.cpu_target_percent].map(|cpu| cpu.words(0)));
                let times = row.time_us.map(|us| [us.p50, us.p99, us.p999, us.max]);
                let times = times.map_or([const { String::new() }; 4], |times| times.map(|us| format!("{us:.2}")));
                cells.extend(times);
                cells.extend([row.retransmitted, row.timeouts].map(|count| count.to_string()));
            }
        }
        table.push(cells);
    }
    outln!("Averages over the iterations, the worst in parentheses:");
    columns(&head, &table);
    print_repairs(rows);
}

/// Prints what SpaceFibre links have repaired or lost at this end, if they have.
pub fn print_repairs(rows: &[Row]) {
    // The counters of the last row include the links of those before.
    if let Some(repairs) = rows.last().and_then(|row| row.spacefibre.as_ref()).and_then(LinksStatus::repairs) {
        outln!("Links at this end: {repairs}.");
    }
}

/// Formats operations per second with three digits.
pub fn rate(per_s: f64) -> String {
    match per_s {
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_is_lowest_rate_or_highest_cost() {
        let values = [3.0, 1.0, 2.0];
        assert_eq!(AverageAndWorst::of(values.into_iter(), f64::min), AverageAndWorst { average: 2.0, worst: 1.0 });
        assert_eq!(AverageAndWorst::of(values.into_iter(), f64::max), AverageAndWorst { average: 2.0, worst: 3.0 });
        assert_eq!(AverageAndWorst::of([].into_iter(), f64::min), AverageAndWorst { average: 0.0, worst: 0.0 });
    }
}
