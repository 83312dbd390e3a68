//! Summary of a run: one JSON object with units in its keys, or rows of a table.

use crate::align::{AlignmentStatus, EventCounters};
use crate::clock::Health;
use crate::counters::StreamCounters;
use crate::latency::Latency;
use crate::run::{Cause, End, Outcome};
use crate::stages::{Bottleneck, Reading};
use serde::Serialize;
use shotline_store::recorder::Chunks;
use shotline_wire::shot::{DropCause, DropCounters};
use std::collections::BTreeMap;

/// Counts by the name of their cause.
pub type ByCause = BTreeMap<&'static str, u64>;

/// Returns the counts that are not 0 by the name of their cause.
pub fn by_cause(drops: &DropCounters) -> ByCause {
    drops.iter().map(|(cause, count)| (cause.name(), count)).collect()
}

/// Number of ICRC checks by result.
#[derive(Debug, Serialize)]
pub struct IcrcVerdicts {
    /// The ICRC matched.
    good: u64,
    /// The ICRC matches for one IPv4 identification.
    solved: u64,
    /// An RDMA device checked the ICRC.
    device: u64,
    /// The ICRC could not be checked.
    unverified: u64,
    /// The ICRC did not match.
    bad: u64,
}

/// Latency of complete shots, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LatencySummary {
    shots: u64,
    min_us: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    /// Number of shots that end before they begin, because the clocks of sender and receiver disagree.
    #[serde(skip_serializing_if = "is_zero")]
    negative: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl LatencySummary {
    fn of(times: impl Iterator<Item = Latency>) -> Option<Self> {
        let all = times.reduce(|mut all, times| {
            all.merge(&times);
            all
        })?;
        let us = |ns: u64| ns as f64 / 1e3;
        (all.count() + all.negative > 0).then(|| Self {
            shots: all.count(),
            min_us: us(all.min_ns()),
            p50_us: us(all.percentile_ns(0.5)),
            p99_us: us(all.percentile_ns(0.99)),
            max_us: us(all.max_ns()),
            negative: all.negative,
        })
    }
}

/// The receiver's clock at the end of the run.
#[derive(Debug, Serialize)]
struct ClockSummary {
    source: String,
    #[serde(flatten)]
    health: Health,
}

/// Alignment of the shots of several links.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EventSummary {
    /// Number of events with shots of all links.
    complete: u64,
    /// Number of events with shots of some links.
    incomplete: u64,
    /// Number of events with fewer shots than the quorum; they are not recorded.
    below_quorum: u64,
    /// Maximum difference of the stamps of one event, if events are aligned by stamp.
    #[serde(skip_serializing_if = "Option::is_none")]
    window_us: Option<f64>,
}

impl EventSummary {
    fn of(status: &AlignmentStatus) -> Self {
        let EventCounters { complete, partial, dropped, .. } = status.events;
        let window_us = (status.window_ns > 0).then(|| status.window_ns as f64 / 1e3);
        Self { complete, incomplete: partial, below_quorum: dropped, window_us }
    }

    /// Returns `true` unless every event was complete and aligned by shot number.
    fn is_notable(&self) -> bool {
        self.window_us.is_some() || self.incomplete + self.below_quorum > 0
    }

    fn rows(&self) -> impl Iterator<Item = (String, String)> {
        let counts = [("events complete", self.complete), ("events incomplete", self.incomplete)];
        let quorum = ("events below the quorum", self.below_quorum);
        let counts = counts.into_iter().chain((self.below_quorum > 0).then_some(quorum));
        let window = self.window_us.map(|us| ("stamp spread of an event".to_owned(), format!("{us:.1} us")));
        counts.map(|(name, count)| (name.to_owned(), count.to_string())).chain(window)
    }
}

