//! `shotline doctor`: checks this machine for problems that would impair a run, and suggests commands that fix them.

mod check;
mod clock;
mod devices;
mod disk;
mod memory;
mod network;

use crate::Result;
use crate::output::{self, print_report};
use check::Requirements;
pub use check::{Check, State, size};
use serde::Serialize;
use shotline_acquire::config::{Bytes, peer};
use shotline_wire::shot::{Geometry, Packing};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Rate over all links that is checked by default, in Gbit/s.
const GBPS: f64 = 6.0;
/// Samples per channel and shot that are checked by default.
const SAMPLES: u32 = 2000;
/// Memory for shot buffers that is checked by default.
const POOL: &str = "256MiB";

/// Arguments of `shotline doctor`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline doctor
  shotline doctor --probe 192.168.1.20:47910 --out /data/run.h5 --gbps 40
  shotline doctor --json | jq '.checks[] | select(.state != \"ok\")'

The exit code is 1 if a run cannot work (fail), otherwise 0, also with warnings (warn).")]
pub struct Args {
    /// Set-up address of the probe [default: none, check loopback]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = peer)]
    probe: Option<SocketAddr>,
    /// Path of the recording
    #[arg(long, short, default_value = "shotline.h5", value_name = "FILE")]
    out: PathBuf,
    /// Required rate over all links, in Gbit/s
    #[arg(long, default_value_t = GBPS)]
    gbps: f64,
    /// Samples per channel and shot
    #[arg(long, default_value_t = SAMPLES, value_name = "N")]
    samples: u32,
    /// Memory for shot buffers
    #[arg(long, default_value = POOL, value_name = "BYTES")]
    pool: Bytes,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The JSON object of the checks.
#[derive(Serialize)]
struct Report {
    /// No check failed.
    ready: bool,
    checks: Vec<Check>,
}

impl output::Report for Report {
    fn print(&self) -> Result {
        let Self { checks, .. } = self;
        let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
        for check in checks {
            let state = match check.state {
                State::Ok => "ok",
                State::Warn => "warn",
                State::Fail => "FAIL",
            };
            outln!("{state:>5}  {:width$}  {}", check.name, check.found);
            if check.state != State::Ok {
                outln!("{:7}{:width$}  expected: {}", "", "", check.expected);
            }
            if let Some(fix) = &check.fix {
                outln!("{:7}{:width$}  fix:      {fix}", "", "");
            }
        }
        Ok(())
    }
}

impl Args {
    fn requirements(&self) -> Result<Requirements> {
        Ok(Requirements {
            probe: self.probe,
            out: self.out.clone(),
            bytes_per_s: self.gbps * 1e9 / 8.0,
            geometry: Geometry::new(96, self.samples, 12, Packing::Packed12, 40_000_000)?,
            pool: self.pool.0,
        })
    }
}

/// Runs the checks that take no noticeable time and change nothing, for the default requirements.
pub fn glance() -> Result<Vec<Check>> {
    let (out, pool) = (PathBuf::from("shotline.h5"), POOL.parse()?);
    let args = Args { probe: None, out, gbps: GBPS, samples: SAMPLES, pool, json: false };
    let required = args.requirements()?;
    let mut checks = vec![network::receive_buffer(&required), network::af_xdp()];
    checks.extend(shotline_backends::findings(None).into_iter().map(network::check));
    checks.extend([network::dpdk(), devices::gpus(), disk::space(&required, shotline_store::folder(&required.out))]);
    Ok(checks)
}

/// Runs all checks.
pub fn run(args: &Args) -> Result {
    if !(args.gbps.is_finite() && args.gbps > 0.0) {
        return Err(format!("expected a rate above 0 Gbit/s, found {}", args.gbps).into());
    }
    if args.pool.0 == 0 {
        return Err("expected --pool above 0, found 0".into());
    }
    let required = args.requirements()?;
    let mut checks = network::checks(&required);
    checks.extend(memory::checks(&required));
    checks.extend(disk::checks(&required));
    checks.extend(clock::checks());
    checks.extend(devices::checks());
    let failed: Vec<_> = checks.iter().filter(|check| check.state == State::Fail).map(|check| check.name).collect();
    let failure = (!failed.is_empty()).then(|| format!("a run cannot work here: {}", failed.join(", ")));
    print_report(args.json, &Report { ready: failure.is_none(), checks })?;
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}
