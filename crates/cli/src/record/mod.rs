//! `shotline record`: records a probe, or another sender, into a file.

mod args;
mod once;
mod standby;

pub use args::Args;

use crate::{Result, signals};
use once::check;
use shotline_acquire::config::{File, Settings};
use shotline_acquire::live::Live;
use shotline_acquire::run::{Outcome, RunError, run as acquire};
use shotline_backends::{Io, OpenedReceiver, Options, ReceiverParameters, Transport};
use shotline_memory::Regions;
use shotline_transport::IoError;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Records until the end that the settings define, or until Ctrl-C.
pub fn run(mut args: Args) -> Result {
    let flags = std::mem::take(&mut args.settings);
    let settings = match &args.config {
        Some(path) => File::read(path)?.with_flags(flags)?,
        None => {
            flags.check()?;
            flags
        }
    };
    let stop = signals::stop_flag()?;
    // Registered even if the run does not use triggers: a SIGUSR1 to the wrong recorder must not end it.
    let trigger = Arc::default();
    signals::on_trigger(Arc::clone(&trigger)).map_err(|error| format!("cannot install a signal handler: {error}"))?;
    if args.standby {
        return standby::run(&args, &settings, &stop, &trigger);
    }
    let live = Arc::new(Live::with_trigger(trigger));
    let page = args.serve.open("record", &settings, &live, &stop, args.log)?;
    let outcome = args.record(&settings, &stop, &live)?;
    if let Some(page) = page {
        page.linger(&stop);
    }
    check(&settings, &outcome)
}

/// Runs over UDP sockets.
pub fn over_udp(settings: &Settings, stop: &AtomicBool, live: &Live) -> std::result::Result<Outcome, RunError> {
    acquire(settings, stop, live, open)
}

/// Opens a socket for a run.
pub fn open(parameters: &ReceiverParameters, regions: &Regions) -> std::result::Result<OpenedReceiver<Io>, IoError> {
    Transport::default().open(parameters, &Options::default(), regions)
}
