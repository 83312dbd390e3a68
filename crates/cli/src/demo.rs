//! `shotline demo`: a complete recording over loopback.
//!
//! It runs an emulated probe in a child process and a recorder in this one, then reads the file back and verifies it.

use crate::child::Probe;
use crate::output::{Report, RunReport, print_report, print_table};
use crate::record::over_udp;
use crate::serve::ServeArgs;
use crate::verify::{mismatch_message, yes_no};
use crate::view::{Show, Target, with_view};
use crate::{Result, signals};
use serde::Serialize;
use shotline_acquire::config::Settings;
use shotline_acquire::live::Live;
use shotline_acquire::run::Outcome;
use shotline_memory::{Registrar, Sge};
use shotline_store::{VerifyOptions, verify};
use shotline_transport::udp::{UdpConfig, UdpIo};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

/// Receive buffer to request from the kernel, in bytes.
const RECEIVE_BUFFER: usize = 256 << 20;
/// Longest time in seconds for which the receiver may be descheduled without a loss.
const DESCHEDULED_S: f64 = 0.02;
/// Maximum rate in Gbit/s, which is enough for a demonstration.
const MAX_GBPS: f64 = 6.0;

/// Arguments of `shotline demo`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline demo --shots 100000 --serve localhost:8080      a page to watch it
  shotline demo --json | jq '{shots_sent, shots_recorded, shots_partial, drops, verified}'")]
pub struct Args {
    /// Shots of each link
    #[arg(long, default_value_t = 1000, value_name = "N")]
    shots: u64,
    /// Samples per channel and shot
    #[arg(long, default_value_t = 2000, value_name = "N")]
    samples: u32,
    /// Framing: ud, counted or udp
    #[arg(long, default_value = "ud", value_name = "NAME")]
    framing: String,
    /// Path of the recording, which is kept
    #[arg(long, short, default_value = "shotline-demo.h5", value_name = "FILE")]
    out: PathBuf,
    /// Probability of each fault that the probe injects: loss, duplication, reordering, corruption
    #[arg(long, default_value_t = 5e-5, value_name = "P")]
    faults: f64,
    /// Seed of the faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Payload in Gbit/s [default: as the receive buffer allows, at most 6]
    #[arg(long)]
    gbps: Option<f64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    serve: ServeArgs,
}

/// The JSON object of the demo.
#[derive(Serialize)]
struct DemoReport {
    #[serde(flatten)]
    run: RunReport,
    /// The file is consistent, and every packet sent is in the file or counted as lost.
    verified: bool,
    /// Number of packets compared with the probe's test pattern, sample by sample.
    packets_compared: u64,
    /// Number of faults that the probe injected.
    injected: Injected,
}

#[derive(Serialize)]
struct Injected {
    lost: u64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
}

/// Runs the demo.
pub fn run(args: &Args) -> Result {
    let say = |text: &str| {
        if !args.json {
            errln!("{text}");
        }
    };
    let stop = signals::stop_flag()?;
    let granted = granted_receive_buffer(RECEIVE_BUFFER)?;
    let gbps = args.gbps.unwrap_or_else(|| (granted as f64 / 2.0 / DESCHEDULED_S * 8.0 / 1e9).min(MAX_GBPS));
    let (probe, address) = Probe::start(&probe_arguments(args))?;
    say(&format!("An emulated probe of 2 x 96 channels, 12 bit, 40 MS/s, waits on {address}."));
    say(&format!(
        "It will send {} shots of {} samples at {gbps:.1} Gbit/s: the kernel granted {} KiB of receive buffer.",
        args.shots,
        args.samples,
        granted >> 10
    ));
    let settings = Settings {
        probe: Some(address),
        framing: Some(args.framing.parse()?),
        samples: Some(args.samples),
        gbps: Some(gbps),
        shots: Some(args.shots),
        out: Some(vec![args.out.clone()]),
        force: Some(true),
        notes: Some("demo".into()),
        ..Settings::default()
    };
    let show = if !args.json && std::io::stderr().is_terminal() { Show::Screen } else { Show::Nothing };
    let live = Arc::new(Live::default());
    let page = args.serve.open("demo", &settings, &live, &stop, None)?;
    let outcome = with_view(show, Target::of(&settings), &live, || over_udp(&settings, &stop, &live))?;
    drop(probe);
    say(&format!("Recorded to {}. Reading it back.", args.out.display()));
    let verdict = verify(&args.out, &VerifyOptions::default())?;
    let accounted = check_accounted(&outcome);
    let report = DemoReport {
        verified: verdict.verified && accounted.is_ok(),
        packets_compared: verdict.links.iter().map(|link| link.pattern_packets).sum(),
        injected: injected(&outcome),
        run: RunReport::of(&outcome),
    };
    print_report(args.json, &report)?;
    page.into_iter().for_each(|page| page.linger(&stop));
    accounted?;
    outcome.end.check()?;
    if verdict.verified { Ok(()) } else { Err(mismatch_message(&verdict).into()) }
}

