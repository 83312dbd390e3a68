//! The sink that writes a packet capture instead of a recording: the file's name ends in `.pcapng`.

use super::error::RunError;
use super::files::run_info;
use super::prepare::Prepared;
use super::recording::Recorded;
use super::shared::Shared;
use super::unseen::Unseen;
use crate::clock::Clock;
use crate::stream::StreamConfig;
use shotline_store::StoreError;
use shotline_store::pcapng::{Ends, Live as Capture};
use shotline_store::set::{Finished, Removed};
use shotline_store::shot::Books;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the sink rests when there is nothing to write.
const REST: Duration = Duration::from_millis(1);

/// Makes the file. `local` is where packets come to.
pub(super) fn create(
    prepared: &Prepared<'_>,
    clock: &Clock,
    local: SocketAddr,
    out: &Path,
) -> Result<Capture, RunError> {
    let ends = |config: &StreamConfig| Ends {
        source: config.source,
        destination: Some(local),
        dest_qp: prepared.framing.sealed().then_some(config.key),
    };
    let ends = prepared.configs.iter().map(ends).collect();
    Ok(Capture::create(out, prepared.resolved.settings.force.unwrap_or(false), run_info(prepared, clock), ends)?)
}

/// Records until the queue is closed and empty.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn record(mut capture: Capture, shared: Shared<'_>, unseen: &mut Unseen) -> Result<Recorded, StoreError> {
    let Shared { queue, books, live } = shared;
    let mut begun: Option<Instant> = None;
    while !queue.is_finished() {
        let event = queue.pop();
        event.iter().for_each(|event| unseen.enter(event));
        queue.take_losses().into_iter().for_each(|loss| capture.loss(loss));
        match event {
            Some(event) => {
                begun.get_or_insert_with(Instant::now);
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
