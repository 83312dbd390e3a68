//! `shotline sweep search`: searches for the highest rate without loss.

use super::common::Common;
use super::files::Files;
use super::lines::{Failure, SearchResult, Trial};
use super::measure::{Bench, LinkCounters, Run};
use super::point::{Point, ShotTiming};
use super::report::{Header, Report};
use crate::{Result, framing};
use shotline_plan::search::{Estimate, Search, SearchConfig};
use shotline_wire::framing::Kind;
use std::path::PathBuf;

/// Failed trials within this ratio of the result determine what limits it.
const NEAR_RATIO: f64 = 1.25;

/// Arguments of `shotline sweep search`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline sweep search                                   receiving, both protocols: about 30 trials of 1 s each
  shotline sweep search --discard --dir /data             receiving, then recording too
  shotline sweep search --framing ud --samples 500 --unit hz --from 1000 --to 80000
  shotline sweep search --probe 192.168.1.20:47910 --precision 1% --confidence 0.99
  shotline sweep search --json | jq -c 'select(.kind == \"loss_free_rate\") | [.framing, .low_gbps, .high_gbps]'
  shotline sweep search --serve localhost:8080             a page to watch it

Finds the rate at which half of the trials (--passing) lose nothing. A trial also fails if the probe sends less than
configured, by more than the precision. The interval contains the rate with the requested confidence,
however noisy the machine; a noisy one needs more trials, or the interval stays wider, which is reported.
Ctrl-C ends a search cleanly: the results so far are reported.")]
pub struct Args {
    /// Samples per channel and shot
    #[arg(long, default_value_t = 2000, value_name = "N", help_heading = "Search")]
    samples: u32,
    /// Framings: ud (RoCE), counted or udp
    #[arg(long, value_delimiter = ',', default_value = "ud,udp", value_name = "NAME,...", help_heading = "Search")]
    framing: Vec<String>,
    /// Search for the rate of receiving, with shots discarded [default, without --dir]
    #[arg(long, help_heading = "Search")]
    discard: bool,
    /// Search for the rate of recording into this directory; its recordings are removed after each trial
    #[arg(long, visible_alias = "out-dir", value_name = "DIR", help_heading = "Search")]
    dir: Option<PathBuf>,
    /// Unit of --from and --to: Gbit/s of payload on all links together, or shots/s of each link
    #[arg(long, value_enum, default_value = "gbps", help_heading = "Search")]
    unit: Unit,
    /// Lowest rate to try [default: 0.1 Gbit/s]
    #[arg(long, value_name = "RATE", help_heading = "Search")]
    from: Option<f64>,
    /// Highest rate to try [default: 200 Gbit/s]
    #[arg(long, value_name = "RATE", help_heading = "Search")]
    to: Option<f64>,
    /// Width of the interval, as a fraction of the rate
    #[arg(long, default_value = "2%", value_parser = parse_fraction, value_name = "PART", help_heading = "Search")]
    precision: f64,
    /// Probability that the interval contains the rate
    #[arg(long, default_value = "0.95", value_parser = parse_fraction, value_name = "P", help_heading = "Search")]
    confidence: f64,
    /// Find the rate at which this fraction of the trials loses nothing
    #[arg(long, default_value = "0.5", value_parser = parse_fraction, value_name = "P", help_heading = "Search")]
    passing: f64,
    /// Maximum number of trials for each sink and framing
    #[arg(long, default_value_t = 100, value_name = "N", help_heading = "Run")]
    trials: u32,
    #[command(flatten)]
    common: Common,
}

/// Unit of rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Unit {
    /// Gbit/s
    Gbps,
    /// Shots per second
    Hz,
}

/// Parses a fraction such as `0.02` or `2%`.
fn parse_fraction(text: &str) -> std::result::Result<f64, String> {
    let (digits, unit) = match text.strip_suffix('%') {
        Some(digits) => (digits, 0.01),
        None => (text, 1.0),
    };
    let value = digits.trim().parse::<f64>().ok().filter(|value| value.is_finite());
    value.map(|value| value * unit).ok_or_else(|| format!("expected a fraction such as 0.02 or 2%, found {text}"))
}

