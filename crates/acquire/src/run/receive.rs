//! From a prepared sender to the outcome: start, run the threads, summarise.

use super::error::RunError;
use super::outcome::Outcome;
use super::prepare::{Origin, Prepared};
use super::start::Started;
use super::threads;
use crate::live::Live;
use shotline_transport::PacketIo;
use std::sync::atomic::AtomicBool;

/// Receives until the run is over.
pub(super) fn receive<P: PacketIo>(
    prepared: Prepared<'_>,
    origin: Origin<'_>,
    io: P,
    stop: &AtomicBool,
    live: &Live,
) -> Result<Outcome, RunError> {
    let started = Started::start(prepared, origin, io)?;
    let ended = threads::run(started, stop, live)?;
    Outcome::of(ended, live)
}
