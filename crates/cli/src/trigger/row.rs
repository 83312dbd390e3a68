//! Results of one setting.

use super::stats::{self, Bin, Quantiles};
use crate::serve::metrics::{Labels, latency_of};
use serde::Serialize;
use shotline_acquire::trigger::{Measurement, Settings, ShotTimes, WARM_UP, Wait};
use shotline_dashboard::status::LatencyReading;
use shotline_plan::formula::shot;

/// Results of one setting.
#[derive(Serialize)]
pub struct Row {
    pub samples: u32,
    pub framing: &'static str,
    pub wait: &'static str,
    pub links: u8,
    pub shot_bytes: u32,
    pub packets_per_shot: u32,
    /// Time that the device needs before it can send: samples / sample rate + 1.85 us.
    pub sampling_us: f64,
    pub command_us: Option<Quantiles>,
    pub first_packet_us: Option<Quantiles>,
    pub last_packet_us: Option<Quantiles>,
    pub complete_us: Option<Quantiles>,
    /// Histogram of `complete_us`, with bins of a tenth of a decade.
    pub histogram: Vec<Bin>,
    pub warm_up: u32,
    pub triggers: u64,
    pub complete: u64,
    pub partial: u64,
    pub shots_lost: u64,
    pub busy: u64,
    pub refused: u64,
    pub unanswered: u64,
    pub answers_lost: u64,
    pub commands_lost: u64,
    pub packets: u64,
    pub packets_missing: u64,
    /// The times as distributions.
    #[serde(skip)]
    pub latencies: Vec<LatencyReading>,
}

impl Row {
    /// Returns the result of a setting. The distributions of its times are for a page.
    pub fn of(settings: &Settings, point: &Measurement, has_page: bool) -> Self {
        let of = |time: fn(&shotline_acquire::trigger::ShotTimes) -> u64| point.shots.iter().map(time).collect();
        let complete: Vec<u64> = of(|shot| shot.complete_ns);
        let counts = point.triggers;
        let geometry = point.geometry;
        let names = [settings.samples.to_string(), settings.framing.name().into(), name(settings.wait).into()];
        let busy_s = shot::busy_s(geometry.samples(), geometry.sample_rate_hz().into(), shot::DEAD_TIME_S);
        Self {
            samples: settings.samples,
            framing: settings.framing.name(),
            wait: name(settings.wait),
            links: settings.links,
            shot_bytes: geometry.shot_bytes(),
            packets_per_shot: geometry.packets(),
            sampling_us: busy_s * 1e6,
            command_us: Quantiles::of(point.commands_ns.clone()),
            first_packet_us: Quantiles::of(of(|shot| shot.first_ns)),
            last_packet_us: Quantiles::of(of(|shot| shot.last_ns)),
            histogram: stats::histogram(&complete),
            complete_us: Quantiles::of(complete),
            warm_up: WARM_UP,
            triggers: counts.triggers,
            complete: counts.complete,
            partial: counts.partial,
            shots_lost: counts.shots_lost,
            busy: counts.busy,
            refused: counts.refused,
            unanswered: counts.unanswered,
            answers_lost: counts.answers_lost,
            commands_lost: point.commands_lost,
            packets: point.counters.packets,
            packets_missing: point.counters.packets_missing,
            latencies: if has_page { latencies(&names, point) } else { Vec::new() },
        }
    }

    /// Warns about triggers whose shots are missing.
    pub fn warn_of_losses(&self) {
        let of = format!("{} samples, {}, {}", self.samples, self.framing, self.wait);
        for (count, what) in [
            (self.partial, "triggers yielded shots with missing packets"),
            (self.shots_lost, "triggers were accepted, but no shot was received"),
            (self.busy, "triggers were missed because a shot was in progress"),
            (self.refused, "triggers were refused: another program controls or triggers the probe"),
            (self.unanswered, "triggers yielded neither a reply nor a shot"),
            (self.answers_lost, "triggers were not answered, but their shots were received"),
            (self.commands_lost, "commands were not answered"),
        ] {
            if count > 0 {
                crate::output::warn(format_args!("{of}: {count} {what}"));
            }
        }
    }

