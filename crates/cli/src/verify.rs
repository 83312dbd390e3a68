//! `shotline verify`: verifies a recording.

use crate::Result;
use crate::output::{Rows, print_report};
use crate::progress::Progress;
use shotline_store::{Verdict, VerifyOptions, verify_with_progress};
use std::path::PathBuf;

/// Arguments of `shotline verify`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline verify run.h5
  shotline verify run.h5 --json | jq .verified

Checks that the end-of-shot record of every complete shot matches all its bytes, that missing packets are
zeros, that test patterns are correct, that rows and losses account for every shot number, and that the counters
balance. The exit code is 0 only if no inconsistency is found.")]
pub struct Args {
    /// The recording
    file: PathBuf,
    /// Do not compare samples with the test pattern
    #[arg(long)]
    no_pattern: bool,
    /// Threads [default: four per processor, since they wait for the disk]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Verifies a recording.
pub fn run(args: &Args) -> Result {
    crate::output::warn_of_device(&args.file);
    let options = VerifyOptions { pattern: !args.no_pattern, threads: args.threads.unwrap_or(0).into() };
    let bar = Progress::new("rows");
    let verdict = verify_with_progress(&args.file, &options, &|done, all| bar.update(done, all))?;
    drop(bar);
    print_report(args.json, &verdict)?;
    if verdict.verified { Ok(()) } else { Err(mismatch_message(&verdict).into()) }
}

impl Rows for Verdict {
    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = vec![("rows".to_owned(), self.rows.to_string())];
        for link in &self.links {
            let label = |what: &str| format!("link of stream {}: {what}", link.stream);
            rows.push((label("complete"), link.complete.to_string()));
            rows.push((label("partial"), link.partial.to_string()));
            rows.push((label("lost"), link.lost.to_string()));
        }
        let compared: u64 = self.links.iter().map(|link| link.pattern_packets).sum();
        rows.push(("shots without a row".into(), self.lost_shots.to_string()));
        rows.push(("packets compared with the test pattern".into(), compared.to_string()));
        rows.push(("the run ended cleanly".into(), yes_no(self.finished)));
        rows.push(("read".into(), format!("{:.2} GB/s", self.bytes as f64 / self.seconds.max(1e-9) / 1e9)));
        rows.push(("verified".into(), yes_no(self.verified)));
        rows
    }
}

/// Describes what is wrong with a recording.
pub fn mismatch_message(verdict: &Verdict) -> String {
    format!(
        "{} has {} inconsistencies:\n  {}",
        verdict.path.display(),
        verdict.mismatches,
        verdict.first_mismatches.join("\n  ")
    )
}

/// Formats a boolean as yes or no.
pub fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.into()
}
