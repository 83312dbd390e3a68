//! `shotline sweep disk`: figure 7 of Cossettini et al. (see [`super`]).

use super::common::{Common, check_frequencies};
use super::files::Files;
use super::grid;
use super::measure::Bench;
use super::point::{Point, ShotTiming};
use super::points::{Plan, measure};
use super::report::{Header, Report};
use crate::{Result, framing};
use std::path::PathBuf;

/// Arguments of `shotline sweep disk`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline sweep disk --dir /data                               13 frequencies, 5 runs of 3 s each: 4 minutes
  shotline sweep disk --dir /data --trigger-hz 1000,2000,5000 --seconds 10 --out disk.jsonl
  shotline sweep disk --dir /data --json | jq -c 'select(.kind == \"point\") | [.trigger_hz, .write_gbps.mean]'
  shotline sweep disk --dir /data --serve localhost:8080        a page to watch it

A real probe (--probe) generates its own triggers, at the configured rates.
Runs too short to fill the pool measure its size, not the speed of the disk: 256 MiB are 0.2 s at 10 Gbit/s.
Ctrl-C ends a sweep cleanly: the points measured so far are reported.")]
pub struct Args {
    /// Directory on the disk to measure; its recordings are removed after each run
    #[arg(long, value_name = "DIR", help_heading = "Sink")]
    dir: PathBuf,
    /// Keep the files
    #[arg(long, help_heading = "Sink")]
    keep: bool,
    /// Samples per channel and shot
    #[arg(long, default_value_t = 2000, value_name = "N", help_heading = "Points")]
    samples: u32,
    /// Framing: ud (RoCE), counted or udp
    #[arg(long, default_value = "ud", value_name = "NAME", help_heading = "Points")]
    framing: String,
    /// Trigger frequencies in Hz [default: 13, up to a quarter above the device's highest shot rate]
    #[arg(long, value_delimiter = ',', value_name = "HZ,...", help_heading = "Points")]
    trigger_hz: Vec<f64>,
    /// Runs of each point
    #[arg(long, default_value_t = 5, value_name = "N", help_heading = "Run")]
    repeats: u32,
    #[command(flatten)]
    common: Common,
}

/// Measures the disk. The shots of a real probe are timed by its own clock.
pub fn run(args: &Args) -> Result {
    let framing = framing::with_set_up(&args.framing)?;
    check_frequencies(&args.trigger_hz)?;
    if args.samples == 0 || args.repeats == 0 {
        return Err("expected --samples and --repeats of 1 or more, found 0".into());
    }
    let timing = if args.common.probe.is_some() { ShotTiming::Rate } else { ShotTiming::Trigger };
    let bench = Bench::new(&args.common, timing, 3.0)?;
    let probe = bench.describe(args.samples)?;
    let event_bytes = u64::from(bench.geometry(&probe, args.samples)?.slot_bytes()) * u64::from(bench.links(&probe));
    let files = Files::in_folder(&args.dir, args.keep, event_bytes)?;
    let frequencies = match args.trigger_hz.is_empty() {
        true => grid::frequencies(args.samples, probe.sample_rate_hz),
        false => args.trigger_hz.clone(),
    };
    let point = |hz| Point { framing, samples: args.samples, hz };
    let points = frequencies.into_iter().map(point).collect();
    let header = Header::new("disk", &args.common, &bench, &probe)?;
    let report = Report::begin(&args.common, &header, &bench)?;
    measure(&bench, &Plan { points, repeats: args.repeats, files: Some(files) }, report)
}
