//! Replay of the datagrams of a capture.

use super::args::Args;
use super::page::{self, FlowState};
use crate::Result;
use crate::capture::flow::{PLAIN_SEGMENT, roce_segment};
use crate::output::{CpuTime, Report, print_report};
use crate::serve::BoardPage;
use crate::transport::open;
use serde::Serialize;
use shotline_dashboard::status::LogLevel;
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
use std::sync::Arc;
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
/// Time after which the page gets the next state.
const PAGE_INTERVAL: Duration = Duration::from_millis(100);

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
pub fn run(args: &Args, stop: &Arc<AtomicBool>) -> Result {
    let (to, pace) = check(args)?;
    let (flow, flow_bytes) = choose_flow(&args.file, args.flow)?;
    let sealed = flow.port() == ROCE_PORT;
    let request = LinkRequest { link: 0, destination: to, sealed };
    let mut sender = Flow::new(to, sealed, pace, |regions| Ok(open(args.source, &request, regions)?.io))?;
    let page = page::of_flow(args, flow, to, stop)?;
    let (parts, read) = sync_channel(CHUNKS_AHEAD);
    let path = args.file.clone();
    let reader = std::thread::spawn(move || ReadCounters::of(&path, flow, parts));
    let start = Instant::now();
    let is_complete = send(&mut sender, &read, (&page, flow_bytes), stop)?;
    let seconds = start.elapsed().as_secs_f64();
    drop(read); // a reader that is still running stops at this
    let Ok(reading) = reader.join() else { return Err("the reading thread panicked".into()) };
    let (ReadCounters { skipped, other_flows }, damage) = reading?;
    let counters = sender.counters();
    // Datagrams that cannot be sent are also over.
    let progress = if is_complete { 1.0 } else { progress(&counters, flow_bytes) };
    let report = FlowReport { flow, to, counters, skipped, other_flows, seconds, damage, cpu: CpuTime::now() };
    print_report(args.json, &report)?;
    let FlowReport { counters, skipped, damage, .. } = &report;
    end_page(page, &FlowState { counters, skipped, other_flows, progress }, damage.as_deref(), stop);
    match report.damage {
        Some(damage) => {
            Err(format!("{}: {damage}; only the datagrams before that were sent", args.file.display()).into())
        }
        None => Ok(()),
    }
}

/// Checks the arguments; returns the destination and the pace.
fn check(args: &Args) -> Result<(SocketAddr, Pace)> {
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
    match args.pace() {
        Pace::Rate(hz) | Pace::Bandwidth(hz) | Pace::Recorded(hz) if !(hz.is_finite() && hz > 0.0) => {
            Err(format!("the pace must be a positive number, found {hz}").into())
        }
        pace => Ok((to, pace)),
    }
}

/// Shows the final state, and where the capture is damaged.
fn end_page(page: BoardPage, state: &FlowState<'_>, damage: Option<&str>, stop: &AtomicBool) {
    if let (Some(board), Some(damage)) = (page.board(), damage) {
        board.log(LogLevel::Error, format!("{damage}; only the datagrams before that were sent"));
    }
    page.end(|| state.status(), stop);
}

/// Returns the part of the flow that was sent, 0 to 1.
fn progress(counters: &FlowCounters, flow_bytes: u64) -> f64 {
    (counters.bytes as f64 / flow_bytes.max(1) as f64).min(1.0)
}

/// Sends datagrams until there are no more; returns `false` if stopped. The page shows how far it is in the bytes of the flow.
fn send(
    sender: &mut Flow<impl shotline_transport::PacketIo>,
    parts: &Receiver<Part>,
    (page, flow_bytes): (&BoardPage, u64),
    stop: &AtomicBool,
) -> Result<bool> {
    let start = Instant::now();
    let stopped = || stop.load(Ordering::Relaxed);
    let mut next_state = if page.board().is_some() { Duration::ZERO } else { Duration::MAX };
    for Part { chunk, read } in parts {
        let mut wait = |until: u64, counters: &FlowCounters| {
            loop {
                let now = start.elapsed();
                if now >= next_state {
                    next_state = now + PAGE_INTERVAL;
                    let ReadCounters { skipped, other_flows } = &read;
                    let progress = progress(counters, flow_bytes);
                    let state = FlowState { counters, skipped, other_flows: *other_flows, progress };
                    page.board().into_iter().for_each(|board| board.publish(state.status()));
                }
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
        let mut again = || {
            std::thread::yield_now();
            !stopped()
        };
        if !sender.send(&chunk, &mut wait, &mut again)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the requested flow if it is in the capture, or without a request the flow with the most bytes, and its bytes.
fn choose_flow(path: &Path, requested: Option<SocketAddr>) -> Result<(SocketAddr, u64)> {
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
        (Some(requested), _) => match flows.get(&requested) {
            Some(bytes) => Ok((requested, *bytes)),
            None => {
                let named: Vec<_> = largest.iter().take(MAX_NAMED).map(|(_, flow)| flow.to_string()).collect();
                let named = named.join(", ");
                Err(format!("{} has no datagrams to {requested}; it has some to {named}", path.display()).into())
            }
        },
        (None, Some((bytes, flow))) => Ok((*flow, *bytes)),
    }
}

/// Datagrams, and the counters of the reading thread after them.
struct Part {
    chunk: Chunk,
    read: ReadCounters,
}

/// Counters of the reading thread.
#[derive(Clone, Default)]
struct ReadCounters {
    skipped: BTreeMap<&'static str, u64>,
    other_flows: u64,
}

impl ReadCounters {
    /// Reads the datagrams of a flow, until the end of the file or until the receiver is dropped. Also returns why the
    /// capture could not be read to its end, if it could not.
    fn of(
        path: &Path,
        flow: SocketAddr,
        parts: SyncSender<Part>,
    ) -> std::result::Result<(Self, Option<String>), shotline_store::pcapng::CaptureError> {
        let mut reading = Self::default();
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
                    let chunk = std::mem::take(&mut chunk);
                    is_received = parts.send(Part { chunk, read: reading.clone() }).is_ok();
                }
            }
            Ok(_) => reading.other_flows += 1,
            Err(why) => *reading.skipped.entry(why.name()).or_default() += 1,
        })?;
        let _ = parts.send(Part { chunk, read: reading.clone() });
        Ok((reading, damage))
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
