//! What the page shows of a sweep.

use super::common::Common;
use super::lines::{Failure, Line, SearchResult, Trial};
use super::measure::{Bench, LinkCounters, Run};
use super::point::Point;
use super::stats::Spread;
use crate::Result;
use crate::serve::BoardPage;
use crate::serve::metrics::{Labels, Metrics, counter, gauge, loss, table, with_unit};
use shotline_dashboard::BoardInfo;
use shotline_dashboard::status::{LogLevel, Phase, Status};
use shotline_wire::shot::DropCause;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs and trials in the tables: the newest ones.
const NEWEST: usize = 30;
/// Bytes in a second of a Gbit/s.
const GBPS: f64 = 1e9 / 8.0;

/// The page of a sweep, and what it shows. Without a page nothing is collected.
pub struct SweepPage {
    page: BoardPage,
    stop: Arc<AtomicBool>,
    /// Name and value of what is being measured.
    current: Option<String>,
    /// Runs that are over, and all; trials of a search.
    progress: [usize; 2],
    metrics: Metrics,
    /// Results of points, and of searches.
    points: Vec<Vec<String>>,
    runs: Vec<Vec<String>>,
    trials: Vec<Vec<String>>,
    results: Vec<Vec<String>>,
}

impl SweepPage {
    /// Serves the page, if it is requested.
    pub fn open(common: &Common, bench: &Bench, info: BoardInfo) -> Result<Self> {
        let page = common.page.board(info, Vec::new(), bench.stop())?;
        let (current, progress, metrics) = Default::default();
        let [points, runs, trials, results] = [const { Vec::new() }; 4];
        Ok(Self { page, stop: Arc::clone(bench.stop()), current, progress, metrics, points, runs, trials, results })
    }

    /// Notes that a run begins, after `done` of `all`.
    pub fn begin_run(&mut self, text: &str, done: usize, all: usize) {
        if self.page.board().is_some() {
            (self.current, self.progress) = (Some(text.to_owned()), [done, all]);
            self.publish();
        }
    }

    /// Adds a message to the log.
    pub fn warn(&self, warning: &str) {
        self.page.board().into_iter().for_each(|board| board.log(LogLevel::Warning, warning));
    }

    /// Adds the counters of a run.
    pub fn add_run(&mut self, point: &Point, run: &Run) {
        if self.page.board().is_none() {
            return;
        }
        self.metrics.add(counter("sweep_runs", "Runs that are over"), Vec::new(), 1);
        let written = "Shots that could not be written to the file";
        self.metrics.add(loss(counter("sweep_sink_errors", written)), Vec::new(), run.sink_errors);
        for (link, counters) in run.links.iter().enumerate() {
            add_counters(&mut self.metrics, link, counters);
            self.runs.push(run_row(point, link, counters));
        }
        newest(&mut self.runs);
        self.publish();
    }

    /// Adds the result of a point.
    pub fn add_point(&mut self, line: &Line<'_>) {
        if self.page.board().is_none() {
            return;
        }
        let labels = || {
            let [samples, hz, link] = [line.samples.to_string(), line.trigger_hz.to_string(), line.link.to_string()];
            vec![("framing", line.framing.to_owned()), ("samples", samples), ("trigger_hz", hz), ("link", link)]
        };
        let bytes = |name, help| with_unit("bytes_per_second", gauge(name, help));
        let rate =
            with_unit("hertz", gauge("sweep_frame_rate", "Complete shots in a second, over the runs of a point"));
        set_spread(&mut self.metrics, rate, labels, &line.frame_rate_hz, 1.0);
        let placed = bytes("sweep_payload_rate", "Payload placed in a second, over the runs of a point");
        set_spread(&mut self.metrics, placed, labels, &line.bandwidth_gbps, GBPS);
        if let Some(written) = &line.write_gbps {
            let rate = bytes("sweep_write_rate", "Bytes of all links written in a second, over the runs of a point");
            set_spread(&mut self.metrics, rate, labels, written, GBPS);
        }
        self.points.push(point_row(line));
        self.publish();
    }

    /// Adds a trial of a search.
    pub fn add_trial(&mut self, trial: &Trial) {
        if self.page.board().is_none() {
            return;
        }
        let failed_by = trial.failed_by.map_or("-", Failure::name);
        let result = trial.failed_by.map_or("passed", Failure::name);
        let labels = labels_of(trial.framing, trial.sink, ("result", result));
        let help = "Trials of a search that passed, or failed by the sender, the receiver or the recorder";
        self.metrics.add(counter("sweep_trials", help), labels, 1);
        self.trials.push(vec![
            trial.framing.into(),
            trial.sink.into(),
            format!("{:.3}", trial.requested_gbps),
            format!("{:.1}", trial.requested_hz),
            format!("{:.3}", trial.received_gbps),
            failed_by.into(),
            optional(trial.shots_sent),
            trial.shots_lost.to_string(),
        ]);
        newest(&mut self.trials);
        self.publish();
    }

