//! `shotline record`: records a probe, or another sender, into a file.

mod standby;

use crate::log::{LogFormat, with_log};
use crate::output::{self, Summary, print_report};
use crate::serve::ServeArgs;
use crate::transport;
use crate::view::{Show, Target, with_view};
use crate::{Result, signals};
use shotline_acquire::config::{File, Settings};
use shotline_acquire::live::{Live, Notice, Refused};
use shotline_acquire::run::{Outcome, RunError, run as acquire};
use shotline_backends::{Io, OpenedReceiver, Options, ReceiverParameters, Transport};
use shotline_memory::Regions;
use shotline_transport::IoError;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Arguments of `shotline record`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  shotline record --probe [::1]:47910 --out run.h5 --shots 1000
  shotline record --probe 192.168.1.20:47910 --out run.h5 --seconds 10 --rate-hz 5000
  shotline record --config probe.toml --discard --json      keys of the file are the flags' names
  shotline record --probe [::1]:47910 --out run.h5 --roll-size 4GiB --keep 400GiB          the last 400 GiB, endlessly
  shotline record --probe [::1]:47910 --out /mnt/a/run.h5 --out /mnt/b/run.h5 --seconds 60   two drives
  shotline record --probe [::1]:47910 --out run.h5 --pre-trigger 2 --pool 8GiB             2 s before each trigger
  shotline record --listen 10.0.0.2:7148 --framing spead --out run.h5       a sender without set-up, detected from its packets
  shotline record --probe 10.0.0.1:47910 --bind 10.0.0.2:4791 --transport xdp:eth1 --out run.h5   bypassing the kernel
  shotline record --probe 10.0.0.1:47910 --transport ibverbs:mlx5_0 --out run.h5           through an RDMA NIC
  shotline record --probe [::1]:47910 --out nvme:/dev/ng0n1 --shots 1000              a raw drive, by NVMe commands
  shotline record --listen [::1]:47920 --framing digitizer --out run.h5 --keep 64GiB   a digitizer, the last 64 GiB
  shotline record --probe [::1]:47910 --out run.h5 --serve 127.0.0.1:8080            a page to watch the run, metrics
  shotline record --probe [::1]:47910 --out run.h5 --serve 127.0.0.1:8080 --standby   runs that the page starts
  shotline record --probe [::1]:47910 --out run.h5 --log json 2>>run.log             losses and other events, for programs

Ctrl-C ends a run cleanly: everything received is in the file. With --pre-trigger, SIGUSR1 is a trigger.")]
pub struct Args {
    /// Settings from a TOML file; flags take precedence
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
    /// No live view
    #[arg(long)]
    quiet: bool,
    /// Print a line of JSON on standard error when counts have changed, at most every 100 ms, and at the end. `rows` is
    /// the number of rows visible to readers; with --durable they survive a power failure
    #[arg(long, conflicts_with = "quiet")]
    progress: bool,
    /// Print what happens in the run on standard error, a line per event: start, first packet, losses by cause, silent
    /// links, clocks, triggers, the end. Losses of one cause are summed over a second. Replaces the live view. Together
    /// with --progress its lines of JSON are those with the key `event`
    #[arg(long, value_name = "FORMAT", value_enum)]
    log: Option<LogFormat>,
    #[command(flatten)]
    serve: ServeArgs,
    /// Wait for Start on the page, which can change --samples, and again after each run. The first file has the name of
    /// --out, the next ones have a number in addition; existing files are not replaced
    #[arg(long, requires_all = ["serve", "out"], conflicts_with_all = ["force", "discard"], help_heading = "Page")]
    standby: bool,
}

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
    if args.standby {
        return standby::run(&args, settings, &stop);
    }
    let live = Arc::new(Live::default());
    let page = args.serve.open("record", &settings, &live, &stop, args.log)?;
    let outcome = args.record(&settings, &stop, &live)?;
    if let Some(page) = page {
        page.linger(&stop);
    }
    check(&settings, &outcome)
}

impl Args {
    /// Records once, and prints the report.
    fn record(&self, settings: &Settings, stop: &AtomicBool, live: &Arc<Live>) -> Result<Outcome> {
        let is_calm = !self.json && !self.quiet && self.log.is_none();
        let shows_notices = settings.listen.is_some() && is_calm && !self.progress;
        let show = if self.progress {
            Show::Lines
        } else if is_calm && std::io::stderr().is_terminal() {
            Show::Screen
        } else {
            Show::Nothing
        };
        let outcome = with_view(show, Target::of(settings), live, || {
            // Registered even if the run does not use triggers: a SIGUSR1 to the wrong recorder must not end it.
            signals::on_trigger(live.trigger())
                .map_err(|error| RunError::Settings(format!("cannot install a signal handler: {error}")))?;
            live.on_notice(move |notice| announce(&notice, shows_notices));
            with_log(self.log, live, || run_on_transport(settings, stop, live))
        })?;
        print_report(self.json, &Summary::of(&outcome))?;
        Ok(outcome)
    }
}

/// Returns why a run that has a report did not do what was requested, if so.
fn check(settings: &Settings, outcome: &Outcome) -> Result {
    let summary = Summary::of(outcome);
    // A probe reports what it sent.
    if let Some(sent) = summary.shots_sent.filter(|sent| *sent > 0 && outcome.total().placed == 0) {
        let (packets, local) = (summary.packets, outcome.local);
        return Err(match packets {
            0 => format!(
                "the probe sent {sent} shots, and no packet arrived at {local}: does a firewall drop them, and does the probe reach this address (--bind)?"
            ),
            _ => format!(
                "the probe sent {sent} shots, and none of the {packets} packets that arrived could be placed: see \"packets dropped\" for the cause"
            ),
        }
        .into());
    }
    // Other senders do not report.
    if let Some(address) = settings.listen.filter(|_| summary.shots_complete + summary.shots_partial == 0) {
        return Err(format!(
            "no shot was received at {address} in {} packets: check that the sender is on, that this is its destination, and that the geometry is right",
            summary.packets
        )
        .into());
    }
    Ok(outcome.end.check()?)
}

/// Prints a notice if `shows` is set, and reports readiness to a service manager. (Programs read it from the progress.)
/// It is called on the receive thread, so it must not block.
fn announce(notice: &Notice, shows: bool) {
    let words = match notice {
        Notice::Listening(at) => {
            signals::notify_ready();
            format!("listening on {at}\n")
        }
        Notice::Refused(Refused { from, framing, reason: why }) => {
            format!("{from}: cannot receive its {framing} packets: {why}; waiting for other senders\n")
        }
    };
    if shows {
        output::STDERR.try_queue(words);
    }
}

/// Runs over the transport that the settings name.
fn run_on_transport(settings: &Settings, stop: &AtomicBool, live: &Live) -> std::result::Result<Outcome, RunError> {
    let (transport, options) = transport::from_settings(settings).map_err(RunError::Settings)?;
    acquire(settings, stop, live, |parameters, regions| transport.open(parameters, &options, regions))
}

/// Runs over UDP sockets.
pub fn over_udp(settings: &Settings, stop: &AtomicBool, live: &Live) -> std::result::Result<Outcome, RunError> {
    acquire(settings, stop, live, open)
}

/// Opens a socket for a run.
pub fn open(parameters: &ReceiverParameters, regions: &Regions) -> std::result::Result<OpenedReceiver<Io>, IoError> {
    Transport::default().open(parameters, &Options::default(), regions)
}
