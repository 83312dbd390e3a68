//! The sink that writes a packet capture instead of a recording: the file's name ends in `.pcapng`.

use super::RunError;
use super::prepare::Prepared;
use super::recording::{Recorded, drain};
use super::unseen::{Failed, Unseen};
use crate::clock::Clock;
use crate::config::Settings;
use crate::live::Live;
use crate::sink::Queue;
use crate::stream::StreamConfig;
use shotline_store::StoreError;
use shotline_store::info::{ClockInfo, LinkInfo, RunInfo};
use shotline_store::pcapng::{Ends, Live as Capture};
use shotline_store::set::{Finished, Removed};
use shotline_store::shot::Books;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the sink rests when there is nothing to write.
const REST: Duration = Duration::from_millis(1);

/// Whether shots are to be written as packets.
pub(super) fn is_capture(out: &Path) -> bool {
    out.extension().is_some_and(|ending| ending == "pcapng")
}

/// Refuses what a packet capture cannot do.
pub(super) fn check(settings: &Settings, outs: &[PathBuf]) -> Result<(), RunError> {
    if !outs.iter().any(|out| is_capture(out)) {
        return Ok(());
    }
    let others = [settings.pre_trigger.is_some(), settings.compress.is_some(), super::prepare::rolls(settings)];
    let laid_out = [settings.durable, settings.recycle, settings.buffered].contains(&Some(true))
        || settings.capacity.is_some()
        || settings.commit_ms.is_some();
    if outs.len() > 1 || laid_out || others.contains(&true) {
        return Err(RunError::Settings(
            "a packet capture is one plain file: it has no layout, commits or durability, no compression, rolling or trigger: record to .h5, and make the capture from it with `shotline export`".into(),
        ));
    }
    Ok(())
}

/// Makes the file. `local` is where packets come to.
pub(super) fn create(
    settings: &Settings,
    prepared: &Prepared,
    clock: &Clock,
    local: SocketAddr,
    out: &Path,
) -> Result<Capture, RunError> {
    let link = |config: &StreamConfig| LinkInfo {
        name: format!("{} link {}", prepared.instrument.name, config.stream),
        stream: config.stream,
        geometry: prepared.geometry,
    };
    let ends = |config: &StreamConfig| Ends {
        source: config.source,
        destination: Some(local),
        dest_qp: prepared.framing.sealed().then_some(config.key),
    };
    let health = clock.refresh();
    let info = RunInfo {
        start_tai_ns: clock.now_tai_ns(),
        clock: ClockInfo { tai_minus_utc_s: health.tai_minus_utc_s, ..ClockInfo::default() },
        instrument: prepared.instrument.name.clone(),
        framing: prepared.framing.name().into(),
        ..RunInfo::new(prepared.configs.iter().map(link).collect())
    };
    let ends = prepared.configs.iter().map(ends).collect();
    Ok(Capture::create(out, settings.force.unwrap_or(false), info, ends)?)
}

/// The sink's thread. Whatever goes wrong, it empties the queue to the end, so that nobody waits for it.
pub(super) fn record(
    capture: Capture,
    queue: &Queue,
    books: &OnceLock<Books>,
    live: &Live,
) -> Result<Recorded, Failed> {
    let mut unseen = Unseen::default();
    record_all(capture, queue, books, live, &mut unseen).map_err(|error| drain(queue, live, unseen, error))
}

fn record_all(
    mut capture: Capture,
    queue: &Queue,
    books: &OnceLock<Books>,
    live: &Live,
    unseen: &mut Unseen,
) -> Result<Recorded, StoreError> {
    let mut begun: Option<Instant> = None;
    while !queue.is_finished() {
        let event = queue.pop();
        queue.take_losses().into_iter().for_each(|loss| capture.loss(loss));
        match event {
            Some(event) => {
                begun.get_or_insert_with(Instant::now);
                unseen.enter(&event);
                capture.offer(&event)?;
            }
            None => {
                // In the file is everything, whenever nothing comes.
                capture.flush()?;
                std::thread::sleep(REST);
            }
        }
        unseen.see(capture.rows());
        live.set_written(capture.rows());
    }
    queue.take_losses().into_iter().for_each(|loss| capture.loss(loss));
    let report = capture.finish(books.get().unwrap_or(&Books::default()))?;
    let finished = Finished { report, given_up: Vec::new(), removed: Removed::default() };
    let seconds = begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64());
    Ok(Recorded { finished, seconds, triggers: None })
}
