//! `shotline trigger`: measures the time from the trigger command to the complete shot.

pub mod stats;

use crate::child::Probe;
use crate::output::columns;
use crate::values::address;
use crate::{Result, framing, signals};
use serde::Serialize;
use shotline_acquire::cpu::pin;
use shotline_acquire::trigger::{Measurement, Settings, WARM_UP, Wait, measure};
use shotline_plan::formula::shot;
use shotline_wire::framing::Kind;
use stats::{Bin, Quantiles};
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

/// Arguments of `shotline trigger`.
#[derive(clap::Args)]
#[command(after_help = "\
Each trigger is sent once. A lost trigger, or one whose shot is lost, is counted and excluded from the times.

Examples:
  shotline trigger                                              an emulated probe, 125 to 4000 samples
  shotline trigger --samples 125 --wait poll --cpu 1 --probe-cpu 0
  shotline trigger --probe 192.168.1.20:47910 --framing ud --json | jq '{samples, complete_us}'")]
pub struct Args {
    /// Set-up address of a probe [default: an emulated one in a child process]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    probe: Option<SocketAddr>,
    /// Samples per channel and shot
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "125,250,500,1000,2000,4000")]
    samples: Vec<u32>,
    /// Framings: ud, counted, udp
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "ud,udp", value_parser = framing::with_set_up)]
    framing: Vec<Kind>,
    /// Wait method of the receiver and an emulated probe: poll (uses one processor each) or sleep
    #[arg(long, value_name = "HOW,...", value_delimiter = ',', default_value = "poll,sleep", value_parser = wait)]
    wait: Vec<Wait>,
    /// Number of measured triggers for each setting
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    count: u32,
    /// Number of links that must send a shot for each trigger
    #[arg(long, value_name = "N", default_value_t = 1)]
    links: u8,
    /// Local address for the shots [default: source address of the route to the probe, any port]
    #[arg(long, value_name = "ADDRESS:PORT")]
    bind: Option<SocketAddr>,
    /// Override another receiver that controls the probe
    #[arg(long)]
    take_over: bool,
    /// Processor of the receiver; a dedicated one reduces the variation of the times
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
    /// Processor of the emulated probe
    #[arg(long, value_name = "N", conflicts_with = "probe")]
    probe_cpu: Option<u32>,
    /// Print one JSON object for each setting
    #[arg(long)]
    json: bool,
}

fn wait(how: &str) -> std::result::Result<Wait, String> {
    match how {
        "poll" => Ok(Wait::Poll),
        "sleep" => Ok(Wait::Sleep),
        _ => Err(format!("expected poll or sleep, found {how}")),
    }
}

/// Results of one setting.
#[derive(Serialize)]
struct Row {
    samples: u32,
    framing: &'static str,
    wait: &'static str,
    links: u8,
    shot_bytes: u32,
    packets_per_shot: u32,
    /// Time that the device needs before it can send: samples / sample rate + 1.85 us.
    sampling_us: f64,
    command_us: Option<Quantiles>,
    first_packet_us: Option<Quantiles>,
    last_packet_us: Option<Quantiles>,
    complete_us: Option<Quantiles>,
    /// Histogram of `complete_us`, with bins of a tenth of a decade.
    histogram: Vec<Bin>,
    warm_up: u32,
    triggers: u64,
    complete: u64,
    partial: u64,
    shots_lost: u64,
    busy: u64,
    refused: u64,
    unanswered: u64,
    answers_lost: u64,
    commands_lost: u64,
    packets: u64,
    packets_missing: u64,
}