    pub fn names(&self) -> [String; 3] {
        [self.samples.to_string(), self.framing.into(), self.wait.into()]
    }

    pub fn lost(&self) -> u64 {
        self.triggers - self.complete
    }
}

/// Returns the name of a wait method.
pub fn name(wait: Wait) -> &'static str {
    match wait {
        Wait::Poll => "poll",
        Wait::Sleep => "sleep",
    }
}

/// Returns the labels of a setting.
pub fn labels([samples, framing, wait]: &[String; 3]) -> Labels {
    vec![("samples", samples.clone()), ("framing", framing.clone()), ("wait", wait.clone())]
}

/// Returns the distributions of a setting's times.
fn latencies(names: &[String; 3], point: &Measurement) -> Vec<LatencyReading> {
    let of = |time: fn(&ShotTimes) -> u64| point.shots.iter().map(time).collect();
    [
        ("trigger_command", "Round trip of a command without a shot", point.commands_ns.clone()),
        ("trigger_first_packet", "Time from the command to the first packet of its shot", of(|shot| shot.first_ns)),
        ("trigger_last_packet", "Time from the command to the last packet of its shot", of(|shot| shot.last_ns)),
        ("trigger_shot", "Time from the command to the complete shot", of(|shot| shot.complete_ns)),
    ]
    .into_iter()
    .filter_map(|(name, help, ns)| latency_of((name, help), labels(names), ns))
    .collect()
}

/// A column of a table: its title, and its cell of a row.
pub type Column = (&'static str, fn(&Row) -> String);

/// Formats microseconds, if there are any.
fn us(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.1}"))
}

fn median(quantiles: Option<Quantiles>) -> String {
    us(quantiles.map(|quantiles| quantiles.p50))
}

/// Returns the columns that name a setting, followed by others.
fn with_names<const N: usize>(others: [Column; N]) -> Vec<Column> {
    let names: [Column; 3] = [
        ("samples", |row| row.samples.to_string()),
        ("framing", |row| row.framing.into()),
        ("wait", |row| row.wait.into()),
    ];
    names.into_iter().chain(others).collect()
}

/// Returns the columns of the times to the complete shot.
pub fn time_columns() -> Vec<Column> {
    with_names([
        ("p50", |row| median(row.complete_us)),
        ("p90", |row| us(row.complete_us.map(|q| q.p90))),
        ("p99", |row| us(row.complete_us.map(|q| q.p99))),
        ("p99.9", |row| us(row.complete_us.map(|q| q.p999))),
        ("max", |row| us(row.complete_us.map(|q| q.max))),
        ("mean", |row| us(row.complete_us.map(|q| q.mean))),
        ("lost", |row| row.lost().to_string()),
    ])
}

/// Returns the columns of the times of the steps.
pub fn step_columns() -> Vec<Column> {
    with_names([
        ("command", |row| median(row.command_us)),
        ("sampling", |row| format!("{:.1}", row.sampling_us)),
        ("both", |row| us(row.command_us.map(|quantiles| quantiles.p50 + row.sampling_us))),
        ("first packet", |row| median(row.first_packet_us)),
        ("last packet", |row| median(row.last_packet_us)),
        ("shot", |row| median(row.complete_us)),
    ])
}

/// Returns the columns of what became of the triggers, for the page.
pub fn lost_columns() -> Vec<Column> {
    with_names([
        ("triggers", |row| row.triggers.to_string()),
        ("complete", |row| row.complete.to_string()),
        ("partial", |row| row.partial.to_string()),
        ("shots lost", |row| row.shots_lost.to_string()),
        ("busy", |row| row.busy.to_string()),
        ("refused", |row| row.refused.to_string()),
        ("unanswered", |row| row.unanswered.to_string()),
        ("answers lost", |row| row.answers_lost.to_string()),
        ("commands lost", |row| row.commands_lost.to_string()),
        ("packets", |row| row.packets.to_string()),
        ("missing", |row| row.packets_missing.to_string()),
    ])
}