/// Runs the search for each sink and framing.
pub fn run(args: &Args) -> Result {
    let framings = framing::all_with_set_up(&args.framing)?;
    if args.samples == 0 {
        return Err("expected --samples of 1 or more, found 0".into());
    }
    let bench = Bench::new(&args.common, ShotTiming::Rate, if args.dir.is_some() { 3.0 } else { 1.0 })?;
    let probe = bench.describe(args.samples)?;
    let (geometry, links) = (bench.geometry(&probe, args.samples)?, bench.links(&probe));
    let event_bytes = u64::from(geometry.slot_bytes()) * u64::from(links);
    let files = args.dir.as_ref().map(|dir| Files::in_folder(dir, false, event_bytes)).transpose()?;
    let shot_gbit = f64::from(geometry.shot_bytes()) * 8e-9 * f64::from(links);
    let search_config = args.search_config(shot_gbit)?;
    Search::new(search_config)?;
    let header = Header::new("search", &args.common, &bench, &probe)?;
    let mut report = Report::begin(&args.common, &header, &bench)?;
    let receive = args.discard || files.is_none();
    let sinks: Vec<Option<&Files>> = receive.then_some(None).into_iter().chain(files.as_ref().map(Some)).collect();
    report.print_text("\nframing  sink       Gbit/s   interval            shots/s   trials  limited by");
    let (mut number, searches) = (0, sinks.len() * framings.len());
    'all: for sink in sinks {
        for &framing in &framings {
            let failures = Vec::new();
            let mut one =
                RateSearch { bench: &bench, framing, files: sink, args, shot_gbit, failures, number, searches };
            number += 1;
            one.search(search_config, &mut report)?;
            if bench.interrupted() {
                break 'all;
            }
        }
    }
    report.end(bench.interrupted())
}

impl Args {
    /// Returns the parameters of the search, in Gbit/s.
    fn search_config(&self, shot_gbit: f64) -> Result<SearchConfig> {
        let (gbit, unit) = if self.unit == Unit::Hz { (shot_gbit, "shots/s") } else { (1.0, "Gbit/s") };
        let (from, to) = (self.from.unwrap_or(0.1 / gbit), self.to.unwrap_or(200.0 / gbit));
        if from >= to {
            return Err(format!("expected a range of rates with --from below --to, found {from} to {to} {unit}").into());
        }
        Ok(SearchConfig {
            min_rate: from * gbit,
            max_rate: to * gbit,
            precision: self.precision,
            confidence: self.confidence,
            passing: self.passing,
            trials: self.trials,
        })
    }
}

/// Search of the rate of one framing and one sink.
struct RateSearch<'a> {
    bench: &'a Bench,
    framing: Kind,
    files: Option<&'a Files>,
    args: &'a Args,
    shot_gbit: f64,
    failures: Vec<(f64, Failure)>,
    /// Number of this search, and of all.
    number: usize,
    searches: usize,
}

