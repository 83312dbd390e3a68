//! `shotline sweep`: how fast, how much, and what is lost, over the frequency of the trigger (paper 0, figures 5
//! to 7); and the highest rate without loss.

mod disk;
mod grid;
mod lossfree;
mod measure;
mod network;
mod points;
mod report;
mod stats;

use crate::Result;
use shotline_acquire::config::{Bytes, peer};
use std::net::SocketAddr;
use std::path::PathBuf;

/// What to measure.
#[derive(clap::Subcommand)]
pub enum Sweep {
    /// Frame rate, bandwidth, missed triggers and lost packets over the trigger frequency
    Network(network::Args),
    /// Write bandwidth and dropped shots of the recorder over the trigger frequency
    Disk(disk::Args),
    /// The highest rate without loss, and how far it is known
    Search(lossfree::Args),
}

/// Runs a sweep.
pub fn run(sweep: Sweep) -> Result {
    match sweep {
        Sweep::Network(args) => network::run(&args),
        Sweep::Disk(args) => disk::run(&args),
        Sweep::Search(args) => lossfree::run(&args),
    }
}

/// What all sweeps have in common.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// Set-up address of a real probe [default: an emulated one for each point]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = peer, help_heading = "Source")]
    probe: Option<SocketAddr>,
    /// Links [default: 1 of an emulated probe, all of a real one]
    #[arg(long, value_name = "N", help_heading = "Source")]
    links: Option<u8>,
    /// Processor of the emulated probe [default: any]
    #[arg(long, value_name = "N", help_heading = "Source")]
    probe_cpu: Option<u32>,
    /// Length of a run [default: 1, to disk 3]
    #[arg(long, value_name = "S", help_heading = "Run")]
    seconds: Option<f64>,
    /// Local address for packets of a real probe [default: the route's own, port 4791 for RoCE, 47911 for plain UDP]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Receiver")]
    bind: Option<SocketAddr>,
    /// Memory for shot buffers [default: 256MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Receiver")]
    pool: Option<Bytes>,
    /// Receive buffer to ask the kernel for [default: 256MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Receiver")]
    receive_buffer: Option<Bytes>,
    /// Processor of the receive thread [default: any]
    #[arg(long, value_name = "N", help_heading = "Receiver")]
    cpu: Option<u32>,
    /// Write JSON lines to this file
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    out: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long, help_heading = "Output")]
    force: bool,
    /// Print JSON lines instead of a table
    #[arg(long, help_heading = "Output")]
    json: bool,
}

impl Common {
    /// Refuses what makes no sense.
    fn check(&self) -> Result {
        if let Some(seconds) = self.seconds
            && !(0.01..=86_400.0).contains(&seconds)
        {
            return Err(format!("expected --seconds of 0.01 to 86400, found {seconds}").into());
        }
        match self.links {
            Some(0) => Err("expected --links of 1 or more, found 0".into()),
            _ => Ok(()),
        }
    }
}

/// Frequencies that a trigger can have.
fn check_frequencies(frequencies: &[f64]) -> Result {
    match frequencies.iter().find(|hz| !(0.1..=1e7).contains(*hz)) {
        None => Ok(()),
        Some(hz) => Err(format!("expected frequencies of 0.1 to 1e7 Hz, found {hz}").into()),
    }
}
