//! `shotline demo`: the main job, end to end, with nothing special.
//!
//! An emulated probe in a process of its own, a recorder in this one, loopback between them, and a file that
//! is read back and proven.

use crate::child::Probe;
use crate::output::{Report, Summary, print_report, print_table};
use crate::record::over_udp;
use crate::verify::{complaint, yes};
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

/// Receive buffer asked for.
const RECEIVE_BUFFER: usize = 256 << 20;
/// The receiver may be away from its processor for so long without a loss.
const AWAY_S: f64 = 0.02;
/// Enough for a demonstration.
const MOST_GBPS: f64 = 6.0;

/// Arguments of `shotline demo`.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
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
    /// Where to record to; the file stays there
    #[arg(long, short, default_value = "shotline-demo.h5", value_name = "FILE")]
    out: PathBuf,
    /// Probability of each fault that the probe injects: loss, duplication, reordering, corruption
    #[arg(long, default_value_t = 5e-5, value_name = "P")]
    faults: f64,
    /// Seed of the faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Payload in Gbit/s [default: what the receive buffer allows, at most 6]
    #[arg(long)]
    gbps: Option<f64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The demo's JSON object.
#[derive(Serialize)]
struct Proof {
    #[serde(flatten)]
    summary: Summary,
    /// Nothing in the file contradicts anything, and every packet sent is in the file or named as lost.
    verified: bool,
    /// Packets compared with the probe's test pattern, sample by sample.
    packets_compared: u64,
    /// Faults that the probe injected.
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
    let gbps = args.gbps.unwrap_or_else(|| (granted as f64 / 2.0 / AWAY_S * 8.0 / 1e9).min(MOST_GBPS));
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
    let outcome = with_view(show, Target::of(&settings), |live: &Live| over_udp(&settings, &stop, live))?;
    drop(probe);
    say(&format!("Recorded to {}. Reading it back.", args.out.display()));
    let verdict = verify(&args.out, &VerifyOptions::default())?;
    let accounted = accounted(&outcome);
    let proof = Proof {
        verified: verdict.verified && accounted.is_ok(),
        packets_compared: verdict.links.iter().map(|link| link.pattern_packets).sum(),
        injected: injected(&outcome),
        summary: Summary::of(&outcome),
    };
    print_report(args.json, &proof)?;
    accounted?;
    outcome.end.check()?;
    if verdict.verified { Ok(()) } else { Err(complaint(&verdict).into()) }
}

/// Every packet of every shot that the probe took is in its place or counted as missing.
fn accounted(outcome: &Outcome) -> std::result::Result<(), String> {
    let total = outcome.total();
    let shots: u64 = outcome.sent.iter().map(|report| report.shots_sent).sum();
    let packets = shots * u64::from(outcome.geometry.packets());
    let named = total.placed + total.packets_missing + unplaced(outcome);
    if outcome.sent.is_empty() || named == packets {
        return Ok(());
    }
    Err(format!(
        "the probe took {packets} packets' worth of shots, but {} placed + {} missing are accounted for",
        total.placed, total.packets_missing
    ))
}

/// Packets of shots that were given up before they had a buffer.
fn unplaced(outcome: &Outcome) -> u64 {
    use shotline_wire::shot::DropCause::NoBuffer;
    outcome.total().shot_drops.get(NoBuffer) * u64::from(outcome.geometry.packets())
}

fn injected(outcome: &Outcome) -> Injected {
    let sum = |of: fn(&shotline_wire::setup::Report) -> u32| outcome.sent.iter().map(|r| u64::from(of(r))).sum();
    Injected {
        lost: sum(|r| r.lost),
        duplicated: sum(|r| r.duplicated),
        reordered: sum(|r| r.reordered),
        corrupted: sum(|r| r.corrupted),
    }
}

impl Report for Proof {
    fn print(&self) -> Result {
        let Injected { lost, duplicated, reordered, corrupted } = self.injected;
        let mut rows = vec![(
            "faults injected".into(),
            format!("{lost} lost, {duplicated} doubled, {reordered} late, {corrupted} corrupted"),
        )];
        rows.extend(self.summary.rows());
        rows.push(("packets compared sample by sample".into(), self.packets_compared.to_string()));
        rows.push(("verified".into(), yes(self.verified)));
        print_table(&rows);
        for warning in &self.summary.warnings {
            crate::output::warn(warning);
        }
        if let Some(file) = &self.summary.file {
            let file = file.display();
            errln!("\nLook at it:  h5ls -r {file}   or, in Python:  h5py.File('{file}')['rf'][0]");
        }
        Ok(())
    }
}

/// The probe's samples and faults.
fn probe_arguments(args: &Args) -> Vec<String> {
    let rate = args.faults.to_string();
    let faults = ["--loss", "--duplicate", "--reorder", "--corrupt"].map(|fault| [fault.into(), rate.clone()]);
    let shots = ["--samples".into(), args.samples.to_string(), "--seed".into(), args.seed.to_string()];
    shots.into_iter().chain(faults.into_iter().flatten()).collect()
}

/// Receive buffer in bytes that the kernel grants a program that asks for `wanted`.
pub fn granted_receive_buffer(wanted: usize) -> Result<usize> {
    let config = UdpConfig {
        bind: "[::1]:0".parse()?,
        sealed: true,
        capacity: 0,
        scratch: Sge::EMPTY,
        receive_buffer: wanted,
        remainders: false,
        stamps: false,
        ecn: false,
    };
    Ok(UdpIo::open(&config, &Registrar::new().finish())?.receive_buffer())
}
