//! The recorder and its thread.

use super::RunError;
use super::prepare::{Prepared, in_flight};
use crate::books::Books;
use crate::clock::Clock;
use crate::config::Settings;
use crate::latency::Latency;
use crate::live::Live;
use crate::sink::Queue;
use crate::stream::{StreamConfig, Times};
use shotline_store::info::{ClockInfo, LinkInfo, RunInfo};
use shotline_store::recorder::WHOLE_RUN;
use shotline_store::shot::{Event, StreamBooks};
use shotline_store::{Recorder, RecorderConfig, Report};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Rows that a file is laid out for when nobody says how many: its tables grow with them.
const MOST_ROWS: u64 = 200_000;

/// Lays out the file.
pub(super) fn recorder(
    settings: &Settings,
    prepared: &Prepared,
    clock: &Clock,
    out: &Path,
) -> Result<Recorder, RunError> {
    let slot = u64::from(prepared.geometry.slot_bytes()) * prepared.configs.len() as u64;
    let rows = match settings.capacity.or(settings.shots.filter(|shots| *shots > 0)) {
        Some(rows) => rows,
        None => {
            let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(".".as_ref());
            let free = rustix::fs::statvfs(folder).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
            (free / 2 / slot).clamp(1, MOST_ROWS)
        }
    };
    let config = RecorderConfig {
        in_flight: in_flight(settings),
        direct: settings.buffered != Some(true),
        durable: settings.durable.unwrap_or(false),
        overwrite: settings.force.unwrap_or(false),
        ..RecorderConfig::new(rows)
    };
    let link = |config: &StreamConfig| LinkInfo {
        name: format!("{} link {}", prepared.instrument.name, config.stream),
        stream: config.stream,
        geometry: prepared.geometry,
    };
    let health = clock.refresh();
    let info = RunInfo {
        start_tai_ns: clock.now_tai_ns(),
        clock: ClockInfo {
            source: clock.source().to_string(),
            locked: health.locked,
            max_error_ns: health.max_error_ns,
            tai_minus_utc_s: health.tai_minus_utc_s,
        },
        instrument: [prepared.instrument.name.as_str(), settings.notes.as_deref().unwrap_or("")]
            .join(" ")
            .trim()
            .into(),
        framing: prepared.framing.name().into(),
        config: toml::to_string(settings).unwrap_or_default(),
        pattern_period: Some(u64::from(prepared.instrument.pattern_period)).filter(|period| *period > 0),
        ..RunInfo::new(prepared.configs.iter().map(link).collect())
    };
    Ok(Recorder::create(out, &config, &info, &prepared.regions)?)
}

/// The recorder's thread. Whatever goes wrong, it empties the queue to the end, so that nobody waits for it.
pub(super) fn record(
    recorder: Recorder,
    queue: &Queue,
    books: &OnceLock<shotline_store::shot::Books>,
    live: &Live,
) -> Result<(Report, f64), RunError> {
    let result = record_all(recorder, queue, books, live);
    if result.is_err() {
        live.set_full();
        while !queue.is_finished() {
            if queue.pop().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    result
}

fn record_all(
    mut recorder: Recorder,
    queue: &Queue,
    books: &OnceLock<shotline_store::shot::Books>,
    live: &Live,
) -> Result<(Report, f64), RunError> {
    let mut begun: Option<Instant> = None;
    let mut held: Option<Box<Event>> = None;
    while !(queue.is_finished() && held.is_none()) {
        while held.is_none() {
            let event = queue.pop();
            // After the pop: what was lost before this event is then among them.
            queue.take_losses().into_iter().for_each(|loss| recorder.loss(loss));
            let Some(event) = event else { break };
            begun.get_or_insert_with(Instant::now);
            held = recorder.offer(*event).err().map(Box::new);
        }
        let wait = if queue.is_empty() || held.is_some() { Duration::from_millis(10) } else { Duration::ZERO };
        recorder.poll(Some(wait))?;
        held = held.and_then(|event| recorder.offer(*event).err().map(Box::new));
        live.set_written(recorder.visible());
    }
    queue.take_losses().into_iter().for_each(|loss| recorder.loss(loss));
    let report = recorder.finish(books.get().unwrap_or(&shotline_store::shot::Books::default()))?;
    Ok((report, begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64())))
}

/// The books as a recording keeps them.
pub(super) fn stored_books(
    streams: &[u32],
    books: &[Books],
    times: &[Times],
    unknown: &Books,
) -> shotline_store::shot::Books {
    let stored = |stream: u32, books: &Books| StreamBooks {
        stream,
        packets_in: books.packets,
        packets_placed: books.placed,
        packet_drops: books.packet_drops,
        shots_seen: books.shots,
        shots_complete: books.complete,
        shots_partial: books.partial,
        shot_drops: books.shot_drops,
        more: [
            ("missing_packets", books.packets_missing),
            ("repaired_packets", books.repaired),
            ("icrc_good", books.icrc_good),
            ("icrc_solved", books.icrc_solved),
            ("icrc_unverified", books.icrc_unverified),
            ("sender_restarts", books.restarts),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .to_vec(),
    };
    let mut all = Vec::new();
    for ((stream, books), times) in streams.iter().zip(books).zip(times) {
        let mut stored = stored(*stream, books);
        stored.more.extend(latencies("latency_from_sender", &times.from_sender));
        stored.more.extend(latencies("latency_from_kernel", &times.from_kernel));
        all.push(stored);
    }
    all.push(stored(WHOLE_RUN, unknown));
    shotline_store::shot::Books { streams: all }
}

/// How long complete shots took, as entries of the books.
fn latencies(name: &str, latency: &Latency) -> Vec<(String, u64)> {
    let mut entries = vec![("shots", latency.count())];
    if latency.count() > 0 {
        entries.extend([
            ("min_ns", latency.least_ns()),
            ("p50_ns", latency.percentile_ns(0.5)),
            ("p99_ns", latency.percentile_ns(0.99)),
            ("max_ns", latency.most_ns()),
        ]);
    }
    if latency.negative > 0 {
        entries.push(("negative", latency.negative));
    }
    entries.into_iter().map(|(what, value)| (format!("{name}_{what}"), value)).collect()
}
