//! How a run went.

use super::cause::Cause;
use super::end::{Asked, End, Shots};
use super::error::RunError;
use super::threads::ThreadResults;
use super::unseen::Failed;
use crate::align::Counts;
use crate::books::Books;
use crate::clock;
use crate::config::Settings;
use crate::latency::Times;
use crate::live::{Live, Step};
use crate::receiver::Receiver;
use crate::stages;
use crate::stream::Ended;
use shotline_memory::Pages;
use shotline_store::Report;
use shotline_store::set::Removed;
use shotline_transport::{DeviceCounts, PacketIo};
use shotline_wire::shot::{DropCause, Geometry};
use std::collections::HashSet;
use std::net::SocketAddr;

/// One incomplete event among this number is worth a warning.
const MOST_INCOMPLETE: u64 = 20;

/// How a run went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the probe says that it sent, for each link; empty if it did not answer in the end.
    pub sent: Vec<shotline_wire::setup::Report>,
    /// The books of each stream.
    pub streams: Vec<Books>,
    /// Packets that belong to no stream.
    pub unknown: Books,
    /// Frames that the device below the transport lost before any packet of them was seen.
    pub device: DeviceCounts,
    /// Why and when the run ended.
    pub end: End,
    /// From the first packet to the last, in seconds.
    pub seconds: f64,
    /// Where packets were to come to.
    pub local: SocketAddr,
    /// Rows that readers of the file see.
    pub rows: u64,
    /// The recorder's report, unless shots were discarded, or the recorder failed.
    pub report: Option<Report>,
    /// Triggers of a pre-trigger capture.
    pub triggers: Option<u64>,
    /// What a bounded run has removed.
    pub removed: Removed,
    /// From the first shot handed to the recorder until everything was in the file and flushed, in seconds.
    pub write_seconds: f64,
    /// What the shots looked like.
    pub geometry: Geometry,
    /// Receive buffer that the kernel granted, in bytes of its accounting.
    pub receive_buffer: usize,
    /// What backs the pool.
    pub pages: Pages,
    /// Bytes of the pool.
    pub pool_bytes: usize,
    /// How long the shots of each stream took.
    pub times: Vec<Times>,
    /// The receiver's clock, and how it was in the end.
    pub clock: (clock::Source, clock::Health),
    /// What was learned of a sender that takes no set-up, in words.
    pub learned: Option<String>,
    /// How busy each stage was.
    pub stages: [stages::Reading; 2],
    /// How shots of several links came together.
    pub events: Option<Step>,
    /// What did not go as it should, in words.
    pub warnings: Vec<String>,
}

