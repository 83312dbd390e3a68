//! What the page of a probe shows: of an emulated one, or of a replay, which is a probe as well.

use crate::Result;
use crate::serve::{BoardPage, PageArgs};
use shotline_dashboard::status::{Family, FamilyKind, LogLevel, Phase, Rate, Sample, Status, Table, Text};
use shotline_dashboard::{Board, BoardInfo};
use shotline_instrument::probe::faults::FaultCounters;
use shotline_instrument::probe::pace::Pace;
use shotline_instrument::probe::{
    LinkCounters, LinkRequest, LinkTransport, ProbeCounters, ProbeState, ServeError, Server, Shots,
};
use shotline_memory::{Regions, format_bytes};
use shotline_transport::{IoError, PacketIo};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The page of a command that runs a probe.
pub struct ProbePage {
    page: BoardPage,
    /// Numbers of the shots that the source has, if they are known.
    shots: Option<Range<u64>>,
    last: ProbeState,
}

impl ProbePage {
    /// Serves the page, if it is requested. `state` is that of the probe before it runs.
    pub fn open(
        args: &PageArgs,
        info: BoardInfo,
        state: ProbeState,
        shots: Option<Range<u64>>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self> {
        Ok(Self { page: args.board(info, Vec::new(), stop)?, shots, last: state })
    }

    /// Runs a probe while the page shows it.
    pub fn run<Io, Open, S>(
        &mut self,
        server: Server<Io, Open, S>,
        stop: &AtomicBool,
    ) -> std::result::Result<ProbeCounters, ServeError>
    where
        Io: PacketIo,
        Open: FnMut(&LinkRequest, &Regions) -> std::result::Result<LinkTransport<Io>, IoError>,
        S: Shots,
    {
        let Self { page, shots, last } = self;
        let Some(board) = page.board() else { return server.run(stop) };
        server.run_observed(stop, &mut |state| {
            log_failures(board, last, state);
            board.publish(status(state, shots.as_ref()));
            last.clone_from(state);
        })
    }

    /// Shows the final counters.
    pub fn end(self, counters: &ProbeCounters, stop: &AtomicBool) {
        let Self { page, shots, last } = self;
        let state = ProbeState { counters: counters.clone(), is_running: false, ..last.clone() };
        if let Some(board) = page.board() {
            log_failures(board, &last, &state);
        }
        page.end(|| status(&state, shots.as_ref()), stop);
    }
}

/// Adds the error of a run that has failed since the last state to the log.
fn log_failures(board: &Board, last: &ProbeState, state: &ProbeState) {
    let failures = &state.counters.failures;
    if let Some(error) = failures.last_error.as_ref().filter(|_| failures.runs > last.counters.failures.runs) {
        board.log(LogLevel::Error, format!("A run has ended because a shot could not be sent: {error}"));
    }
}

/// Returns the settings that all probes have. `listen` is the set-up address, if there is one.
pub fn settings(state: &ProbeState, listen: Option<SocketAddr>, pace: Pace) -> Vec<(Text, String)> {
    let geometry = &state.geometry;
    let mut settings: Vec<(Text, String)> = Vec::new();
    settings.extend(listen.map(|address| ("set-up address".into(), address.to_string())));
    settings.extend([
        ("links".into(), state.counters.links.len().to_string()),
        ("channels of a link".into(), geometry.channels().to_string()),
        ("samples of a channel".into(), geometry.samples().to_string()),
        ("bits".into(), geometry.bits().to_string()),
        ("sample rate".into(), format!("{} MS/s", f64::from(geometry.sample_rate_hz()) / 1e6)),
        ("pace".into(), pace_text(pace)),
    ]);
    settings
}

/// Describes a pace.
pub fn pace_text(pace: Pace) -> String {
    match pace {
        Pace::Device => "that of the device".into(),
        Pace::Max => "as fast as the link accepts".into(),
        Pace::Rate(hz) => format!("{hz} per second"),
        Pace::Bandwidth(gbps) => format!("{gbps} Gbit/s"),
        Pace::Recorded(speed) => format!("{speed} times the recorded one"),
    }
}

/// Returns the state of a probe. `shots` are the numbers of the shots that its source has, if they are known.
pub(super) fn status(state: &ProbeState, shots: Option<&Range<u64>>) -> Status {
    let phase = if state.is_running { Phase::Running } else { Phase::Waiting };
    let progress = shots.map(|shots| {
        let sent = state.counters.next_shot.clamp(shots.start, shots.end.max(shots.start)) - shots.start;
        sent as f64 / (shots.end.saturating_sub(shots.start)).max(1) as f64
    });
    Status { phase, progress, families: families(&state.counters), tables: vec![links(state)], ..Status::default() }
}

fn families(counters: &ProbeCounters) -> Vec<Family> {
    let mut families = of_links(counters);
    families.extend([
        Family {
            is_loss: true,
            ..Family::counter(
                "shots_skipped",
                "Shots that were skipped because sending was late by more than one shot",
                counters.pace.skipped,
            )
        },
        Family {
            is_loss: true,
            ..Family::counter(
                "triggers_missed",
                "Triggers without a shot: they came while the probe was busy, or were lost on the way",
                counters.pace.missed,
            )
        },
        Family::counter("runs_failed", "Runs that ended because a shot could not be sent", counters.failures.runs),
        Family::counter("requests_refused", "Messages to the set-up port that were refused", counters.requests_refused),
        Family::gauge("next_shot", "Number of the next shot", counters.next_shot as f64),
    ]);
    if let Some(replay) = &counters.source.replay {
        let help = "Shots that had not been read from the recording at their start time";
        families.push(Family::counter("read_underruns", help, replay.read_underruns));
    }
    families
}

/// Returns the counters of the links.
fn of_links(counters: &ProbeCounters) -> Vec<Family> {
    let each = |value: fn(&LinkCounters) -> u64| {
        let links = counters.links.iter().enumerate();
        links.map(move |(link, report)| Sample::count(label(link), value(&report.counters))).collect::<Vec<_>>()
    };
    let faults = counters.links.iter().enumerate().flat_map(|(link, report)| {
        let FaultCounters { lost, duplicated, reordered, corrupted } = report.faults;
        [("lost", lost), ("duplicated", duplicated), ("reordered", reordered), ("corrupted", corrupted)]
            .map(|(fault, count)| Sample::count([label(link), vec![("fault", fault.to_owned())]].concat(), count))
    });
    vec![
        Family {
            samples: each(|link| link.bytes),
            unit: Some("bytes"),
            rate: Some(Rate { label: "Payload", unit: "Gbit/s", factor: 8e-9 }),
            ..Family::new("payload_sent", "Payload bytes in packets that were sent", FamilyKind::Counter)
        },
        Family {
            samples: each(|link| link.packets),
            rate: Some(Rate { label: "Packets", unit: "packets/s", factor: 1.0 }),
            ..Family::new("packets_sent", "Packets that were sent", FamilyKind::Counter)
        },
        Family {
            samples: each(|link| link.shots),
            rate: Some(Rate { label: "Shots", unit: "shots/s", factor: 1.0 }),
            ..Family::new(
                "shots_sent",
                "Shots that were sent, with those of which packets were left out on purpose",
                FamilyKind::Counter,
            )
        },
        Family {
            samples: faults.collect(),
            ..Family::new("faults_injected", "Faults that were injected into packets, by fault", FamilyKind::Counter)
        },
        Family {
            samples: each(|link| link.discarded),
            is_loss: true,
            ..Family::new(
                "packets_discarded",
                "Packets that were not sent, because the run ended while the path was full or had failed",
                FamilyKind::Counter,
            )
        },
        Family {
            samples: each(|link| link.missing),
            ..Family::new("source_packets_missing", "Packets that the source does not have", FamilyKind::Counter)
        },
        Family {
            samples: each(|link| link.tx_full),
            ..Family::new("sends_incomplete", "Send calls that did not accept all packets", FamilyKind::Counter)
        },
    ]
}

fn label(link: usize) -> Vec<(&'static str, String)> {
    vec![("link", link.to_string())]
}

fn links(state: &ProbeState) -> Table {
    let columns = ["link", "destination", "shots", "packets", "payload", "faults", "discarded"];
    let links = state.counters.links.iter().zip(&state.destinations).enumerate();
    let rows = links.map(|(index, (link, to))| {
        let FaultCounters { lost, duplicated, reordered, corrupted } = link.faults;
        let LinkCounters { shots, packets, bytes, discarded, .. } = link.counters;
        vec![
            index.to_string(),
            to.map_or("-".into(), |to| to.to_string()),
            shots.to_string(),
            packets.to_string(),
            format_bytes(bytes),
            (lost + duplicated + reordered + corrupted).to_string(),
            discarded.to_string(),
        ]
    });
    Table { title: "Links".into(), columns: columns.map(Into::into).to_vec(), rows: rows.collect() }
}