/// Summary of a run.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Number of shots that the probe reports as sent on all links, or `None` if it did not answer.
    pub shots_sent: Option<u64>,
    /// Number of shots in the file, complete or partial, or `None` if the recorder failed.
    pub shots_recorded: Option<u64>,
    /// Number of rows that are visible to readers of the file.
    pub rows: u64,
    /// Number of shots received completely and verified.
    pub shots_complete: u64,
    /// Number of shots passed on with packets missing.
    pub shots_partial: u64,
    /// Alignment of several links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<EventSummary>,
    /// Number of whole shots that were dropped, by cause.
    pub drops: ByCause,
    /// Number of packets that arrived.
    pub packets: u64,
    /// Number of packets that arrived and were dropped, by cause.
    pub packet_drops: ByCause,
    /// Number of frames that the device or its driver dropped before they reached the receiver, by the device's names.
    #[serde(skip_serializing_if = "ByCause::is_empty")]
    pub device_drops: ByCause,
    /// Number of packets missing in closed shots.
    pub packets_missing: u64,
    /// Payload rate received, from the first packet to the last.
    pub receive_gbps: f64,
    /// Rate recorded, from the first shot until everything was written and flushed.
    pub write_gbps: f64,
    /// Time from the first packet to the last.
    pub seconds: f64,
    /// Payload copies per byte, by the kernel or the transport, and by repairs.
    pub copies_per_byte: f64,
    /// The transport counts its copies.
    #[serde(skip)]
    counts_copies: bool,
    /// Results of the ICRC checks.
    pub icrc: IcrcVerdicts,
    /// Latency from the sender's stamp of a shot's first sample until the shot was complete.
    pub latency_from_sender: Option<LatencySummary>,
    /// Latency from the kernel's receipt of a shot's first packet until the shot was complete.
    pub latency_from_kernel: Option<LatencySummary>,
    clock: ClockSummary,
    /// Number of times that a sender without set-up restarted its shot count.
    #[serde(skip_serializing_if = "is_zero")]
    pub sender_restarts: u64,
    /// Properties that were learned of a sender without set-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learned: Option<String>,
    /// Receive buffer that the kernel granted.
    pub receive_buffer_bytes: usize,
    /// Size of the pool of shot buffers.
    pub pool_bytes: usize,
    /// Path of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<std::path::PathBuf>,
    /// Size of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Storage of the shots, if the file is compressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<Chunks>,
    /// Number of triggers of a pre-trigger capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triggers: Option<u64>,
    /// Number of rows that a bounded run has removed.
    #[serde(skip_serializing_if = "is_zero")]
    pub ring_removed_rows: u64,
    /// Load of each stage.
    pub stages: [Reading; 2],
    /// The saturated stage, or the sender.
    pub limited_by: String,
    /// Why and when the run ended.
    pub ended: End,
    /// Warnings of the run.
    pub warnings: Vec<String>,
}

impl Summary {
    /// Creates the summary of a run.
    pub fn of(outcome: &Outcome) -> Self {
        let total: StreamCounters = outcome.total();
        let report = outcome.report.as_ref();
        let mut drops = total.shot_drops;
        let mut complete = total.complete;
        if let Some(report) = report {
            drops.add(DropCause::SinkError, report.sink_error);
            complete = complete.min(report.complete);
        }
        let sent = &outcome.probe_reports;
        Self {
            shots_sent: (!sent.is_empty()).then(|| sent.iter().map(|report| report.shots_sent).sum()),
            shots_recorded: match report {
                Some(report) => Some(report.complete + report.partial),
                None => (outcome.end.cause != Cause::RecorderFailed).then_some(0),
            },
            rows: outcome.rows,
            shots_complete: complete,
            shots_partial: report.map_or(total.partial, |report| report.partial),
            events: outcome.events.as_ref().map(EventSummary::of),
            drops: by_cause(&drops),
            packets: total.packets,
            packet_drops: by_cause(&total.packet_drops),
            device_drops: outcome.device.causes().into_iter().filter(|(_, count)| *count > 0).collect(),
            packets_missing: total.packets_missing,
            receive_gbps: outcome.receive_gbps(),
            write_gbps: outcome.write_gbps(),
            seconds: outcome.seconds,
            copies_per_byte: total.copies_per_byte(outcome.device.copied_bytes),
            counts_copies: outcome.device.copied_bytes.is_some(),
            icrc: IcrcVerdicts {
                good: total.icrc_good,
                solved: total.icrc_solved,
                device: total.icrc_device,
                unverified: total.icrc_unverified,
                bad: total.packet_drops.get(DropCause::BadIcrc),
            },
            latency_from_sender: LatencySummary::of(
                outcome.latencies.iter().map(|latencies| latencies.from_sender.clone()),
            ),
            latency_from_kernel: LatencySummary::of(
                outcome.latencies.iter().map(|latencies| latencies.from_kernel.clone()),
            ),
            clock: ClockSummary { source: outcome.clock.0.to_string(), health: outcome.clock.1 },
            sender_restarts: total.restarts,
            learned: outcome.learned.clone(),
            receive_buffer_bytes: outcome.receive_buffer,
            pool_bytes: outcome.pool_bytes,
            file: report.map(|report| report.path.clone()),
            file_bytes: report.map(|report| report.file_bytes),
            chunks: report.and_then(|report| report.chunks),
            triggers: outcome.triggers,
            ring_removed_rows: outcome.removed.rows,
            stages: outcome.stages,
            limited_by: match outcome.end.cause {
                Cause::Full => "the space for the recording".into(),
                Cause::RecorderFailed => "the recorder".into(),
                _ => Bottleneck::of(&outcome.stages).to_string(),
            },
            ended: outcome.end.clone(),
            warnings: outcome.warnings.clone(),
        }
    }

