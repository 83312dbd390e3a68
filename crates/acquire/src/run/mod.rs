//! A whole run: prepare, start, run the threads, summarise.
//!
//! | phase | module | what is settled then |
//! |---|---|---|
//! | prepare | `probe` (a sender that takes set-up), `listen` (one that does not); `prepare`, `room` | framing, shape of a shot, streams, pool, transport |
//! | start | `start`; `sinks`, `files`, `capture` | files are laid out, the sender is asked for shots |
//! | run the threads | `threads`: `stage` receives, `recording` or `capture` records, `watch` asks the probe | what came, what was recorded, why it ended |
//! | summarise | `outcome`; `end`, `stored` | [`Outcome`], whose counters balance |
//!
//! `phases` calls the last three in turn. They have in common `shared` (what threads share), `rest` (when the receive
//! thread sleeps), `unseen` (shots that a failed sink leaves behind), `cause` (why a run ended) and `error` (why it could
//! not begin).

mod capture;
mod cause;
mod end;
mod error;
mod files;
mod listen;
mod outcome;
mod phases;
mod prepare;
mod probe;
mod recording;
mod rest;
mod room;
mod shared;
mod sinks;
mod stage;
mod start;
mod stored;
mod threads;
mod unseen;
mod watch;

pub use cause::Cause;
pub use end::{Asked, End};
pub use error::RunError;
pub use listen::Described;
pub use outcome::Outcome;

use crate::config::{Resolved, Sender, Settings, Sink};
use crate::live::Live;
use crate::memory::Memory;
use shotline_backends::{Opened, Wanted};
use shotline_memory::Regions;
use shotline_transport::{IoError, PacketIo};
use std::sync::atomic::AtomicBool;

/// Runs until the shots asked for have come, the time is over, the sender has ended, or `stop` is set. `open` makes
/// the transport; `live` is kept up to date meanwhile.
///
/// # Errors
/// If the run could not begin, or its counters do not balance. A transport, a recorder or a thread that fails later is the
/// [`Outcome`]'s end.
pub fn run<P: PacketIo>(
    settings: &Settings,
    stop: &AtomicBool,
    live: &Live,
    open: impl FnOnce(&Wanted, &Regions) -> Result<Opened<P>, IoError>,
) -> Result<Outcome, RunError> {
    let (resolved, kind) = (settings.check()?, settings.framing());
    let memory = begin(&resolved)?;
    match resolved.sender {
        Sender::Probe(_) => probe::run(resolved, memory, kind, stop, live, open),
        Sender::Listen(_) => listen::run(resolved, memory, kind, stop, live, open),
    }
}

/// The same for a sender of the caller's own framing, which sends to the address of [`Settings::listen`]. For shots above
/// 8 MiB the defaults of pool and writes in flight are those of a digitizer.
///
/// # Errors
/// As [`run`], and if settings describe the sender, too ([`Settings::check_described`]).
pub fn run_described<P: PacketIo>(
    settings: &Settings,
    sender: Described,
    stop: &AtomicBool,
    live: &Live,
    open: impl FnOnce(&Wanted, &Regions) -> Result<Opened<P>, IoError>,
) -> Result<Outcome, RunError> {
    let resolved = settings.check_described(prepare::is_large(&sender.geometry))?;
    listen::described(resolved, begin(&resolved)?, sender, stop, live, open)
}

/// Refuses files that cannot be made, before memory is taken.
fn begin(resolved: &Resolved<'_>) -> Result<Memory, RunError> {
    if let Sink::Recording(outs) = resolved.sink {
        files::check(resolved, outs)?;
    }
    Ok(Memory::new(resolved.pool_bytes)?)
}
