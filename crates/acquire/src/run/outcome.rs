//! Result of a run.

use super::cause::Cause;
use super::end::{End, RequestedEnd, Shots};
use super::error::RunError;
use super::threads::ThreadResults;
use super::unwritten::SinkFailure;
use crate::align::{AlignmentStatus, EventCounters};
use crate::clock;
use crate::config::Settings;
use crate::counters::StreamCounters;
use crate::latency::ShotLatencies;
use crate::live::Live;
use crate::receiver::Receiver;
use crate::stages;
use crate::stream::EndReason;
use shotline_memory::Pages;
use shotline_store::Report;
use shotline_store::set::Removed;
use shotline_transport::{DeviceCounters, PacketIo};
use shotline_wire::shot::{DropCause, Geometry};
use std::collections::HashSet;
use std::net::SocketAddr;

/// Reciprocal of the fraction of incomplete events that causes a warning.
const INCOMPLETE_DIVISOR: u64 = 20;

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The probe's report for each link; empty if it did not answer at the end.
    pub probe_reports: Vec<shotline_wire::setup::Report>,
    /// Counters of each stream.
    pub streams: Vec<StreamCounters>,
    /// Counters of packets that belong to no stream.
    pub unknown: StreamCounters,
    /// Frames that the device lost below the transport.
    pub device: DeviceCounters,
    /// Cause and time of the run's end.
    pub end: End,
    /// Time from the first packet to the last, in seconds.
    pub seconds: f64,
    /// Local address of the packets.
    pub local: SocketAddr,
    /// Number of rows that readers of the file see.
    pub rows: u64,
    /// Report of the recorder, unless shots were discarded, or the recorder failed.
    pub report: Option<Report>,
    /// Number of triggers of a pre-trigger capture.
    pub triggers: Option<u64>,
    /// Parts that a bounded run has removed.
    pub removed: Removed,
    /// Time from the first shot handed to the recorder until everything was in the file and flushed, in seconds.
    pub write_seconds: f64,
    /// Shape of the shots.
    pub geometry: Geometry,
    /// Receive buffer granted by the kernel, in bytes of its accounting.
    pub receive_buffer: usize,
    /// Kind of pages of the pool.
    pub pages: Pages,
    /// Size of the pool in bytes.
    pub pool_bytes: usize,
    /// Latencies of each stream's shots.
    pub latencies: Vec<ShotLatencies>,
    /// The receiver's clock, and its health at the end.
    pub clock: (clock::Source, clock::Health),
    /// Description of a learned sender.
    pub learned: Option<String>,
    /// Utilisation of each stage.
    pub stages: [stages::Reading; 2],
    /// Alignment status of several links.
    pub events: Option<AlignmentStatus>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

impl Outcome {
    /// Summarises the results of the threads.
    ///
    /// # Errors
    /// If the counters do not match, which is a defect of this program.
    pub(super) fn of<P: PacketIo>(results: ThreadResults<'_, P>, live: &Live) -> Result<Self, RunError> {
        let ThreadResults {
            prepared,
            local,
            receive_buffer,
            learned,
            clock,
            mut receiver,
            watch,
            result,
            received,
            mut lacked_space,
            recorded,
            mut warnings,
        } = results;
        let settings = prepared.resolved.settings;
        let (recorded, lost, cause) = match recorded {
            Ok(recorded) => (recorded, Vec::new(), result.ended),
            Err(SinkFailure { error, discarded }) => (None, discarded, Err((Cause::RecorderFailed, error))),
        };
        let finished = recorded.as_ref().map(|recorded| &recorded.finished);
        let discarded = finished.iter().flat_map(|finished| &finished.unrecorded).chain(&lost);
        let streams = 0..prepared.configs.len();
        let mut counters: Vec<StreamCounters> = streams.clone().map(|index| *receiver.counters(index)).collect();
        for unrecorded in discarded {
            lacked_space |= unrecorded.cause == DropCause::SinkFull;
            counters[unrecorded.link].retract_all(unrecorded.complete, unrecorded.partial, unrecorded.cause);
        }
        let without_space =
            counters.iter().map(|counters| counters.shot_drops.get(DropCause::SinkFull)).max().unwrap_or(0);
        let shots = Shots { received, without_space, lacked_space };
        let events = Some(live.alignment()).filter(|_| streams.len() > 1);
        warnings.extend(finished.iter().flat_map(|finished| finished.report.warnings.iter().cloned()));
        warnings.extend(watch.warnings());
        warnings.extend(restarts(&receiver));
        let device = receiver.io().device_counters();
        warnings.extend(link_downs(&device));
        warnings.extend(events.as_ref().and_then(|status| incomplete(status, settings)));
        let mut seen = HashSet::new();
        warnings.retain(|warning| seen.insert(warning.clone()));
        let outcome = Self {
            probe_reports: watch.reports().unwrap_or_default().to_vec(),
            streams: counters,
            unknown: *receiver.unknown(),
            device,
            end: End::of(RequestedEnd::of(settings), shots, result.elapsed, cause),
            seconds: result.seconds,
            local,
            rows: finished.map_or_else(|| live.read().rows, |finished| finished.report.rows),
            removed: finished.map(|finished| finished.removed).unwrap_or_default(),
            triggers: recorded.as_ref().and_then(|recorded| recorded.triggers),
            write_seconds: recorded.as_ref().map_or(0.0, |recorded| recorded.seconds),
            report: recorded.map(|recorded| recorded.finished.report),
            geometry: prepared.geometry,
            receive_buffer,
            latencies: streams.map(|index| receiver.latencies(index).clone()).collect(),
            clock: (clock.source().clone(), clock.refresh()),
            learned,
            pages: prepared.pool.region().pages(),
            pool_bytes: prepared.pool.region().len(),
            stages: live.stages(),
            events,
            warnings,
        };
        outcome.total().balance()?;
        Ok(outcome)
    }

