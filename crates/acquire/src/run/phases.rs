//! Phases of a run after its sender is prepared.

use super::error::RunError;
use super::outcome::Outcome;
use super::prepare::{Origin, PreparedRun};
use super::start::StartedRun;
use super::threads;
use super::watch::Watch;
use crate::live::Live;
use shotline_transport::PacketIo;
use std::sync::atomic::AtomicBool;

/// Starts the run, receives until it is over, and summarises it.
pub(super) fn receive<P: PacketIo>(
    mut prepared: PreparedRun<'_>,
    origin: Origin<'_>,
    io: P,
    stop: &AtomicBool,
    live: &Live,
) -> Result<Outcome, RunError> {
    prepared.lend_to(live);
    let started = StartedRun::start(prepared, origin, io)?;
    let results = threads::run(started, Watch::follow, stop, live);
    let outcome = Outcome::of(results, live)?;
    live.set_written(outcome.rows);
    live.set_final_shots(&outcome.streams);
    live.set_end(Ok(outcome.end.clone()));
    Ok(outcome)
}
