//! `shotline sweep network`: figures 5 and 6 of Cossettini et al. (see [`super`]).

use super::common::{Common, check_frequencies};
use super::grid;
use super::measure::Bench;
use super::point::{Point, ShotTiming};
use super::points::{Plan, measure};
use super::report::{Header, Report};
use crate::{Result, framing};

/// Arguments of `shotline sweep network`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline sweep network                                        both protocols, four shot lengths: 12 minutes
  shotline sweep network --samples 2000 --framing ud --trigger-hz 5000,10000,19000 --repeats 3
  shotline sweep network --out network.jsonl                    python3 python/shotline_plot.py draws it
  shotline sweep network --probe 192.168.1.20:47910 --timing rate   a real probe, at configured rates
  shotline sweep network --probe 192.168.1.20:47910 --generator-hz 5000   the same, with your own generator at 5 kHz
  shotline sweep network --samples 500 --json | jq -c 'select(.kind == \"point\") | [.trigger_hz, .frame_rate_hz.mean]'
  shotline sweep network --serve localhost:8080                 a page to watch it

Ctrl-C ends a sweep cleanly: the points measured so far are reported.")]
pub struct Args {
    /// Samples per channel and shot
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "500,1000,2000,4000",
        value_name = "N,...",
        help_heading = "Points"
    )]
    samples: Vec<u32>,
    /// Framings: ud (RoCE), counted or udp
    #[arg(long, value_delimiter = ',', default_value = "ud,udp", value_name = "NAME,...", help_heading = "Points")]
    framing: Vec<String>,
    /// Trigger frequencies in Hz [default: 13, up to a quarter above the device's highest shot rate]
    #[arg(long, value_delimiter = ',', value_name = "HZ,...", help_heading = "Points")]
    trigger_hz: Vec<f64>,
    /// Frequency in Hz of the external generator at a real probe's trigger input
    #[arg(long, value_name = "HZ", conflicts_with = "trigger_hz", requires = "probe", help_heading = "Points")]
    generator_hz: Option<f64>,
    /// Source of the shots' timing
    #[arg(long, value_enum, default_value = "trigger", help_heading = "Points")]
    timing: ShotTiming,
    /// Runs of each point
    #[arg(long, default_value_t = 5, value_name = "N", help_heading = "Run")]
    repeats: u32,
    #[command(flatten)]
    common: Common,
}

/// Measures the network.
pub fn run(args: &Args) -> Result {
    let given = args.generator_hz.map_or(args.trigger_hz.clone(), |hz| vec![hz]);
    let framings = framing::all_with_set_up(&args.framing)?;
    check_frequencies(&given)?;
    let Some(max_samples) =
        args.samples.iter().copied().max().filter(|_| !args.samples.contains(&0) && args.repeats > 0)
    else {
        return Err("expected --samples and --repeats of 1 or more, found 0".into());
    };
    match (args.common.probe, args.timing, args.generator_hz) {
        (Some(_), ShotTiming::Trigger, None) => return Err("the generator at a real probe's trigger input cannot be set from here: specify its frequency with --generator-hz, or use the probe's own clock with --timing rate".into()),
        (_, ShotTiming::Rate, Some(_)) => return Err("--generator-hz is the frequency of a trigger, which --timing rate does not use: use only one of them".into()),
        _ => {}
    }
    let bench = Bench::new(&args.common, args.timing, 1.0)?;
    let probe = bench.describe(max_samples)?;
    let mut points = Vec::new();
    for &framing in &framings {
        for &samples in &args.samples {
            let frequencies = match given.is_empty() {
                true => grid::frequencies(samples, probe.sample_rate_hz),
                false => given.clone(),
            };
            points.extend(frequencies.into_iter().map(|hz| Point { framing, samples, hz }));
        }
    }
    let header = Header::new("network", &args.common, &bench, &probe)?;
    let report = Report::begin(&args.common, &header, &bench)?;
    measure(&bench, &Plan { points, repeats: args.repeats, files: None }, report)
}
