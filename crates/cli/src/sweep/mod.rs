//! `shotline sweep`: measures frame rate, bandwidth and losses over the frequency of the trigger (figures 5 to 7 of
//! Cossettini et al., "A RDMA Interface for Ultra-Fast Ultrasound Data-Streaming over an Optical Link"), and searches
//! for the highest rate without loss.

mod common;
mod disk;
mod files;
mod grid;
mod lines;
mod measure;
mod network;
mod page;
mod point;
mod points;
mod report;
mod search;
mod stats;

use crate::Result;

/// What to measure.
#[derive(clap::Subcommand)]
pub enum Sweep {
    /// Frame rate, bandwidth, missed triggers and lost packets over the trigger frequency
    Network(network::Args),
    /// Write bandwidth and dropped shots of the recorder over the trigger frequency
    Disk(disk::Args),
    /// The highest rate without loss, with its confidence interval
    Search(search::Args),
}

/// Runs a sweep.
pub fn run(sweep: Sweep) -> Result {
    match sweep {
        Sweep::Network(args) => network::run(&args),
        Sweep::Disk(args) => disk::run(&args),
        Sweep::Search(args) => search::run(&args),
    }
}