/// Measures every setting.
pub fn run(args: &Args) -> Result {
    let stop = signals::stop_flag()?;
    let mut rows = Vec::new();
    let probe = |wait: &Wait| match args.probe {
        Some(probe) => Ok((None, probe)),
        None => Probe::start(&child_arguments(args, *wait)).map(|(child, probe)| (Some(child), probe)),
    };
    let probes = args.wait.iter().map(probe).collect::<Result<Vec<_>>>()?;
    // Pinned only now, because the probes would inherit it.
    args.cpu.map_or(Ok(()), pin)?;
    for (wait, (_, probe)) in args.wait.iter().zip(&probes) {
        for framing in &args.framing {
            for samples in &args.samples {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                if !args.json && std::io::stderr().is_terminal() {
                    errln!("{samples} samples, {}, {}: {} triggers", framing, name(*wait), args.count);
                }
                let settings = Settings {
                    probe: *probe,
                    take_over: args.take_over,
                    framing: *framing,
                    links: args.links,
                    samples: *samples,
                    wait: *wait,
                    count: args.count,
                    bind: args.bind,
                };
                let row = Row::of(&settings, &measure(&settings, &stop, crate::record::open)?);
                if args.json {
                    outln!("{}", serde_json::to_string(&row)?);
                }
                row.warn_of_losses();
                rows.push(row);
            }
        }
    }
    if !args.json {
        print(&rows);
    }
    match rows.iter().find(|row| row.complete == 0 && !stop.load(Ordering::Relaxed)) {
        Some(row) => Err(format!("received no complete shot of {} samples", row.samples).into()),
        None => Ok(()),
    }
}

fn child_arguments(args: &Args, wait: Wait) -> Vec<String> {
    let max_samples = args.samples.iter().max().copied().unwrap_or(1);
    let mut words = vec!["--samples".into(), max_samples.to_string(), "--links".into(), args.links.to_string()];
    if wait == Wait::Poll {
        words.push("--busy-poll".into());
    }
    if let Some(cpu) = args.probe_cpu {
        words.extend(["--cpu".into(), cpu.to_string()]);
    }
    words
}

fn name(wait: Wait) -> &'static str {
    match wait {
        Wait::Poll => "poll",
        Wait::Sleep => "sleep",
    }
}

impl Row {
    fn of(settings: &Settings, point: &Measurement) -> Self {
        let of = |time: fn(&shotline_acquire::trigger::ShotTimes) -> u64| point.shots.iter().map(time).collect();
        let complete: Vec<u64> = of(|shot| shot.complete_ns);
        let counts = point.triggers;
        let geometry = point.geometry;
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
        }
    }

    /// Warns about triggers whose shots are missing.
    fn warn_of_losses(&self) {
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

    fn names(&self) -> [String; 3] {
        [self.samples.to_string(), self.framing.into(), self.wait.into()]
    }

    fn lost(&self) -> u64 {
        self.triggers - self.complete
    }
}

fn print(rows: &[Row]) {
    let us = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.1}"));
    let median = |quantiles: &Option<Quantiles>| us(quantiles.map(|quantiles| quantiles.p50));
    outln!("From the command to the complete shot with its CRC verified, in us:");
    let names = [">samples", ">framing", ">wait", ">p50", ">p90", ">p99", ">p99.9", ">max", ">mean", ">lost"];
    let mut table: Vec<Vec<_>> = Vec::new();
    for row in rows {
        let q = row.complete_us;
        let times = [q.map(|q| q.p50), q.map(|q| q.p90), q.map(|q| q.p99), q.map(|q| q.p999), q.map(|q| q.max)];
        let times = times.into_iter().chain([q.map(|q| q.mean)]).map(us);
        table.push(row.names().into_iter().chain(times).chain([row.lost().to_string()]).collect());
    }
    columns(&names, &table);
    outln!("\nTimes of the steps, medians in us. The command's time is its round trip without a shot:");
    let names =
        [">samples", ">framing", ">wait", ">command", ">sampling", ">both", ">first packet", ">last packet", ">shot"];
    let mut table: Vec<Vec<_>> = Vec::new();
    for row in rows {
        let both = row.command_us.map(|quantiles| quantiles.p50 + row.sampling_us);
        let times = [
            median(&row.command_us),
            format!("{:.1}", row.sampling_us),
            us(both),
            median(&row.first_packet_us),
            median(&row.last_packet_us),
            median(&row.complete_us),
        ];
        table.push(row.names().into_iter().chain(times).collect());
    }
    columns(&names, &table);
    let histograms: Vec<_> = rows.iter().map(|row| (row.names().join(" "), row.histogram.as_slice())).collect();
    if let Some(lines) = stats::draw(&histograms) {
        outln!("\nHistogram of the times to the complete shot, ten bins per decade, heights logarithmic:");
        lines.iter().for_each(|line| outln!("  {line}"));
    }
}
