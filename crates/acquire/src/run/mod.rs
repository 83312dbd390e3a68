//! Run of a receiver: prepare, start, run the threads, summarise.
//!
//! 1. Prepare: `probe` (a sender that takes set-up) or `listen` (one that does not), with `prepare` and `budget`. The
//!    result is the framing, the shape of a shot, the streams, the pool and the transport.
//! 2. Start: `start`, with `sinks`, `files` and `capture`, lays out the files and starts the sender.
//! 3. Run the threads: `threads`. `stage` receives, `recording` or `capture` records, `watch` polls the probe.
//! 4. Summarise: `outcome`, with `end` and `stored`. The result is the [`Outcome`], whose counters balance.
//!
//! `phases` calls the last three in turn. Common modules are `shared` (state shared by threads), `idle` (sleep policy
//! of the receive thread), `unwritten` (shots lost with a failed sink), `cause` (causes of a run's end) and `error`
//! (errors before and during a run).

mod budget;
mod capture;
mod cause;
mod end;
mod error;
mod files;
mod idle;
mod listen;
mod outcome;
mod phases;
mod prepare;
mod probe;
mod recording;
mod shared;
mod sinks;
mod stage;
mod start;
mod stored;
mod threads;
mod unwritten;
mod watch;

pub use cause::Cause;
pub use end::{End, RequestedEnd};
pub use error::RunError;
pub use listen::SenderDescription;
pub use outcome::Outcome;
pub use stored::stored_counter_names;

use crate::config::{ResolvedSettings, Sender, Settings, Sink};
use crate::live::Live;
use crate::memory::Memory;
use shotline_backends::{OpenedReceiver, ReceiverParameters};
use shotline_memory::{RegionKind, Regions};
use shotline_transport::{IoError, PacketIo};
use std::sync::atomic::AtomicBool;

/// Runs until the requested shots have arrived, the time is over, the sender has ended, or `stop` is set. `open`
/// creates the transport; `live` is kept up to date meanwhile.
///
/// # Examples
///
/// Records 1000 shots of plain UDP packets:
///
/// ```no_run
/// use shotline_acquire::config::Settings;
/// use shotline_acquire::live::Live;
/// use shotline_acquire::run::run;
/// use shotline_backends::{Options, Transport};
/// use shotline_wire::framing::Kind;
/// use std::sync::atomic::AtomicBool;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let settings = Settings {
///     listen: Some("[::1]:47920".parse()?),
///     framing: Some(Kind::Udp),
///     samples: Some(500),
///     out: Some(vec!["run.h5".into()]),
///     shots: Some(1000),
///     ..Settings::default()
/// };
/// let (transport, options) = (Transport::default(), Options::default()); // UDP sockets
/// let (stop, live) = (AtomicBool::new(false), Live::default()); // for other threads: to stop the run, and to watch it
/// let outcome = run(&settings, &stop, &live, |parameters, regions| transport.open(parameters, &options, regions))?;
/// outcome.end.check()?; // an error if the run was cut off
/// println!("{} complete shots in {} rows", outcome.total().complete, outcome.rows);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the run could not begin, or its counters do not match. A transport, a recorder or a thread that fails later is
/// reported in the [`Outcome`]'s end.
pub fn run<P: PacketIo>(
    settings: &Settings,
    stop: &AtomicBool,
    live: &Live,
    open: impl FnOnce(&ReceiverParameters, &Regions) -> Result<OpenedReceiver<P>, IoError>,
) -> Result<Outcome, RunError> {
    noting_failure(live, || {
        let (resolved, kind) = (settings.check()?, settings.framing());
        let memory = begin(&resolved)?;
        match resolved.sender {
            Sender::Probe(_) => probe::run(resolved, memory, kind, stop, live, open),
            Sender::Listen(_) => listen::run(resolved, memory, kind, stop, live, open),
        }
    })
}

/// Runs with a sender of the caller's own framing, which sends to the address of [`Settings::listen`]. For shots above
/// 8 MiB the defaults of pool and writes in flight are those of a digitizer.
///
/// # Errors
/// Those of [`run`], and if settings also describe the sender ([`Settings::check_described`]).
pub fn run_with_description<P: PacketIo>(
    settings: &Settings,
    sender: SenderDescription,
    stop: &AtomicBool,
    live: &Live,
    open: impl FnOnce(&ReceiverParameters, &Regions) -> Result<OpenedReceiver<P>, IoError>,
) -> Result<Outcome, RunError> {
    noting_failure(live, || {
        let resolved = settings.check_described(prepare::is_large(&sender.geometry))?;
        listen::described(resolved, begin(&resolved)?, sender, stop, live, open)
    })
}

/// Runs, notes an error as the end of the run, and tells a program that takes its events, also if the run panics.
fn noting_failure(live: &Live, run: impl FnOnce() -> Result<Outcome, RunError>) -> Result<Outcome, RunError> {
    struct EndGuard<'a>(&'a Live);
    impl Drop for EndGuard<'_> {
        fn drop(&mut self) {
            self.0.consumer().into_iter().for_each(|consumer| consumer.end());
        }
    }
    let _guard = EndGuard(live);
    run().inspect_err(|error| live.set_end(Err(error.to_string())))
}

/// Refuses files that cannot be created, before memory is allocated.
fn begin(resolved: &ResolvedSettings<'_>) -> Result<Memory, RunError> {
    if let Sink::Recording(outs) = resolved.sink {
        files::check(resolved, outs)?;
    }
    // The settings were checked.
    let kind = resolved.settings.pool_region_kind().unwrap_or(RegionKind::Memfd);
    Ok(Memory::of_kind(&kind, resolved.pool_bytes)?)
}
