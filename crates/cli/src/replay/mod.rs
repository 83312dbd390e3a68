//! `shotline replay`: sends a recording or a capture again.

mod args;
mod flow;
mod page;
mod tape;

use crate::output::{CpuTime, Report, print_report};
use crate::transport::open;
use crate::{Result, signals};
pub use args::Args;
use serde::Serialize;
use shotline_acquire::config::queue_pair;
use shotline_compute::ultrasound::Array;
use shotline_instrument::probe::pace::Pace;
use shotline_instrument::probe::{Config, LinkRequest, LinkTransport, Probe, ProbeCounters, Server, Shots};
use shotline_instrument::replay::{RecordedShots, RecordingReader, ShotConverter};
use shotline_memory::{Regions, Registrar};
use shotline_store::pcapng;
use shotline_store::read::Recording;
use shotline_transport::{IoError, PacketIo};
use shotline_wire::framing::{Kind, Link};
use shotline_wire::setup::{Mode, Start};
use shotline_wire::shot::Geometry;
use std::sync::Arc;
use std::time::Instant;
use tape::{RecordedTape, ShotRange};

/// Number of samples per channel that a receiver requests by default.
const DEFAULT_SAMPLES: u32 = 2000;

/// Report of a replay.
#[derive(Serialize)]
struct ReplayReport {
    #[serde(flatten)]
    counters: ProbeCounters,
    /// Time from the first packet to the last, of a replay without set-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(flatten)]
    cpu: CpuTime,
}

impl Report for ReplayReport {
    fn print(&self) -> Result {
        for (index, link) in self.counters.links.iter().enumerate() {
            errln!("link {index}: {}", serde_json::to_string(&link.counters)?);
        }
        Ok(())
    }
}

/// Replays until the end, or until a signal stops it.
pub fn run(args: &Args) -> Result {
    let stop = signals::stop_flag()?;
    if let Some(cpu) = args.cpu {
        shotline_acquire::cpu::pin(cpu)?;
    }
    if flow::is_capture(&args.file)? {
        return flow::run(args, &stop);
    }
    if args.flow.is_some() {
        return Err(format!("{} is not a capture: omit --flow", args.file.display()).into());
    }
    let (tape, kind, array) = load(args)?;
    let converters = tape
        .links()
        .iter()
        .map(|link| ShotConverter::new(link.geometry, kind))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let geometry = converters.first().map(|converter| *converter.geometry());
    let pass = tape.numbers();
    let stamps = tape.stamps()?;
    let streams: Vec<u32> = tape.links().iter().map(|link| link.stream).collect();
    let file = args.file.file_name().unwrap_or_default().to_string_lossy();
    let mut registrar = Registrar::new();
    let turns = Some(args.turns).filter(|turns| *turns > 0);
    let shots = RecordedShots::new(tape, &file, converters, args.stamps, turns, &mut registrar)?;
    let config = Config { links: streams.len() as u8, free_running: args.pace(), array, ..Config::default() };
    let source = args.source;
    let mut probe =
        Probe::with(shots, registrar.finish(), config, move |request, regions| open(source, request, regions))?;
    let numbers = pass.start..pass.start.saturating_add((pass.end - pass.start).saturating_mul(args.turns));
    let numbers = Some(numbers).filter(|_| turns.is_some());
    let (mut page, server, started) = match geometry.filter(|_| !args.to.is_empty()) {
        Some(geometry) => {
            Preset { kind, geometry, first: pass.start, stamps, streams }.apply(args, &mut probe)?;
            let page = page::of_recording(args, None, probe.state(), numbers, &stop)?;
            let started = Instant::now();
            let start = Start { mode: Mode::FreeRunning, shots: 0 };
            let server = Server::without_setup(probe, start).map_err(|refusal| refusal.to_string())?;
            (page, server, Some(started))
        }
        None => {
            let server = Server::with_probe(probe, args.listen)?.once(args.once);
            let samples = geometry.map_or(0, |geometry| geometry.samples());
            let hint = if samples > DEFAULT_SAMPLES {
                format!(" (record it with --samples {samples})")
            } else {
                String::new()
            };
            let listen = server.local_addr()?;
            errln!("replay{hint} waits for a receiver on {listen}");
            let page = page::of_recording(args, Some(listen), server.state(), numbers, &stop)?;
            (page, server, None)
        }
    };
    let counters = page.run(server, &stop)?;
    let seconds = started.map(|started| started.elapsed().as_secs_f64());
    let report = ReplayReport { counters, seconds, cpu: CpuTime::now() };
    print_report(args.json, &report)?;
    page.end(&report.counters, &stop);
    Ok(())
}

/// Keys and framing of a replay without set-up.
struct Preset {
    kind: Kind,
    geometry: Geometry,
    /// Number of the first shot.
    first: u64,
    /// Number and stamp of a shot of each link.
    stamps: Vec<(u64, u64)>,
    streams: Vec<u32>,
}

impl Preset {
    /// Sets the destination of each link.
    fn apply<Io, Open, S>(&self, args: &Args, probe: &mut Probe<Io, Open, S>) -> Result
    where
        Io: PacketIo,
        Open: FnMut(&LinkRequest, &Regions) -> std::result::Result<LinkTransport<Io>, IoError>,
        S: Shots,
    {
        args.check_framing(self.kind, self.streams.len())?;
        for (link, stream) in (0..).zip(&self.streams) {
            let stamp = self.stamps.get(link as usize).copied().unwrap_or_default();
            let framing = pcapng::framing(self.kind, &self.geometry, self.first, stamp);
            let to = args.to[(link as usize).min(args.to.len() - 1)];
            let (qp, q_key) = args.keys(self.kind)?;
            let keys = Link { dest_qp: queue_pair(qp, link)?, src_qp: 0, q_key, stream: *stream };
            probe.set_target(link, to, framing, keys)?;
        }
        Ok(())
    }
}

/// Opens the selected part of a recording, and chooses its framing.
fn load(args: &Args) -> Result<(RecordedTape, Kind, Option<Array>)> {
    let recording = Arc::new(Recording::open(&args.file)?);
    let tape = RecordedTape::new(recording.clone(), ShotRange { from: args.from, shots: args.shots })?;
    if matches!(args.pace(), Pace::Recorded(_)) && !tape.rows().is_empty() && !tape.is_timed()? {
        return Err(format!(
            "{} has no times of its shots: choose a pace with --rate-hz, --gbps or --max",
            args.file.display()
        )
        .into());
    }
    let recorded = if args.to.is_empty() { Kind::Ud.name() } else { recording.run().framing.as_str() };
    let array = recording.run().array.map(Array::from);
    Ok((tape, args.framing.as_deref().unwrap_or(recorded).parse()?, array))
}
