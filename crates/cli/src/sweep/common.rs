//! Arguments of all sweeps.

use crate::Result;
use crate::serve::PageArgs;
use shotline_acquire::config::{Bytes, peer};
use std::net::SocketAddr;
use std::path::PathBuf;

/// What all sweeps have in common.
#[derive(Clone, clap::Args)]
pub struct Common {
    /// Set-up address of a real probe [default: an emulated one for each point]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = peer, help_heading = "Source")]
    pub probe: Option<SocketAddr>,
    /// Links [default: 1 of an emulated probe, all of a real one]
    #[arg(long, value_name = "N", help_heading = "Source")]
    pub links: Option<u8>,
    /// Processor of the emulated probe [default: any]
    #[arg(long, value_name = "N", help_heading = "Source")]
    pub probe_cpu: Option<u32>,
    /// Length of a run in seconds [default: 1, or 3 if it records]
    #[arg(long, value_name = "S", help_heading = "Run")]
    pub seconds: Option<f64>,
    /// Local address for packets of a real probe [default: source address of the route, port 4791 for RoCE, 47911 for
    /// plain UDP]
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Receiver")]
    pub bind: Option<SocketAddr>,
    /// Memory for shot buffers [default: 256MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Receiver")]
    pub pool: Option<Bytes>,
    /// Receive buffer to request from the kernel [default: 256MiB]
    #[arg(long, value_name = "BYTES", help_heading = "Receiver")]
    pub receive_buffer: Option<Bytes>,
    /// Processor of the receive thread [default: any]
    #[arg(long, value_name = "N", help_heading = "Receiver")]
    pub cpu: Option<u32>,
    /// Write JSON lines to this file
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, help_heading = "Output")]
    pub force: bool,
    /// Print JSON lines instead of a table
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    #[command(flatten)]
    pub page: PageArgs,
}

impl Common {
    /// Checks the ranges of the arguments.
    pub fn check(&self) -> Result {
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

/// Checks that a trigger can have these frequencies.
pub fn check_frequencies(frequencies: &[f64]) -> Result {
    match frequencies.iter().find(|hz| !(0.1..=1e7).contains(*hz)) {
        None => Ok(()),
        Some(hz) => Err(format!("expected frequencies of 0.1 to 1e7 Hz, found {hz}").into()),
    }
}
