//! Replay of the datagrams of a capture.

use super::args::Args;
use crate::Result;
use crate::capture::flow::{PLAIN_SEGMENT, roce_segment};
use crate::output::{CpuTime, Report, print_report};
use crate::transport::open;
use serde::Serialize;
use shotline_instrument::probe::LinkRequest;
use shotline_instrument::probe::pace::Pace;
use shotline_instrument::replay::flow::{Chunk, Flow, FlowCounters};
use shotline_store::pcapng::{Datagram, datagram, for_each_frame};
use shotline_wire::framing::udp as plain;
use shotline_wire::udp::ROCE_PORT;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Bytes of datagrams in a chunk, and number of chunks that are read ahead.
const CHUNK_BYTES: usize = 1 << 20;
const CHUNKS_AHEAD: usize = 16;
/// Maximum number of flows that are tracked.
const MAX_FLOWS: usize = 4096;
/// Maximum number of flows that an error lists.
const MAX_NAMED: usize = 5;
/// Time before the send time of a datagram in which the sender spins instead of sleeping.
const SPIN_TIME: Duration = Duration::from_micros(120);
/// Maximum time to sleep, which bounds the delay of a signal.
const MAX_SLEEP: Duration = Duration::from_millis(50);

/// Report of a replayed flow.
#[derive(Serialize)]
struct FlowReport {
    flow: SocketAddr,
    to: SocketAddr,
    #[serde(flatten)]
    counters: FlowCounters,
    /// Number of frames that could not be sent, by cause.
    skipped: BTreeMap<&'static str, u64>,
    /// Number of datagrams of other flows.
    other_flows: u64,
    seconds: f64,
    /// Why the capture could not be read to its end, if it could not.
    damage: Option<String>,
    #[serde(flatten)]
    cpu: CpuTime,
}

impl Report for FlowReport {
    fn print(&self) -> Result {
        let Self { flow, to, seconds, counters: FlowCounters { datagrams, bytes, .. }, .. } = self;
        errln!("sent {datagrams} datagrams of {flow} to {to}: {bytes} bytes in {seconds:.3} s");
        for (cause, count) in &self.skipped {
            errln!("  skipped ({cause}): {count} frames");
        }
        Ok(())
    }
}

/// Returns `true` if a file begins like a capture.
pub fn is_capture(path: &Path) -> Result<bool> {
    let mut first = Vec::new();
    if path.is_file() {
        File::open(path)
            .and_then(|file| file.take(4).read_to_end(&mut first))
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    }
    Ok(shotline_store::pcapng::is_capture(&first))
}

/// Sends the flow that the arguments name, or the largest.
pub fn run(args: &Args, stop: &AtomicBool) -> Result {
    let [to] = args.to[..] else {
        return Err(
            "a capture does not answer set-up: give the destination of its datagrams with --to ADDRESS:PORT".into()
        );
    };
    let recording_flags = [
        (args.from.is_some(), "--from"),
        (args.shots.is_some(), "--shots"),
        (args.framing.is_some(), "--framing"),
        (args.queue_pair.is_some(), "--queue-pair"),
        (args.q_key.is_some(), "--q-key"),
        (args.turns != 1, "--loop"),
    ];
    if let Some((_, flag)) = recording_flags.iter().find(|(given, _)| *given) {
        return Err(format!("{flag} is for recordings: the datagrams of a capture are sent unchanged").into());
    }
    let pace = match args.pace() {
        Pace::Rate(hz) | Pace::Bandwidth(hz) | Pace::Recorded(hz) if !(hz.is_finite() && hz > 0.0) => {
            return Err(format!("the pace must be a positive number, found {hz}").into());
        }
        pace => pace,
    };
    let flow = choose_flow(&args.file, args.flow)?;
    let sealed = flow.port() == ROCE_PORT;
    let request = LinkRequest { link: 0, destination: to, sealed };
    let mut sender = Flow::new(to, sealed, pace, |regions| Ok(open(args.source, &request, regions)?.io))?;
    let (chunks, read) = sync_channel(CHUNKS_AHEAD);
    let path = args.file.clone();
    let reader = std::thread::spawn(move || ReadCounters::of(&path, flow, chunks));
    let start = Instant::now();
    send(&mut sender, &read, stop)?;
    let seconds = start.elapsed().as_secs_f64();
    drop(read); // a reader that is still running stops at this
    let Ok(reading) = reader.join() else { return Err("the reading thread panicked".into()) };
    let ReadCounters { skipped, other_flows, damage } = reading?;
    let report = FlowReport {
        flow,
        to,
        counters: sender.counters(),
        skipped,
        other_flows,
        seconds,
        damage,
        cpu: CpuTime::now(),
    };
    print_report(args.json, &report)?;
    match report.damage {
        Some(damage) => {
            Err(format!("{}: {damage}; only the datagrams before that were sent", args.file.display()).into())
        }
        None => Ok(()),
    }
}