    /// Returns the sum of all counters.
    pub fn total(&self) -> StreamCounters {
        self.streams.iter().fold(self.unknown, |mut total, counters| {
            total.merge(counters);
            total
        })
    }
    /// Returns the rate of payload received into place, in Gbit/s from the first packet to the last.
    pub fn receive_gbps(&self) -> f64 {
        if self.seconds > 0.0 { self.total().placed_bytes as f64 * 8.0 / self.seconds / 1e9 } else { 0.0 }
    }
    /// Returns the rate of slots recorded, in Gbit/s, including the flush.
    pub fn write_gbps(&self) -> f64 {
        match &self.report {
            Some(report) if self.write_seconds > 0.0 => report.bytes as f64 * 8.0 / self.write_seconds / 1e9,
            _ => 0.0,
        }
    }
}

/// Returns a warning if more than one in [`INCOMPLETE_DIVISOR`] events lacks a link.
fn incomplete(status: &AlignmentStatus, settings: &Settings) -> Option<String> {
    let EventCounters { complete, partial, dropped, .. } = status.events;
    let (all, lacking) = (complete + partial + dropped, partial + dropped);
    if lacking * INCOMPLETE_DIVISOR <= all {
        return None;
    }
    let window = (status.window_ns > 0).then(|| {
        let by =
            if settings.align_window.is_some() { "set by --align-window" } else { "the default, see --align-window" };
        format!("; stamps were matched within {:.1} us ({by})", status.window_ns as f64 / 1e3)
    });
    Some(format!(
        "{lacking} of {all} events are incomplete, each lacks at least one link: /counters has events_missed of each link{}",
        window.unwrap_or_default()
    ))
}

/// Returns a warning if the link went down.
fn link_downs(device: &DeviceCounters) -> Option<String> {
    let times = match device.link_downs {
        0 => return None,
        1 => "once".into(),
        more => format!("{more} times"),
    };
    Some(format!(
        "the link of the receiving device went down {times}, or the device was removed: what was sent meanwhile is missing, and in no counter of the device"
    ))
}

/// Returns a warning about senders that were restarted or changed.
fn restarts<P: PacketIo>(receiver: &Receiver<P>) -> Option<String> {
    Some(match (receiver.ended(), receiver.total().restarts) {
        (Some(EndReason::FormatChanged), _) => {
            "the sender's context packets have another sample rate or format: the recording ends there, start another run for the rest".into()
        }
        (Some(EndReason::Restarted), _) => {
            "a sender has restarted its count, with shot numbers that this recording already has: the recording ends there, start another run for the rest".into()
        }
        (None, 0) => return None,
        (None, restarts) => format!(
            "the sender has restarted its count ({restarts} times): its shots continue the numbers of this recording; /losses has the shots that arrived before the restart was certain as {}",
            DropCause::SenderRestart
        ),
    })
}
