//! What the page of a replay shows.

use super::args::Args;
use crate::Result;
use crate::emulate::probe_page::{self, ProbePage};
use crate::serve::BoardPage;
use shotline_dashboard::BoardInfo;
use shotline_dashboard::status::{Family, FamilyKind, Phase, Rate, Sample, Status};
use shotline_instrument::probe::ProbeState;
use shotline_instrument::replay::flow::FlowCounters;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What happens when a replay is stopped.
const STOPPING: &str = "Ends the replay: nothing more is sent.";

/// Serves the page of a recording's replay, if it is requested. `listen` is the set-up address, if there is one; `numbers`
/// are those of all shots, if there is an end.
pub(super) fn of_recording(
    args: &Args,
    listen: Option<SocketAddr>,
    state: ProbeState,
    numbers: Option<Range<u64>>,
    stop: &Arc<AtomicBool>,
) -> Result<ProbePage> {
    let mut settings = probe_page::settings(&state, listen, args.pace());
    let turns = if args.turns == 0 { "without end".into() } else { args.turns.to_string() };
    settings.push(("repetitions".into(), turns));
    settings.extend(numbers.as_ref().map(|range| ("shot numbers".into(), range_text(range))));
    let to = listen.map_or_else(|| addresses(&args.to), |address| format!("receivers on {address}"));
    let info = BoardInfo {
        command: "replay".into(),
        title: format!("{} to {to}", file_name(args)),
        settings,
        stopping: STOPPING,
        ..BoardInfo::default()
    };
    ProbePage::open(&args.page, info, state, numbers, stop)
}

fn range_text(range: &Range<u64>) -> String {
    format!("{} to {}", range.start, range.end.saturating_sub(1))
}

fn addresses(all: &[SocketAddr]) -> String {
    all.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}

fn file_name(args: &Args) -> String {
    args.file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Serves the page of a flow's replay, if it is requested.
pub(super) fn of_flow(args: &Args, flow: SocketAddr, to: SocketAddr, stop: &Arc<AtomicBool>) -> Result<BoardPage> {
    let info = BoardInfo {
        command: "replay".into(),
        title: format!("datagrams of {flow} in {} to {to}", file_name(args)),
        settings: vec![("pace".into(), probe_page::pace_text(args.pace()))],
        stopping: STOPPING,
        ..BoardInfo::default()
    };
    args.page.board(info, Vec::new(), stop)
}

/// State of a flow's replay.
pub(super) struct FlowState<'a> {
    pub(super) counters: &'a FlowCounters,
    /// Frames that could not be sent, by cause.
    pub(super) skipped: &'a BTreeMap<&'static str, u64>,
    /// Datagrams of other flows.
    pub(super) other_flows: u64,
    /// Part of the flow that was sent, 0 to 1.
    pub(super) progress: f64,
}

impl FlowState<'_> {
    /// Returns what the page shows.
    pub(super) fn status(&self) -> Status {
        let FlowCounters { datagrams, bytes, malformed, empty, late, tx_full } = *self.counters;
        let caused = |cause: &str, count| Sample::count(vec![("cause", cause.to_owned())], count);
        let families = vec![
            Family {
                unit: Some("bytes"),
                rate: Some(Rate { label: "Payload", unit: "Gbit/s", factor: 8e-9 }),
                ..Family::counter("payload_sent", "Payload bytes in datagrams that were sent", bytes)
            },
            Family {
                rate: Some(Rate { label: "Datagrams", unit: "datagrams/s", factor: 1.0 }),
                ..Family::counter("datagrams_sent", "Datagrams that were sent", datagrams)
            },
            Family {
                samples: vec![caused("malformed", malformed), caused("empty", empty)],
                ..Family::new("datagrams_skipped", "Datagrams that cannot be sent, by cause", FamilyKind::Counter)
            },
            Family::counter("datagrams_late", "Datagrams that were sent more than a millisecond late", late),
            Family {
                samples: self.skipped.iter().map(|(cause, count)| caused(cause, *count)).collect(),
                ..Family::new(
                    "frames_skipped",
                    "Frames of the capture that have no complete UDP datagram, by cause",
                    FamilyKind::Counter,
                )
            },
            Family::counter("datagrams_of_other_flows", "Datagrams that are not of this flow", self.other_flows),
            Family::counter("sends_incomplete", "Send calls that did not accept all datagrams", tx_full),
        ];
        let families = families.into_iter().filter(|family| !family.samples.is_empty()).collect();
        Status { phase: Phase::Running, progress: Some(self.progress), families, ..Status::default() }
    }
}
