//! `shotline record`: from a probe into a file.

use crate::output::{Summary, print_table};
use crate::view::{Target, with_view};
use crate::{Result, signals};
use shotline_acquire::config::Settings;
use shotline_acquire::run::run as acquire;
use std::io::IsTerminal;
use std::path::PathBuf;

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
    let outcome = with_view(view, Target::of(&settings), |live| acquire(&settings, &stop, live))?;
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
