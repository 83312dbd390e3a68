//! Where the shots of a run go, and the thread that puts them there.

use super::error::RunError;
use super::files::POST_TRIGGER_S;
use super::prepare::Prepared;
use super::recording::{Recorded, Recording};
use super::shared::Shared;
use super::unseen::{Failed, Unseen};
use super::{capture, files};
use crate::clock::Clock;
use crate::config::{Settings, Sink};
use crate::pretrigger::{PreTrigger, Window};
use shotline_store::pcapng::Live as Capture;
use shotline_store::set::Waker;
use shotline_store::{Set, StoreError};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// The files of a run, laid out.
enum Files<'a> {
    /// Shots are discarded.
    None,
    /// A packet capture.
    Capture(Box<Capture>, &'a Path),
    /// A recording, perhaps only of the shots around triggers.
    Recording(Box<Set>, Option<PreTrigger>),
}

/// The sink of a run.
pub(super) struct Sinks<'a> {
    files: Files<'a>,
    /// Events that the queue to the sink holds.
    pub(super) queue_events: usize,
}

impl<'a> Sinks<'a> {
    /// Creates the files. `local` is the address that packets are sent to.
    ///
    /// # Errors
    /// If one cannot be made, or the pool has no room for what is held before a trigger.
    pub(super) fn open(prepared: &Prepared<'a>, clock: &Clock, local: SocketAddr) -> Result<Self, RunError> {
        let (queue_events, triggers) = triggers(prepared)?;
        let files = match prepared.resolved.sink {
            Sink::Discard => Files::None,
            Sink::Capture(out) => Files::Capture(Box::new(capture::create(prepared, clock, local, out)?), out),
            Sink::Recording(outs) => Files::Recording(Box::new(files::lay_out(prepared, clock, outs)?), triggers),
        };
        Ok(Self { files, queue_events })
    }

    /// Shots that may be handed to the sink. A sender without set-up goes on after the last shot requested. With triggers
    /// only those requested are bounded here, because fewer of them may become rows.
    pub(super) fn rows_left(&self, settings: &Settings) -> u64 {
        let rows = match &self.files {
            Files::Recording(set, None) => set.remaining(),
            Files::None | Files::Capture(..) | Files::Recording(..) => u64::MAX,
        };
        rows.min(settings.shots.unwrap_or(u64::MAX))
    }

    /// What did not go as it should while files were laid out.
    pub(super) fn warnings(&self) -> Vec<String> {
        match &self.files {
            Files::Recording(set, _) => set.warnings().to_vec(),
            Files::None | Files::Capture(..) => Vec::new(),
        }
    }

    /// What wakes the sink's thread, if it sleeps otherwise than for a time.
    pub(super) fn waker(&self) -> Option<Waker> {
        match &self.files {
            Files::Recording(set, _) => Some(set.waker()),
            Files::None | Files::Capture(..) => None,
        }
    }

    /// Starts the sink's thread; none if shots are discarded. If the sink fails or panics, its thread empties the queue.
    pub(super) fn spawn<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        shared: Shared<'scope>,
    ) -> Option<ScopedJoinHandle<'scope, Result<Recorded, Failed>>>
    where
        'a: 'scope,
    {
        match self.files {
            Files::None => None,
            Files::Capture(capture, _) => {
                Some(scope.spawn(move || run(shared, |unseen| capture::record(*capture, shared, unseen))))
            }
            Files::Recording(set, triggers) => {
                let recording = Recording { set: *set, triggers, shared };
                Some(scope.spawn(move || run(shared, |unseen| recording.record(unseen))))
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

/// Runs a sink. If it fails or panics, the rest of the queue is emptied, so that the receive thread never waits for room.
fn run(shared: Shared<'_>, sink: impl FnOnce(&mut Unseen) -> Result<Recorded, StoreError>) -> Result<Recorded, Failed> {
    let mut unseen = Unseen::default();
    // Neither `unseen`, which is lists of plain values, nor what is shared is left half-changed by a panic.
    let error = match catch_unwind(AssertUnwindSafe(|| sink(&mut unseen))) {
        Ok(Ok(recorded)) => return Ok(recorded),
        Ok(Err(error)) => error.into(),
        Err(_) => RunError::Panicked("recorder"),
    };
    let Shared { queue, live, .. } = shared;
    live.set_full();
    // The receive thread does not wait for what was handed over, either.
    live.set_stored(u64::MAX);
    while !queue.is_finished() {
        match queue.pop() {
            Some(event) => unseen.enter(&event),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Err(Failed { error, given_up: unseen.give_up() })
}

/// Events that the queue has room for, and what selects those around triggers.
fn triggers(prepared: &Prepared<'_>) -> Result<(usize, Option<PreTrigger>), RunError> {
    let settings = prepared.resolved.settings;
    let (queue, events) = prepared.queues(settings.pre_trigger)?;
    let window = settings.pre_trigger.map(|before_s| {
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let after_ns = ns(settings.post_trigger.unwrap_or(POST_TRIGGER_S));
        Window { before_ns: ns(before_s), after_ns, events, by: settings.trigger.unwrap_or_default() }
    });
    Ok((queue, window.map(PreTrigger::new)))
}