impl Outcome {
    /// Summarises what the threads leave behind.
    ///
    /// # Errors
    /// If the counters do not balance, which is a defect of this program.
    pub(super) fn of<P: PacketIo>(results: ThreadResults<'_, P>, live: &Live) -> Result<Self, RunError> {
        let ThreadResults {
            prepared,
            local,
            receive_buffer,
            learned,
            clock,
            mut receiver,
            watch,
            ran,
            received,
            mut lacked_room,
            recorded,
            mut warnings,
        } = results;
        let settings = prepared.resolved.settings;
        let (recorded, lost, cause) = match recorded {
            Ok(recorded) => (recorded, Vec::new(), ran.ended),
            Err(Failed { error, given_up }) => (None, given_up, Err((Cause::RecorderFailed, error))),
        };
        let finished = recorded.as_ref().map(|recorded| &recorded.finished);
        let given_up = finished.iter().flat_map(|finished| &finished.given_up).chain(&lost);
        let streams = 0..prepared.configs.len();
        let mut books: Vec<Books> = streams.clone().map(|index| *receiver.books(index)).collect();
        for given in given_up {
            lacked_room |= given.cause == DropCause::SinkFull;
            books[given.link].take_back(given.complete, given.partial, given.cause);
        }
        let without_room = books.iter().map(|books| books.shot_drops.get(DropCause::SinkFull)).max().unwrap_or(0);
        let shots = Shots { received, without_room, lacked_room };
        let events = Some(live.step()).filter(|_| streams.len() > 1);
        warnings.extend(finished.iter().flat_map(|finished| finished.report.warnings.iter().cloned()));
        warnings.extend(watch.warnings());
        warnings.extend(restarts(&receiver));
        warnings.extend(events.as_ref().and_then(|step| incomplete(step, settings)));
        let mut seen = HashSet::new();
        warnings.retain(|warning| seen.insert(warning.clone()));
        let outcome = Self {
            sent: watch.reports().unwrap_or_default().to_vec(),
            streams: books,
            unknown: *receiver.unknown(),
            device: receiver.io().device(),
            end: End::of(Asked::of(settings), shots, ran.elapsed, cause),
            seconds: ran.seconds,
            local,
            rows: finished.map_or_else(|| live.read().rows, |finished| finished.report.rows),
            removed: finished.map(|finished| finished.removed).unwrap_or_default(),
            triggers: recorded.as_ref().and_then(|recorded| recorded.triggers),
            write_seconds: recorded.as_ref().map_or(0.0, |recorded| recorded.seconds),
            report: recorded.map(|recorded| recorded.finished.report),
            geometry: prepared.geometry,
            receive_buffer,
            times: streams.map(|index| receiver.times(index).clone()).collect(),
            clock: (clock.source().clone(), clock.refresh()),
            learned,
            pages: prepared.pool.region().pages(),
            pool_bytes: prepared.pool.region().len(),
            stages: live.stages(),
            events,
            warnings,
        };
        outcome.total().balance()?;
        Ok(outcome)
    }

    /// All books together.
    pub fn total(&self) -> Books {
        self.streams.iter().fold(self.unknown, |mut total, books| {
            total.merge(books);
            total
        })
    }
    /// Payload received into place, in Gbit/s from the first packet to the last.
    pub fn receive_gbps(&self) -> f64 {
        if self.seconds > 0.0 { self.total().placed_bytes as f64 * 8.0 / self.seconds / 1e9 } else { 0.0 }
    }
    /// Slots recorded, in Gbit/s, flushing included.
    pub fn write_gbps(&self) -> f64 {
        match &self.report {
            Some(report) if self.write_seconds > 0.0 => report.bytes as f64 * 8.0 / self.write_seconds / 1e9,
            _ => 0.0,
        }
    }
}

/// Says so where more events than [`MOST_INCOMPLETE`] lack a link.
fn incomplete(step: &Step, settings: &Settings) -> Option<String> {
    let Counts { complete, partial, dropped, .. } = step.events;
    let (all, lacking) = (complete + partial + dropped, partial + dropped);
    if lacking * MOST_INCOMPLETE <= all {
        return None;
    }
    let window = (step.window_ns > 0).then(|| {
        let by = if settings.align_window.is_some() { "as --align-window says" } else { "chosen: --align-window" };
        format!("; stamps were put together within {:.1} us ({by})", step.window_ns as f64 / 1e3)
    });
    Some(format!(
        "{lacking} of {all} events are incomplete, a link is missing in each: /books has events_missed of each link{}",
        window.unwrap_or_default()
    ))
}

/// What became of senders that did not go on as they were, in words.
fn restarts<P: PacketIo>(receiver: &Receiver<P>) -> Option<String> {
    Some(match (receiver.ended(), receiver.total().restarts) {
        (Some(Ended::Other), _) => {
            "the sender's context tells another sample rate or format: the recording ends there, run again for what follows".into()
        }
        (Some(Ended::Anew), _) => {
            "a sender has begun to count anew, and its shots carry numbers that this recording has already: the recording ends there, run again for what follows".into()
        }
        (None, 0) => return None,
        (None, restarts) => format!(
            "the sender has begun to count anew ({restarts} times): its shots go on with numbers of this recording; /losses has what came until that was certain as {}",
            DropCause::SenderRestart
        ),
    })
}