fn send(sender: &mut Flow<impl shotline_transport::PacketIo>, chunks: &Receiver<Chunk>, stop: &AtomicBool) -> Result {
    let start = Instant::now();
    let stopped = || stop.load(Ordering::Relaxed);
    let mut wait = |until: u64| {
        loop {
            let now = start.elapsed();
            let left = Duration::from_nanos(until).saturating_sub(now);
            if stopped() {
                return None;
            }
            if left.is_zero() {
                return Some(now.as_nanos() as u64);
            }
            match left.saturating_sub(SPIN_TIME) {
                Duration::ZERO => std::hint::spin_loop(),
                sleep => std::thread::sleep(sleep.min(MAX_SLEEP)),
            }
        }
    };
    for chunk in chunks {
        let mut again = || {
            std::thread::yield_now();
            !stopped()
        };
        if !sender.send(&chunk, &mut wait, &mut again)? {
            break;
        }
    }
    Ok(())
}

/// Returns the requested flow if it is in the capture, or without a request the flow with the most bytes.
fn choose_flow(path: &Path, requested: Option<SocketAddr>) -> Result<SocketAddr> {
    let mut flows = BTreeMap::<SocketAddr, u64>::new();
    let damage = for_each_frame(path, |frame| {
        if let Ok(Datagram { destination, payload, .. }) = datagram(&frame)
            && (flows.len() < MAX_FLOWS || flows.contains_key(&destination))
        {
            *flows.entry(destination).or_default() += payload.len() as u64;
        }
    })?;
    let mut largest: Vec<_> = flows.iter().map(|(flow, bytes)| (*bytes, *flow)).collect();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    match (requested, largest.first()) {
        (_, None) => {
            let damage = damage.map_or(String::new(), |damage| format!(" ({damage})"));
            Err(format!("{} has no complete UDP datagram{damage}: there is nothing to send", path.display()).into())
        }
        (Some(requested), _) if !flows.contains_key(&requested) => {
            let named: Vec<_> = largest.iter().take(MAX_NAMED).map(|(_, flow)| flow.to_string()).collect();
            Err(format!("{} has no datagrams to {requested}; it has some to {}", path.display(), named.join(", "))
                .into())
        }
        (Some(requested), _) => Ok(requested),
        (None, Some((_, flow))) => Ok(*flow),
    }
}

/// Counters of the reading thread.
struct ReadCounters {
    skipped: BTreeMap<&'static str, u64>,
    other_flows: u64,
    damage: Option<String>,
}

impl ReadCounters {
    /// Reads the datagrams of a flow into chunks, until the end of the file or until the receiver is dropped.
    fn of(
        path: &Path,
        flow: SocketAddr,
        chunks: SyncSender<Chunk>,
    ) -> std::result::Result<Self, shotline_store::pcapng::CaptureError> {
        let mut reading = Self { skipped: BTreeMap::new(), other_flows: 0, damage: None };
        let (mut chunk, mut is_received) = (Chunk::default(), true);
        let damage = for_each_frame(path, |frame| match datagram(&frame) {
            _ if !is_received => {}
            Ok(datagram) if datagram.destination == flow => {
                for packet in split(&datagram) {
                    let at = chunk.bytes.len();
                    chunk.bytes.extend_from_slice(packet);
                    chunk.datagrams.push((frame.time_ns, at..chunk.bytes.len()));
                }
                if chunk.bytes.len() >= CHUNK_BYTES {
                    is_received = chunks.send(std::mem::take(&mut chunk)).is_ok();
                }
            }
            Ok(_) => reading.other_flows += 1,
            Err(why) => *reading.skipped.entry(why.name()).or_default() += 1,
        })?;
        let _ = chunks.send(chunk);
        Ok(Self { damage, ..reading })
    }
}

/// Returns the packets of a datagram. A capture on loopback, or on a sender with segmentation offload, holds batches
/// that were not split. An empty datagram is one packet.
fn split<'a>(datagram: &Datagram<'a>) -> impl Iterator<Item = &'a [u8]> {
    let payload = datagram.payload;
    let segment = if datagram.destination.port() == ROCE_PORT {
        roce_segment(payload)
    } else {
        payload.starts_with(&plain::MAGIC).then_some(PLAIN_SEGMENT)
    };
    let empty = payload.is_empty().then_some(payload);
    empty.into_iter().chain(payload.chunks(segment.unwrap_or(payload.len()).max(1)))
}