    /// Returns the line that follows the table if something was lost.
    pub fn hint(&self) -> Option<String> {
        hint([&self.drops, &self.packet_drops], self.packets_missing)
    }

    /// Returns the summary as rows of a table.
    pub fn rows(&self) -> Vec<(String, String)> {
        let mut rows = vec![
            ("shots sent".into(), self.shots_sent.map_or("unknown".into(), |sent| sent.to_string())),
            ("shots complete".into(), self.shots_complete.to_string()),
            ("shots partial".into(), self.shots_partial.to_string()),
        ];
        rows.extend(self.triggers.map(|triggers| ("triggers".into(), triggers.to_string())));
        if self.ring_removed_rows > 0 {
            rows.push(("rows removed".into(), self.ring_removed_rows.to_string()));
        }
        match self.shots_recorded {
            Some(recorded) if self.file.is_some() => rows.insert(1, ("shots recorded".into(), recorded.to_string())),
            Some(_) => {}
            None => rows.insert(1, ("rows visible to readers".into(), self.rows.to_string())),
        }
        rows.extend(self.drops.iter().map(|(cause, count)| (format!("shots dropped: {cause}"), count.to_string())));
        if self.drops.is_empty() {
            rows.push(("shots dropped".into(), "0".into()));
        }
        rows.extend(self.events.iter().filter(|events| events.is_notable()).flat_map(EventSummary::rows));
        rows.push(("packets".into(), self.packets.to_string()));
        rows.extend(
            self.packet_drops.iter().map(|(cause, count)| (format!("packets dropped: {cause}"), count.to_string())),
        );
        let device = self.device_drops.iter();
        rows.extend(device.map(|(cause, count)| (format!("dropped by the device: {cause}"), count.to_string())));
        rows.push(("packets missing".into(), self.packets_missing.to_string()));
        if self.sender_restarts > 0 {
            rows.push(("restarts of the sender".into(), self.sender_restarts.to_string()));
        }
        if let Some(latency) = self.latency_from_kernel.as_ref().filter(|latency| latency.shots > 0) {
            let text = format!("{:.0} us, 99 % within {:.0} us", latency.p50_us, latency.p99_us);
            rows.push(("first packet to completion".into(), text));
        }
        rows.push(("received".into(), format!("{:.2} Gbit/s", self.receive_gbps)));
        if self.file.is_some() {
            rows.push(("written".into(), format!("{:.2} Gbit/s", self.write_gbps)));
        }
        if self.counts_copies {
            rows.push(("copies per payload byte".into(), format!("{:.2}", self.copies_per_byte)));
        }
        rows.push(("busy".into(), busy(&self.stages)));
        rows.push(("limited by".into(), self.limited_by.clone()));
        rows.extend(self.chunks.iter().flat_map(chunk_rows));
        rows
    }
}

/// Returns the line that follows a summary with losses.
fn hint(drops: [&ByCause; 2], packets_missing: u64) -> Option<String> {
    let is_loss = |name: &&str| DropCause::ALL.iter().any(|cause| cause.name() == *name && cause.is_loss());
    let mut names: Vec<_> = drops.into_iter().flat_map(|drops| drops.keys().copied()).filter(is_loss).collect();
    names.extend((packets_missing > 0).then_some(DropCause::WireGap.name()));
    names.sort_unstable();
    names.dedup();
    let first = names.first()?;
    let more = if names.len() > 1 { format!(" (also {})", names[1..].join(", ")) } else { String::new() };
    Some(format!("What to do about losses: shotline --explain {first}{more}"))
}

/// Formats the share of time that each stage was busy.
pub fn busy(stages: &[Reading]) -> String {
    let one = |stage: &Reading| format!("{} {:.0} %", stage.stage, 100.0 * stage.busy);
    stages.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Returns the storage of a compressed run's shots as rows of a table.
pub fn chunk_rows(chunks: &Chunks) -> Vec<(String, String)> {
    let mut rows = vec![
        ("shots compressed".into(), chunks.compressed.to_string()),
        ("shots stored uncompressed".into(), chunks.uncompressed.to_string()),
    ];
    if chunks.bytes_stored > 0 {
        rows.push(("compressed to".into(), format!("1 / {:.2}", chunks.bytes_raw as f64 / chunks.bytes_stored as f64)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_name_their_explanation() {
        let drops = |names: &[&'static str]| names.iter().map(|name| (*name, 1)).collect::<ByCause>();
        assert_eq!(hint([&drops(&[]), &drops(&[])], 0), None);
        let one = hint([&drops(&["sink_busy"]), &drops(&[])], 0).unwrap();
        assert!(one.ends_with("--explain sink_busy"), "{one}");
        let several = hint([&drops(&["late"]), &drops(&["bad_icrc", "late"])], 2).unwrap();
        assert!(several.ends_with("--explain bad_icrc (also late, wire_gap)"), "{several}");
    }
}
