//! `shotline link`: SpaceFibre links, live.

mod demo;
pub mod page;
mod reading;
mod show;
mod source;

use crate::initiator::Access;
use crate::serve::PageArgs;
use crate::values::{control_address, seconds};
use crate::{Result, signals};
use demo::{Demo, Load};
use reading::Reading;
use shotline_dashboard::BoardInfo;
use shotline_verbs::spacefibre::LinkSelector;
use show::Show;
use source::{Source, Target};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Links of the demonstration.
const DEMO: &str = "lanes=4,vc=50%/0,vc=30%/1,vc=20%/2";
/// Default duration of the demonstration.
const DEMO_DURATION: Duration = Duration::from_secs(10);

/// Arguments of `shotline link`.
#[derive(clap::Args)]
#[command(after_help = "\
Rates are those of data words; 'used' is the part of the data words sent. A watcher counts as one of the target's
initiators; the target answers it between two rounds of the traffic.

Examples:
  shotline link 127.0.0.1:47920 --token TOKEN                 links of a target with --transport spacefibre
  shotline link ./a.sock --token-file t --json --count 10 | jq '.links[].counters.retries'
  shotline link --demo                                        quality of service of three channels, without a target
  shotline link --demo lanes=2,vc=90%/0,vc=10%/0 --load 0.5,5 --duration 5
  shotline link --demo vc=60%/0/0-31,vc=40%/0/32-63,ber=1e-6  time-slots, and bit errors
  shotline link --demo --duration 600 --interval 0.2 --serve localhost:8080    a page to watch it")]
pub struct Args {
    /// Address of the target's control connections, or the path of its socket
    #[arg(value_name = "ADDRESS|PATH", required_unless_present = "demo")]
    to: Option<String>,
    #[command(flatten)]
    access: Access,
    /// Interval of the readings in seconds, from 0.1
    #[arg(long, value_name = "S", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// End after this number of readings
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// End after this number of seconds [default of --demo: 10]
    #[arg(long, value_name = "S", value_parser = seconds)]
    duration: Option<Duration>,
    #[arg(long, value_name = "LINK", conflicts_with = "to", num_args = 0..=1, default_missing_value = DEMO,
        help = format!("Show two ends in this program, with traffic on all channels [default: {DEMO}]"))]
    demo: Option<LinkSelector>,
    /// Offered load of the demonstration's channels as a multiple of their shares, one for all or one for each
    /// [default: always more than the link can send]
    #[arg(long, value_name = "LOAD,...", value_delimiter = ',', conflicts_with = "to")]
    load: Vec<Load>,
    /// Rate of the demonstration's link in Gbit/s
    #[arg(long, value_name = "GBPS", default_value_t = 1.0, value_parser = rate, conflicts_with = "to")]
    gbps: f64,
    /// Print one JSON object for each reading
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    page: PageArgs,
}

fn interval(text: &str) -> std::result::Result<Duration, String> {
    let number = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    number.map(Duration::from_secs_f64).ok_or_else(|| format!("expected seconds from 0.1 to 3600, found {text}"))
}

fn rate(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse().ok().filter(|gbps| (0.001..=100.0).contains(gbps));
    number.ok_or_else(|| format!("expected Gbit/s from 0.001 to 100, found {text}"))
}

/// Shows links until a signal, the end of the duration or the last reading.
pub fn run(args: &Args) -> Result {
    let stop = signals::stop_flag()?;
    match (&args.demo, &args.to) {
        (Some(selector), _) => {
            let demo = Demo::new(selector, &args.load, args.gbps)?;
            watch(args, args.duration.or(Some(DEMO_DURATION)), demo, &stop)
        }
        (None, to) => {
            let to = control_address(to.as_deref().unwrap_or_default())?;
            let target = Target::connect(&to, args.access.token()?)?;
            watch(args, args.duration, target, &stop)
        }
    }
}

impl Args {
    /// Returns what the page says about the command.
    fn info(&self) -> BoardInfo {
        let title = match (&self.demo, &self.to) {
            (Some(selector), _) => format!("two ends of a link in this program: {selector}"),
            (None, to) => format!("links of the target at {}", to.as_deref().unwrap_or_default()),
        };
        BoardInfo {
            command: "link".into(),
            title,
            settings: vec![("interval".into(), format!("{} s", self.interval.as_secs_f64()))],
            stopping: "Ends with a last reading.",
            ..BoardInfo::default()
        }
    }
}

fn watch(args: &Args, duration: Option<Duration>, mut source: impl Source, stop: &Arc<AtomicBool>) -> Result {
    let page = args.page.board(args.info(), Vec::new(), stop)?;
    let start = Instant::now();
    let mut show = Show::new(args.json);
    let mut before = (start, source.status()?);
    let mut next = start;
    for count in 1_u32.. {
        next += args.interval;
        let end = duration.map_or(next, |duration| next.min(start + duration));
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            source.run(end)?;
        }
        let now = Instant::now();
        let status = source.status()?;
        let is_last = args.count.is_some_and(|max| count >= max)
            || duration.is_some_and(|duration| now >= start + duration)
            || stop.load(Ordering::Relaxed);
        let interval = now - before.0;
        let reading = Reading::new(now - start, interval, &before.1, &status);
        show.show(&reading, is_last)?;
        let parts = [
            args.count.map(|max| f64::from(count) / f64::from(max)),
            duration.map(|duration| (now - start).as_secs_f64() / duration.as_secs_f64()),
        ];
        let progress = parts.into_iter().flatten().reduce(f64::max).map(|part| part.min(1.0));
        let state = || page::status(&reading, &status, progress);
        if is_last {
            page.end(state, stop);
            break;
        }
        page.board().into_iter().for_each(|board| board.publish(state()));
        before = (now, status);
        // A reading that took too long is not made up for.
        next = next.max(now);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demonstration_by_default_is_a_valid_link() {
        assert!(DEMO.parse::<LinkSelector>().is_ok());
    }

    #[test]
    fn intervals_and_rates_have_limits() {
        assert_eq!((interval("0.1"), rate("2.5")), (Ok(Duration::from_millis(100)), Ok(2.5)));
        for text in ["0", "0.01", "-1", "nan", "1h", "3601"] {
            assert!(interval(text).unwrap_err().contains("from 0.1 to 3600"), "{text}");
        }
        for text in ["0", "101", "-1", "nan", "fast"] {
            assert!(rate(text).unwrap_err().contains("Gbit/s from 0.001 to 100"), "{text}");
        }
    }
}
