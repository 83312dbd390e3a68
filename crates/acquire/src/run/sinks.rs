//! Sink of a run, and its thread.

use super::error::RunError;
use super::files::POST_TRIGGER_S;
use super::prepare::PreparedRun;
use super::recording::{Recording, RecordingResult};
use super::shared::Shared;
use super::unwritten::{SinkFailure, Unwritten};
use super::{capture, files};
use crate::clock::Clock;
use crate::config::{Settings, Sink};
use crate::pretrigger::{PreTrigger, Window};
use shotline_store::pcapng::LiveCapture as Capture;
use shotline_store::set::Waker;
use shotline_store::{RunRecorder, StoreError};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// Files of a run.
enum Files<'a> {
    /// None: shots are discarded.
    None,
    /// A packet capture.
    Capture(Box<Capture>, &'a Path),
    /// A recording, perhaps only of the shots around triggers.
    Recording(Box<RunRecorder>, Option<PreTrigger>),
}

/// Sink of a run.
pub(super) struct Sinks<'a> {
    files: Files<'a>,
    /// Capacity of the queue to the sink, in events.
    pub(super) queue_events: usize,
}

impl<'a> Sinks<'a> {
    /// Creates the files. `local` is the address that packets are sent to.
    ///
    /// # Errors
    /// If one cannot be created, or the pool is too small for the events before a trigger.
    pub(super) fn open(prepared: &PreparedRun<'a>, clock: &Clock, local: SocketAddr) -> Result<Self, RunError> {
        let (queue_events, triggers) = triggers(prepared)?;
        let files = match prepared.resolved.sink {
            Sink::Discard => Files::None,
            Sink::Capture(out) => Files::Capture(Box::new(capture::create(prepared, clock, local, out)?), out),
            Sink::Recording(outs) => Files::Recording(Box::new(files::lay_out(prepared, clock, outs)?), triggers),
        };
        Ok(Self { files, queue_events })
    }

    /// Returns the number of shots that may be handed to the sink. A sender without set-up continues after the last
    /// shot requested. With triggers only the requested shots are a limit, because fewer of them may become rows.
    pub(super) fn rows_remaining(&self, settings: &Settings) -> u64 {
        self.capacity_rows().unwrap_or(u64::MAX).min(settings.shots.unwrap_or(u64::MAX))
    }

    /// Returns the number of rows that the file has space for, if all shots become rows and no further file follows.
    pub(super) fn capacity_rows(&self) -> Option<u64> {
        match &self.files {
            Files::Recording(set, None) => Some(set.remaining()).filter(|rows| *rows < u64::MAX),
            Files::None | Files::Capture(..) | Files::Recording(..) => None,
        }
    }

    /// Returns warnings from the layout of the files.
    pub(super) fn warnings(&self) -> Vec<String> {
        match &self.files {
            Files::Recording(set, _) => set.warnings().to_vec(),
            Files::None | Files::Capture(..) => Vec::new(),
        }
    }

    /// Returns the waker of the sink's thread, if it does not sleep for a fixed time.
    pub(super) fn waker(&self) -> Option<Waker> {
        match &self.files {
            Files::Recording(set, _) => Some(set.waker()),
            Files::None | Files::Capture(..) => None,
        }
    }

    /// Starts the sink's thread; none if shots are discarded. If the sink fails or panics, its thread empties the
    /// queue.
    pub(super) fn spawn<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        shared: Shared<'scope>,
    ) -> Option<ScopedJoinHandle<'scope, Result<RecordingResult, SinkFailure>>>
    where
        'a: 'scope,
    {
        match self.files {
            Files::None => None,
            Files::Capture(capture, _) => {
                Some(scope.spawn(move || run(shared, |unwritten| capture::record(*capture, shared, unwritten))))
            }
            Files::Recording(set, triggers) => {
                let recording = Recording { set: *set, triggers, shared };
                Some(scope.spawn(move || run(shared, |unwritten| recording.record(unwritten))))
            }
        }
    }

    /// Removes the files of a run that never began.
    pub(super) fn abandon(self) {
        match self.files {
            Files::None => {}
            Files::Capture(_, out) => drop(std::fs::remove_file(out)),
            Files::Recording(set, _) => set.abandon(),
        }
    }
}

/// Runs a sink. If it fails or panics, the rest of the queue is emptied, so that the receive thread never waits for
/// space.
fn run(
    shared: Shared<'_>,
    sink: impl FnOnce(&mut Unwritten) -> Result<RecordingResult, StoreError>,
) -> Result<RecordingResult, SinkFailure> {
    let mut unwritten = Unwritten::default();
    // A panic leaves neither `unwritten`, which has lists of plain values, nor the shared state inconsistent.
    let error = match catch_unwind(AssertUnwindSafe(|| sink(&mut unwritten))) {
        Ok(Ok(recorded)) => return Ok(recorded),
        Ok(Err(error)) => error.into(),
        Err(_) => RunError::Panicked("recorder"),
    };
    let Shared { queue, live, .. } = shared;
    live.set_full();
    // The receive thread must not wait for events already handed over, either.
    live.set_stored(u64::MAX);
    while !queue.is_finished() {
        match queue.pop() {
            Some(event) => unwritten.push(&event),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Err(SinkFailure { error, discarded: unwritten.into_discarded() })
}

/// Returns the capacity of the queue in events, and the selection of events around triggers, if it is configured.
fn triggers(prepared: &PreparedRun<'_>) -> Result<(usize, Option<PreTrigger>), RunError> {
    let settings = prepared.resolved.settings;
    let (queue, events) = prepared.queues(settings.pre_trigger)?;
    let window = settings.pre_trigger.map(|before_s| {
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let after_ns = ns(settings.post_trigger.unwrap_or(POST_TRIGGER_S));
        Window { before_ns: ns(before_s), after_ns, events, by: settings.trigger.unwrap_or_default() }
    });
    Ok((queue, window.map(PreTrigger::new)))
}
