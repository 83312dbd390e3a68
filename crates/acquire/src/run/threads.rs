//! The threads of a run: the caller's receives, one records, one watches the probe over its control connection, so that
//! neither of the others waits for its answers.

use super::error::RunError;
use super::prepare::{Origin, Prepared};
use super::recording::Recorded;
use super::shared::Shared;
use super::stage::{Output, Ran, Stage};
use super::start::Started;
use super::stored::stored_books;
use super::unseen::Failed;
use super::watch::Watch;
use crate::clock::Clock;
use crate::cpu;
use crate::live::Live;
use crate::receiver::Receiver;
use crate::sink::{Gate, Queue};
use shotline_transport::PacketIo;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread::ScopedJoinHandle;

/// What the threads leave behind.
pub(super) struct ThreadResults<'a, P> {
    pub(super) prepared: Prepared<'a>,
    /// Where packets came to.
    pub(super) local: SocketAddr,
    /// Receive buffer that was granted, in bytes.
    pub(super) receive_buffer: usize,
    pub(super) learned: Option<String>,
    pub(super) clock: Arc<Clock>,
    pub(super) receiver: Receiver<P>,
    pub(super) watch: Watch,
    pub(super) ran: Ran,
    /// Events received.
    pub(super) received: u64,
    /// Whether a shot that was asked for has found no room.
    pub(super) lacked_room: bool,
    /// How the sink did; none: shots were discarded.
    pub(super) recorded: Result<Option<Recorded>, Failed>,
    pub(super) warnings: Vec<String>,
}

/// Receives until the run is over, and waits until everything is in the file.
///
/// # Errors
/// If a thread has panicked. That a transport or a recorder failed is an end, not an error.
pub(super) fn run<'a, P: PacketIo>(
    started: Started<'a, P>,
    stop: &AtomicBool,
    live: &Live,
) -> Result<ThreadResults<'a, P>, RunError> {
    let Started { prepared, origin, clock, mut receiver, sinks } = started;
    let Origin { control, local, receive_buffer, learned } = origin;
    let settings = prepared.settings;
    let (rows_left, waker, mut warnings) = (sinks.rows_left(settings), sinks.waker(), sinks.warnings());
    let queue = Queue::new(sinks.queue_events);
    let books = OnceLock::new();
    let watch = Watch::new(if control.is_some() { prepared.configs.len() as u8 } else { 0 });
    let wake = || waker.iter().for_each(|waker| waker.wake());
    let (ran, received, lacked_room, recorded) = std::thread::scope(|scope| {
        let watcher = control.map(|control| scope.spawn(|| watch.follow(control)));
        let sink = sinks.spawn(scope, Shared { queue: &queue, books: &books, live });
        // From here on a panic of this thread lets the others end.
        let closing = Closing { queue: &queue, watch: &watch, wake: &wake };
        if let Some(cpu) = settings.cpu {
            warnings.extend(cpu::pin(cpu).err());
        }
        let gate = sink.as_ref().map(|_| Gate::new(Arc::clone(&queue), prepared.policy));
        let output = Output { gate, wake: &wake, rows_left, live };
        let mut stage = Stage::new(&prepared, &mut receiver, output, &clock, receive_buffer);
        live.listens(local);
        let ran = stage.run(stop, &watch);
        watch.stop();
        stage.finish(&watch);
        // Some of the last shots may have found no room only now.
        let (received, lacked_room) = (stage.received(), stage.lacks_room());
        let _ = books.set(stored_books(&mut receiver, &prepared.configs, &live.step()));
        drop(closing);
        let recorded = join_sink(sink);
        if let Some(Err(_)) = watcher.map(ScopedJoinHandle::join) {
            return Err(RunError::Panicked("watch"));
        }
        Ok((ran, received, lacked_room, recorded))
    })?;
    Ok(ThreadResults {
        prepared,
        local,
        receive_buffer,
        learned,
        clock,
        receiver,
        watch,
        ran,
        received,
        lacked_room,
        recorded,
        warnings,
    })
}

/// Waits for the sink's thread.
fn join_sink(sink: Option<ScopedJoinHandle<'_, Result<Recorded, Failed>>>) -> Result<Option<Recorded>, Failed> {
    match sink.map(ScopedJoinHandle::join) {
        None => Ok(None),
        Some(Ok(recorded)) => recorded.map(Some),
        Some(Err(_)) => Err(Failed { error: RunError::Panicked("recorder"), given_up: Vec::new() }),
    }
}

/// Lets the other threads end, also when this one panics: they would wait for it for ever.
struct Closing<'a> {
    queue: &'a Queue,
    watch: &'a Watch,
    wake: &'a dyn Fn(),
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.queue.close();
        self.watch.stop();
        (self.wake)();
    }
}
