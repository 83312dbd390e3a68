//! Where the shots of a run go.

use super::prepare::Prepared;
use super::{RunError, capture, recording};
use crate::clock::Clock;
use crate::config::Settings;
use crate::pretrigger::PreTrigger;
use shotline_store::Set;
use shotline_store::pcapng::Live as Capture;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The files of a run, laid out: a recording or a packet capture, or none of both.
pub(super) struct Sinks<'a> {
    outs: Option<&'a [PathBuf]>,
    /// A packet capture.
    pub(super) packets: Option<Capture>,
    /// A recording.
    pub(super) recorder: Option<Set>,
    /// What selects the shots around triggers.
    pub(super) triggers: Option<PreTrigger>,
    /// Events that the queue to the sink holds.
    pub(super) queue_events: usize,
}

impl<'a> Sinks<'a> {
    /// Creates the files. `local` is the address that packets are sent to.
    pub(super) fn open(
        settings: &'a Settings,
        prepared: &Prepared,
        clock: &Clock,
        local: SocketAddr,
    ) -> Result<Self, RunError> {
        let outs = settings.out.as_deref().filter(|_| settings.discard != Some(true));
        outs.map_or(Ok(()), |outs| capture::check(settings, outs))?;
        let packets = match outs {
            Some([out]) if capture::is_capture(out) => Some(capture::create(settings, prepared, clock, local, out)?),
            _ => None,
        };
        let (queue_events, triggers) = recording::capture(settings, prepared)?;
        let recorder = match outs {
            Some(outs) if packets.is_none() => Some(recording::recorder(settings, prepared, clock, outs)?),
            _ => None,
        };
        Ok(Self { outs, packets, recorder, triggers, queue_events })
    }

    /// Shots that may be handed to the sink. A sender without set-up goes on after the last shot requested. With triggers
    /// only those requested are bounded here, because fewer of them may become rows.
    pub(super) fn rows_left(&self, settings: &Settings) -> u64 {
        let rows = self.recorder.as_ref().filter(|_| self.triggers.is_none()).map_or(u64::MAX, Set::remaining);
        rows.min(settings.shots.unwrap_or(u64::MAX))
    }

    /// Removes the files of a run that never began.
    pub(super) fn abandon(self) {
        if let Some(set) = self.recorder {
            set.abandon();
        } else if let (Some(_), Some([out])) = (&self.packets, self.outs) {
            let _ = std::fs::remove_file(out);
        }
    }
}