    /// Adds the result of a search.
    pub fn add_result(&mut self, result: &SearchResult) {
        if self.page.board().is_none() {
            return;
        }
        let gbps = [("estimate", Some(result.rate_gbps)), ("low", result.low_gbps), ("high", result.high_gbps)];
        let hz = [("estimate", Some(result.rate_hz)), ("low", result.low_hz), ("high", result.high_hz)];
        let payload = "Highest rate of payload without loss, and the ends of its interval";
        let shots = "Highest rate of shots without loss, and the ends of its interval";
        let metrics = [("bytes_per_second", "sweep_loss_free_payload", payload, gbps, GBPS)];
        for (unit, name, help, values, scale) in
            metrics.into_iter().chain([("hertz", "sweep_loss_free", shots, hz, 1.0)])
        {
            for (bound, value) in values.into_iter().filter_map(|(bound, value)| Some((bound, value?))) {
                let labels = labels_of(result.framing, result.sink, ("bound", bound));
                self.metrics.set(with_unit(unit, gauge(name, help)), labels, value * scale);
            }
        }
        let number = |value: Option<f64>, digits: usize| value.map_or("-".into(), |value| format!("{value:.digits$}"));
        self.results.push(vec![
            result.framing.into(),
            result.sink.into(),
            result.samples.to_string(),
            number(Some(result.rate_gbps), 3),
            format!("{} to {}", number(result.low_gbps, 3), number(result.high_gbps, 3)),
            number(Some(result.rate_hz), 1),
            format!("{} to {}", number(result.low_hz, 1), number(result.high_hz, 1)),
            percent(result.confidence),
            percent(result.passing),
            result.trials.to_string(),
            if result.precision_reached { "yes" } else { "no" }.into(),
            result.limited_by.map_or("-", Failure::name).into(),
        ]);
        self.publish();
    }

    fn publish(&self) {
        self.page.board().into_iter().for_each(|board| board.publish(self.status()));
    }

    fn status(&self) -> Status {
        let [done, all] = self.progress;
        let now: Vec<_> = self.current.iter().map(|text| vec![text.clone(), format!("{done} of {all}")]).collect();
        let tables = [
            table("Now", &["measurement", "runs that are over, at most"], &now),
            table("Loss-free rates", &RESULT_COLUMNS, &self.results),
            table("Points", &POINT_COLUMNS, &self.points),
            table("Newest trials", &TRIAL_COLUMNS, &self.trials),
            table("Newest runs", &RUN_COLUMNS, &self.runs),
        ];
        Status {
            phase: Phase::Running,
            progress: Some(done as f64 / all.max(1) as f64),
            families: self.metrics.families(),
            tables: tables.into_iter().filter(|table| !table.rows.is_empty()).collect(),
            ..Status::default()
        }
    }

    /// Serves the final state for the requested time.
    pub fn end(mut self) {
        self.current = None;
        // An interrupted sweep keeps the progress that it has made.
        if !self.stop.load(std::sync::atomic::Ordering::Relaxed) {
            self.progress[0] = self.progress[1];
        }
        let status = self.status();
        self.page.end(|| status, &self.stop);
    }
}

/// Returns a fraction in percent, with up to two digits.
fn percent(fraction: f64) -> String {
    format!("{} %", (fraction * 1e4).round() / 1e2)
}

const RESULT_COLUMNS: [&str; 12] = [
    "framing",
    "sink",
    "samples",
    "Gbit/s",
    "Gbit/s interval",
    "shots/s",
    "shots/s interval",
    "confidence",
    "passing",
    "trials",
    "precise",
    "limited by",
];
const POINT_COLUMNS: [&str; 14] = [
    "framing",
    "samples",
    "link",
    "trigger Hz",
    "shots/s",
    "shots/s ±",
    "worst",
    "best",
    "Gbit/s",
    "Gbit/s ±",
    "written Gbit/s",
    "missed",
    "shots lost",
    "packets lost",
];
const TRIAL_COLUMNS: [&str; 8] =
    ["framing", "sink", "requested Gbit/s", "shots/s", "received Gbit/s", "failed by", "shots sent", "shots lost"];
const RUN_COLUMNS: [&str; 14] = [
    "framing",
    "samples",
    "Hz",
    "link",
    "seconds",
    "triggers",
    "missed",
    "shots sent",
    "complete",
    "partial",
    "dropped",
    "packets missing",
    "not placed",
    "Gbit/s",
];