impl RateSearch<'_> {
    fn search(&mut self, search_config: SearchConfig, report: &mut Report) -> Result {
        let ready = self.bench.ready(self.args.samples, None)?;
        let mut search = Search::new(search_config)?;
        while let Some(gbps) = search.next() {
            let estimate = search.estimate();
            let text = format!("{} {} at {gbps:.2} Gbit/s; {}", self.framing, self.sink(), words(&estimate));
            let (made, most) = (search.trials_made() as usize, search_config.trials as usize);
            report.progress(&text, self.number * most + made, self.searches * most);
            let point = Point { framing: self.framing, samples: self.args.samples, hz: gbps / self.shot_gbit };
            let file = self.files.map(|files| files.next(&point, self.bench.seconds(), search.trials_made()));
            let Some(run) = ready.run(&point, file.as_ref())? else { break };
            report.warn(&run.warnings);
            report.page().add_run(&point, &run);
            let failed_by = self.failure(&run, point.hz);
            self.failures.extend(failed_by.map(|failure| (gbps, failure)));
            search.record(gbps, failed_by.is_none());
            let trial = Trial {
                framing: self.framing.name(),
                sink: self.sink(),
                requested_gbps: gbps,
                requested_hz: point.hz,
                received_gbps: run.links.iter().map(|link| link.bandwidth_gbps).sum(),
                passed: failed_by.is_none(),
                failed_by,
                shots_sent: run.links.iter().map(|link| link.shots_sent).sum(),
                shots_lost: run.links.iter().map(|link| link.shots_lost()).sum::<u64>() + run.sink_errors,
            };
            report.line(&trial)?;
            report.page().add_trial(&trial);
        }
        self.report_result(&search, report)
    }

    fn sink(&self) -> &'static str {
        if self.files.is_some() { "record" } else { "receive" }
    }

    /// Returns why a run is not loss-free at this rate, if it is not.
    fn failure(&self, run: &Run, hz: f64) -> Option<Failure> {
        let dropped_shots = |link: &LinkCounters| link.shots_dropped.keys().any(|cause| cause.starts_with("sink_"));
        let slowest = run.links.iter().map(|link| link.sent_hz()).fold(f64::INFINITY, f64::min);
        if run.sink_errors > 0 || run.links.iter().any(dropped_shots) {
            Some(Failure::Recorder)
        } else if !run.lossless() {
            Some(Failure::Receiver)
        } else if slowest < hz * (1.0 - self.args.precision) {
            Some(Failure::Sender)
        } else {
            None
        }
    }

    fn report_result(&self, search: &Search, report: &mut Report) -> Result {
        let estimate = search.estimate();
        let Estimate { rate, low, high, is_precise: reached } = estimate;
        let hz = |gbps: f64| gbps / self.shot_gbit;
        let limited_by = self.limit(rate);
        let result = SearchResult {
            framing: self.framing.name(),
            sink: self.sink(),
            samples: self.args.samples,
            rate_gbps: rate,
            low_gbps: low,
            high_gbps: high,
            rate_hz: hz(rate),
            low_hz: low.map(hz),
            high_hz: high.map(hz),
            confidence: self.args.confidence,
            passing: self.args.passing,
            trials: search.trials_made(),
            precision_reached: reached,
            limited_by,
        };
        report.line(&result)?;
        report.page().add_result(&result);
        let limit = limited_by.map_or("-", Failure::name);
        let wide = if reached { "" } else { "   wider than requested: more --trials, or a quieter machine" };
        report.print_text(&format!(
            "{:9}{:8}{rate:9.2}   {:18}{:9.1}{:9}  {limit}{wide}",
            self.framing,
            self.sink(),
            interval(&estimate),
            hz(rate),
            search.trials_made(),
        ));
        Ok(())
    }

    /// Returns why most trials close to a rate failed.
    fn limit(&self, rate: f64) -> Option<Failure> {
        let close = |failed: &&(f64, Failure)| failed.0 <= rate * NEAR_RATIO && rate <= failed.0 * NEAR_RATIO;
        let count = |failure| self.failures.iter().filter(close).filter(|failed| failed.1 == failure).count();
        let most_frequent =
            [Failure::Sender, Failure::Receiver, Failure::Recorder].into_iter().max_by_key(|it| count(*it));
        most_frequent.filter(|failure| count(*failure) > 0)
    }
}

fn words(estimate: &Estimate) -> String {
    format!("so far {:.2} ({})", estimate.rate, interval(estimate))
}

fn interval(estimate: &Estimate) -> String {
    match (estimate.low, estimate.high) {
        (Some(low), Some(high)) => format!("{low:.2} to {high:.2}"),
        (Some(low), None) => format!("above {low:.2}"),
        (None, Some(high)) => format!("below {high:.2}"),
        (None, None) => "unknown".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_numbers_or_percentages() {
        assert_eq!(parse_fraction("0.02"), Ok(0.02));
        assert_eq!(parse_fraction("2%"), Ok(0.02));
        assert_eq!(parse_fraction("99.5 %"), Ok(0.995));
        for wrong in ["", "%", "two", "nan", "2%%"] {
            assert!(parse_fraction(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn open_intervals_are_described() {
        let estimate = |low, high| Estimate { rate: 2.0, low, high, is_precise: false };
        assert_eq!(interval(&estimate(Some(1.0), Some(3.0))), "1.00 to 3.00");
        assert_eq!(interval(&estimate(Some(1.0), None)), "above 1.00");
        assert_eq!(interval(&estimate(None, Some(3.0))), "below 3.00");
        assert_eq!(interval(&estimate(None, None)), "unknown");
    }
}
