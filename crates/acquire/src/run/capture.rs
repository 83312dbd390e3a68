//! Sink that writes a packet capture: for file names that end in `.pcapng`.

use super::error::RunError;
use super::files::run_info;
use super::prepare::PreparedRun;
use super::recording::RecordingResult;
use super::shared::Shared;
use super::unwritten::Unwritten;
use crate::clock::Clock;
use crate::stream::StreamConfig;
use shotline_store::StoreError;
use shotline_store::pcapng::{Endpoints, LiveCapture as Capture};
use shotline_store::set::{Removed, RunResult};
use shotline_store::shot::RunCounters;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Sleep of the sink while there is nothing to write.
const IDLE_SLEEP: Duration = Duration::from_millis(1);

/// Creates the file. `local` is the address that packets are sent to.
pub(super) fn create(
    prepared: &PreparedRun<'_>,
    clock: &Clock,
    local: SocketAddr,
    out: &Path,
) -> Result<Capture, RunError> {
    let ends = |config: &StreamConfig| Endpoints {
        source: config.source,
        destination: Some(local),
        dest_qp: prepared.framing.has_icrc().then_some(config.key),
    };
    let ends = prepared.configs.iter().map(ends).collect();
    Ok(Capture::create(out, prepared.resolved.settings.force.unwrap_or(false), run_info(prepared, clock), ends)?)
}

/// Records until the queue is closed and empty.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn record(
    mut capture: Capture,
    shared: Shared<'_>,
    unwritten: &mut Unwritten,
) -> Result<RecordingResult, StoreError> {
    let Shared { queue, counters, live } = shared;
    let mut started: Option<Instant> = None;
    while !queue.is_finished() {
        let event = queue.pop();
        event.iter().for_each(|event| unwritten.push(event));
        queue.take_losses().into_iter().for_each(|loss| capture.loss(loss));
        match event {
            Some(event) => {
                started.get_or_insert_with(Instant::now);
                capture.offer(&event)?;
            }
            None => {
                // Flush whenever nothing arrives, so that the file is complete.
                capture.flush()?;
                std::thread::sleep(IDLE_SLEEP);
            }
        }
        unwritten.set_visible(capture.rows());
        live.set_written(capture.rows());
    }
    queue.take_losses().into_iter().for_each(|loss| capture.loss(loss));
    let report = capture.finish(counters.get().unwrap_or(&RunCounters::default()))?;
    let finished = RunResult { report, unrecorded: Vec::new(), removed: Removed::default() };
    let seconds = started.map_or(0.0, |started| started.elapsed().as_secs_f64());
    Ok(RecordingResult { finished, seconds, triggers: None })
}