/// Checks that every packet of every shot that the probe sent was placed or is counted as missing.
fn check_accounted(outcome: &Outcome) -> std::result::Result<(), String> {
    let total = outcome.total();
    let shots: u64 = outcome.probe_reports.iter().map(|report| report.shots_sent).sum();
    let packets = shots * u64::from(outcome.geometry.packets());
    let accounted = total.placed + total.packets_missing + unplaced(outcome);
    if outcome.probe_reports.is_empty() || accounted == packets {
        return Ok(());
    }
    Err(format!(
        "expected {packets} packets placed or missing, as the probe sent, found {} placed + {} missing",
        total.placed, total.packets_missing
    ))
}

/// Returns the number of packets of shots that were dropped before they had a buffer.
fn unplaced(outcome: &Outcome) -> u64 {
    use shotline_wire::shot::DropCause::NoBuffer;
    outcome.total().shot_drops.get(NoBuffer) * u64::from(outcome.geometry.packets())
}

fn injected(outcome: &Outcome) -> Injected {
    let sum =
        |of: fn(&shotline_wire::setup::Report) -> u32| outcome.probe_reports.iter().map(|r| u64::from(of(r))).sum();
    Injected {
        lost: sum(|r| r.lost),
        duplicated: sum(|r| r.duplicated),
        reordered: sum(|r| r.reordered),
        corrupted: sum(|r| r.corrupted),
    }
}

impl Report for DemoReport {
    fn print(&self) -> Result {
        let Injected { lost, duplicated, reordered, corrupted } = self.injected;
        let mut rows = vec![(
            "faults injected".into(),
            format!("{lost} lost, {duplicated} duplicated, {reordered} reordered, {corrupted} corrupted"),
        )];
        rows.extend(self.run.summary.rows());
        rows.push(("packets compared sample by sample".into(), self.packets_compared.to_string()));
        rows.push(("verified".into(), yes_no(self.verified)));
        print_table(&rows);
        if let Some(hint) = self.run.summary.hint() {
            outln!("{hint}");
        }
        for warning in &self.run.summary.warnings {
            crate::output::warn(warning);
        }
        if let Some(file) = &self.run.summary.file {
            let file = file.display();
            errln!("\nOpen it with:  h5ls -r {file}   or, in Python:  h5py.File('{file}')['rf'][0]");
        }
        Ok(())
    }
}

/// Returns the arguments that set the probe's samples and faults.
fn probe_arguments(args: &Args) -> Vec<String> {
    let rate = args.faults.to_string();
    let faults = ["--loss", "--duplicate", "--reorder", "--corrupt"].map(|fault| [fault.into(), rate.clone()]);
    let shots = ["--samples".into(), args.samples.to_string(), "--seed".into(), args.seed.to_string()];
    shots.into_iter().chain(faults.into_iter().flatten()).collect()
}

/// Returns the receive buffer in bytes that the kernel grants when `requested` bytes are requested.
pub fn granted_receive_buffer(requested: usize) -> Result<usize> {
    let config = UdpConfig {
        bind: "[::1]:0".parse()?,
        sealed: true,
        capacity: 0,
        scratch: Sge::EMPTY,
        receive_buffer: requested,
        remainders: false,
        stamps: false,
        ecn: false,
    };
    Ok(UdpIo::open(&config, &Registrar::new().finish())?.receive_buffer())
}