fn newest(rows: &mut Vec<Vec<String>>) {
    rows.drain(..rows.len().saturating_sub(NEWEST));
}

fn optional(count: Option<u64>) -> String {
    count.map_or("-".into(), |count| count.to_string())
}

fn labels_of(framing: &str, sink: &str, (label, value): (&'static str, &str)) -> Labels {
    vec![("framing", framing.to_owned()), ("sink", sink.to_owned()), (label, value.to_owned())]
}

fn set_spread(
    metrics: &mut Metrics,
    family: shotline_dashboard::status::Family,
    labels: impl Fn() -> Labels,
    spread: &Spread,
    scale: f64,
) {
    let values = [("mean", spread.mean), ("std", spread.std), ("min", spread.min), ("max", spread.max)];
    for (statistic, value) in values {
        let labels = labels().into_iter().chain([("statistic", statistic.to_owned())]).collect();
        metrics.set(family.clone(), labels, value * scale);
    }
}

fn point_row(line: &Line<'_>) -> Vec<String> {
    let (rate, gbps) = (&line.frame_rate_hz, &line.bandwidth_gbps);
    let (missed, shots, packets) = line.lost();
    let written = line.write_gbps.map_or("-".into(), |gbps| format!("{:.2} ± {:.2}", gbps.mean, gbps.std));
    let mut row = vec![line.framing.to_owned(), line.samples.to_string(), line.link.to_string()];
    row.push(line.trigger_hz.to_string());
    row.extend([rate.mean, rate.std, rate.min, rate.max].map(|hz| format!("{hz:.1}")));
    row.extend([gbps.mean, gbps.std].map(|gbps| format!("{gbps:.2}")));
    row.extend([written, optional(missed), shots.to_string(), packets.to_string()]);
    row
}

fn run_row(point: &Point, link: usize, counters: &LinkCounters) -> Vec<String> {
    let dropped: u64 = counters.shots_dropped.values().sum();
    let mut row = vec![point.framing.to_string(), point.samples.to_string(), format!("{:.1}", point.hz)];
    row.extend([link.to_string(), format!("{:.3}", counters.seconds)]);
    row.extend([counters.triggers, counters.triggers_missed, counters.shots_sent].map(optional));
    let counts = [counters.shots_complete, counters.shots_partial, dropped];
    row.extend(counts.map(|count| count.to_string()));
    row.extend([counters.packets_missing, counters.packets_unplaced].map(|count| count.to_string()));
    row.push(format!("{:.3}", counters.bandwidth_gbps));
    row
}

/// Adds the counters of a link's run to those of the runs before.
fn add_counters(metrics: &mut Metrics, link: usize, counters: &LinkCounters) {
    let labels = || vec![("link", link.to_string())];
    let optional = [
        (counter("sweep_triggers_seen", "Triggers that the probe has seen"), counters.triggers),
        (
            counter("sweep_triggers_missed", "Triggers that the probe missed because it was busy"),
            counters.triggers_missed,
        ),
        (counter("sweep_shots_sent", "Shots that the probe has sent"), counters.shots_sent),
        (counter("sweep_packets_expected", "Packets of the shots that the probe has sent"), counters.packets_expected),
    ];
    let counts = [
        (gauge("sweep_shots_complete", "Shots with every packet and a valid trailer"), counters.shots_complete),
        (loss(gauge("sweep_shots_partial", "Shots with packets missing or a wrong trailer")), counters.shots_partial),
        (counter("sweep_packets_placed", "Packets whose payload is in its shot"), counters.packets_placed),
        (
            loss(counter("sweep_packets_missing", "Packets that closed shots lack, for any reason")),
            counters.packets_missing,
        ),
        (
            loss(counter("sweep_packets_unplaced", "Packets of shots for which there was no buffer")),
            counters.packets_unplaced,
        ),
    ];
    let known = optional.into_iter().filter_map(|(family, count)| Some((family, count?)));
    for (family, count) in known.chain(counts) {
        metrics.add(family, labels(), count);
    }
    let shots = ("sweep_shots_dropped", "Shots that are not in the file, by cause", &counters.shots_dropped);
    let packets = ("sweep_packets_dropped", "Packets that were dropped, by cause", &counters.packets_dropped);
    for (name, help, counts) in [shots, packets] {
        // Every cause, so that an alert finds it at 0 before the first loss.
        for cause in DropCause::ALL {
            let family = if cause.is_loss() { loss(counter(name, help)) } else { counter(name, help) };
            let labels = labels().into_iter().chain([("cause", cause.name().to_owned())]).collect();
            metrics.add(family, labels, counts.get(cause.name()).copied().unwrap_or(0));
        }
    }
}
