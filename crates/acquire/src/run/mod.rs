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

use crate::config::{Sender, Settings, Sink};
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
/// If the run could not begin. A transport, a recorder or a thread that fails later is the [`Outcome`]'s end.
pub fn run<P: PacketIo>(
    settings: &Settings,
    stop: &AtomicBool,
    live: &Live,
    open: impl FnOnce(&Wanted, &Regions) -> Result<Opened<P>, IoError>,
) -> Result<Outcome, RunError> {
    let memory = begin(settings)?;
    match settings.sender()? {
        Sender::Probe(probe) => probe::run(settings, memory, probe, stop, live, open),
        Sender::Listen(local) => listen::run(settings, memory, local, stop, live, open),
    }
}

/// The same for a sender of the caller's own framing, which sends to the address of [`Settings::listen`].
///
/// # Errors
/// As [`run`], and if settings describe the sender otherwise.
pub fn run_described<P: PacketIo>(
    settings: &Settings,
    sender: Described,
    stop: &AtomicBool,
    live: &Live,
    open: impl FnOnce(&Wanted, &Regions) -> Result<Opened<P>, IoError>,
) -> Result<Outcome, RunError> {
    let memory = begin(settings)?;
    match settings.sender()? {
        Sender::Probe(_) => Err(RunError::Settings(
            "set-up cannot ask a probe for a framing of the caller's: name the local address that the sender sends to with --listen".into(),
        )),
        Sender::Listen(local) => listen::described(settings, memory, sender, local, stop, live, open),
    }
}

/// Refuses what cannot become a run, before memory is taken for it.
fn begin(settings: &Settings) -> Result<Memory, RunError> {
    settings.check()?;
    if let Sink::Recording(outs) = settings.sink()? {
        files::check(settings, outs)?;
    }
    Ok(Memory::new(room::pool_bytes(settings))?)
}
