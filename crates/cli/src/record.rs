//! `shotline record`: from a probe into a file.

use crate::output::{Summary, print_table};
use crate::{Result, signals};
use shotline_acquire::config::Settings;
use shotline_acquire::live::Live;
use shotline_acquire::run::run as acquire;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Arguments of `shotline record`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline record --probe [::1]:47910 --out run.h5 --shots 1000
  shotline record --probe 192.168.1.20:47910 --out run.h5 --seconds 10 --rate-hz 5000
  shotline record --config probe.toml --discard --json      keys of the file are the flags' names

Ctrl-C ends a run cleanly: everything received is in the file.")]
pub struct Args {
    /// Settings from a TOML file; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Print one JSON object in the end
    #[arg(long)]
    json: bool,
    /// No live view
    #[arg(long)]
    quiet: bool,
}

/// Records until the end that the settings name, or Ctrl-C.
pub fn run(args: Args) -> Result {
    let settings = match &args.config {
        Some(path) => args.settings.over(Settings::read(path)?),
        None => args.settings,
    };
    let stop = signals::stop_flag()?;
    let view = !args.quiet && !args.json && std::io::stderr().is_terminal();
    let outcome = with_view(view, |live| acquire(&settings, &stop, live))?;
    let summary = Summary::of(&outcome);
    if args.json {
        println!("{}", serde_json::to_string(&summary)?);
    } else {
        print_table(&summary.rows());
        for warning in &summary.warnings {
            eprintln!("warning: {warning}");
        }
    }
    Ok(())
}

/// Does `work` while a line on the terminal shows how it goes.
pub fn with_view<T>(view: bool, work: impl FnOnce(&Live) -> T) -> T {
    let live = Live::default();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if view {
            scope.spawn(|| show(&live, &done));
        }
        let result = work(&live);
        done.store(true, Ordering::Relaxed);
        result
    })
}

fn show(live: &Live, done: &AtomicBool) {
    let begun = Instant::now();
    let mut before = (begun, live.read());
    while !done.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(250));
        let (now, reading) = (Instant::now(), live.read());
        let seconds = (now - before.0).as_secs_f64();
        let gbps = (reading.bytes - before.1.bytes) as f64 * 8.0 / seconds / 1e9;
        let shots = (reading.complete + reading.partial).saturating_sub(before.1.complete + before.1.partial);
        eprint!(
            "\r{:6.1} s  {gbps:6.2} Gbit/s  {:8.0} shots/s  complete {}  partial {}  dropped {}  in file {}  packets dropped {}\x1b[K",
            (now - begun).as_secs_f64(),
            shots as f64 / seconds,
            reading.complete,
            reading.partial,
            reading.shots_dropped,
            reading.rows,
            reading.packets_dropped,
        );
        let _ = std::io::stderr().flush();
        before = (now, reading);
    }
    eprintln!();
}
