//! One run, with its view, its log and its report.

use super::args::Args;
use crate::log::with_log;
use crate::output::{self, RunReport, print_report};
use crate::view::{Show, Target, with_view};
use crate::{Result, signals};
use shotline_acquire::config::{ChosenTransport, Settings};
use shotline_acquire::live::{Live, Notice, Refused};
use shotline_acquire::run::{Outcome, RunError, run as acquire};
use shotline_acquire::summary::Summary;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

impl Args {
    /// Returns `true` if standard error is read by people, and not by programs.
    pub(super) fn is_for_people(&self) -> bool {
        !self.json && !self.quiet && !self.progress && self.log.is_none()
    }

    /// Records once, and prints the report.
    pub(super) fn record(&self, settings: &Settings, stop: &AtomicBool, live: &Arc<Live>) -> Result<Outcome> {
        let shows_notices = settings.listen.is_some() && self.is_for_people();
        let show = if self.progress {
            Show::Lines
        } else if self.is_for_people() && std::io::stderr().is_terminal() {
            Show::Screen
        } else {
            Show::Nothing
        };
        let outcome = with_view(show, Target::of(settings), live, || {
            live.on_notice(move |notice| announce(&notice, shows_notices));
            with_log(self.log, live, || run_on_transport(settings, stop, live))
        })?;
        print_report(self.json, &RunReport::of(&outcome))?;
        Ok(outcome)
    }
}

/// Returns why a run that has a report did not do what was requested, if so.
pub(super) fn check(settings: &Settings, outcome: &Outcome) -> Result {
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
    let ChosenTransport { transport, options, reason } = settings.choose_transport().map_err(RunError::Settings)?;
    reason.iter().for_each(|reason| errln!("transport: {reason}"));
    acquire(settings, stop, live, |parameters, regions| transport.open(parameters, &options, regions))
}
