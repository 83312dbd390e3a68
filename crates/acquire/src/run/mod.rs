//! A whole run: set up a probe, receive its shots, hand them to a recorder, and close the books.
//!
//! A sender without set-up is listened to instead (`listen`).
//!
//! Three threads: the caller's receives (`stage`); one records (`recording`); one watches the probe over its
//! control connection, so that neither of the others ever waits for an answer.

mod capture;
mod end;
mod listen;
mod prepare;
mod recording;
mod rest;
mod sinks;
mod stage;
mod unseen;

use crate::align::Counts;
use crate::books::{Books, Imbalance};
use crate::clock::{self, Clock, ClockError};
use crate::config::Settings;
use crate::control::{Control, ControlError};
use crate::cpu;
use crate::event::Joiner;
use crate::learn::LearnError;
use crate::live::{Live, Step};
use crate::memory::Memory;
use crate::receiver::{Receiver, ReceiverConfig};
use crate::sink::{Gate, Policy, Queue};
use crate::stages;
use crate::stream::{Ended, StreamConfig, Times};
use crate::watch::Watch;
use end::Shots;
pub use end::{Asked, Cause, End};
use prepare::{Prepared, default_port, pool_bytes};
use rest::Rest;
use shotline_memory::{MemoryError, Pages, Regions, Sge};
use shotline_store::set::Removed;
use shotline_store::{Report, Set, StoreError};
use shotline_transport::{DeviceCounts, IoError, PacketIo};
use shotline_verbs::ud::Ud;
use shotline_wire::setup::{Sequence, Start};
use shotline_wire::shot::{DropCause, Geometry, GeometryError, MAX_SHOTS};
use sinks::Sinks;
use stage::Stage;
use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use unseen::Failed;

/// One incomplete event among so many is worth a warning.
const MOST_INCOMPLETE: u64 = 20;

/// What a run wants of a transport.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The local address.
    pub bind: SocketAddr,
    /// Whether packets end in an ICRC.
    pub sealed: bool,
    /// Whether payload CRC remainders are wanted of packets that do not.
    pub remainders: bool,
    /// Receives that will be posted at once.
    pub capacity: usize,
    /// Registered memory for payloads without a place.
    pub scratch: Sge,
    /// Receive buffer to ask for, in bytes.
    pub receive_buffer: usize,
}

/// A transport for a run.
#[derive(Debug)]
pub struct Opened<P> {
    /// The transport.
    pub io: P,
    /// Where the probe is to send.
    pub local: SocketAddr,
    /// Receive buffer that was granted, in bytes.
    pub receive_buffer: usize,
}

/// Why a run could not begin, or broke off.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Settings that cannot work.
    #[error("{0}")]
    Settings(String),
    /// The shape of a shot.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The probe.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The network.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A sender that takes no set-up.
    #[error(transparent)]
    Learn(#[from] LearnError),
    /// The clock.
    #[error(transparent)]
    Clock(#[from] ClockError),
    /// Memory.
    #[error("{0}; --pool says how much a run takes")]
    Memory(#[from] MemoryError),
    /// The recorder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A defect of this program.
    #[error(transparent)]
    Imbalance(#[from] Imbalance),
    /// A thread of ours is gone.
    #[error("the {0} thread panicked: this is a defect, please report it")]
    Panicked(&'static str),
}

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

/// Runs until the shots asked for have come, the time is over, the probe has ended, or `stop` is set. `open` makes
/// the transport; `live` is kept up to date meanwhile.
pub fn run<P: PacketIo>(
    settings: &Settings,
    stop: &AtomicBool,
    live: &Live,
    open: impl FnOnce(&Wanted, &Regions) -> Result<Opened<P>, IoError>,
) -> Result<Outcome, RunError> {
    settings.check().map_err(RunError::Settings)?;
    settings.cpu.map_or(Ok(()), cpu::check).map_err(RunError::Settings)?;
    if settings.sequential == Some(true) && (settings.policy != Some(Policy::Block) || settings.pre_trigger.is_some()) {
        return Err(RunError::Settings(
            "--sequential stops receiving while the drive writes: that needs --policy block, on a transport with credits, and no --pre-trigger".into(),
        ));
    }
    if settings.out.is_none() && settings.discard != Some(true) {
        return Err(RunError::Settings("name a file to record to with --out, or --discard the shots".into()));
    }
    if let Some(outs) = settings.out.as_ref().filter(|_| settings.discard != Some(true)) {
        recording::check(settings, outs)?;
    }
    let mut memory = Memory::new(pool_bytes(settings))?;
    let probe = match (settings.probe, settings.listen) {
        (Some(probe), None) => probe,
        (None, Some(listen)) => return listen::run(settings, memory, listen, stop, live, open),
        (None, None) => {
            return Err(RunError::Settings(
                "name the probe's set-up address with --probe, or with --listen the address that a sender without set-up sends to".into(),
            ));
        }
        (Some(_), Some(_)) => {
            return Err(RunError::Settings(
                "give one of --probe and --listen: a sender takes set-up, or does not".into(),
            ));
        }
    };
    memory.settle()?;
    let mut control = Control::open(probe, settings.take_over.unwrap_or(false))?;
    control.ask_until(Some(stop));
    let mut prepared = Prepared::for_probe(settings, &memory, &mut control)?;
    let bind = match settings.bind {
        Some(bind) => bind,
        None => SocketAddr::new(control.local_ip()?, default_port(prepared.framing.sealed())),
    };
    let Opened { io, local, receive_buffer } = open(&prepared.wanted(settings, &memory, bind), &memory.regions)?;
    let origin = |control| Origin { control: Some(control), local, receive_buffer, learned: None };
    if let Some(queue_pair) = io.queue_pair() {
        prepared.configure_device(settings, &mut control, local, queue_pair)?;
        sequence(settings, &mut control)?;
        receive(settings, prepared, origin(control), io, stop, live)
    } else if prepared.framing.sealed() {
        let mut io = Ud::new(io);
        for link in 0..prepared.configs.len() {
            let pair = io.create()?;
            prepared.configure(&mut control, link, local, (pair.number, pair.q_key))?;
            prepared.configs[link].key = pair.number;
        }
        sequence(settings, &mut control)?;
        receive(settings, prepared, origin(control), io, stop, live)
    } else {
        for link in 0..prepared.configs.len() {
            prepared.configure(&mut control, link, local, (0, 0))?;
            prepared.configs[link].key = prepared.configs[link].stream;
        }
        sequence(settings, &mut control)?;
        receive(settings, prepared, origin(control), io, stop, live)
    }
}

/// Tells the probe the transmit events, once it is ours.
fn sequence(settings: &Settings, control: &mut Control<'_>) -> Result<(), RunError> {
    let Some(events) = &settings.transmit_sequence else { return Ok(()) };
    let sequence = Sequence::new(events).map_err(|error| RunError::Settings(error.to_string()))?;
    control.sequence(sequence)?;
    Ok(())
}

/// Has the probe start, if it has numbers for the shots asked for; returns the first. Shots without end go on to the last
/// number that there is.
fn begin(control: &mut Control<'_>, start: Start) -> Result<u64, RunError> {
    // Asked before: once it has begun, it uses numbers up.
    let first = control.status(0)?.next_shot;
    if first.saturating_add(start.shots.max(1)) > MAX_SHOTS {
        let shots = if start.shots > 0 { format!(" and {} shots were asked for", start.shots) } else { String::new() };
        return Err(RunError::Settings(format!(
            "the probe begins with shot {first}{shots}, numbers stay below 2^48: reset it"
        )));
    }
    // A probe that may run is stopped, however often it must be asked.
    control.ask_until(None);
    Ok(control.start(start)?)
}

/// Where shots come from.
struct Origin<'a> {
    /// The conversation with the probe, if it takes set-up.
    control: Option<Control<'a>>,
    /// Where packets come to.
    local: SocketAddr,
    receive_buffer: usize,
    learned: Option<String>,
}

fn receive<P: PacketIo>(
    settings: &Settings,
    prepared: Prepared,
    mut origin: Origin<'_>,
    io: P,
    stop: &AtomicBool,
    live: &Live,
) -> Result<Outcome, RunError> {
    if prepared.policy == Policy::Block && !io.capabilities().credits {
        return Err(RunError::Settings(
            "the policy block needs a transport with credits; over UDP the kernel would drop packets meanwhile: use drop-newest or drop-oldest".into(),
        ));
    }
    let start = Start { mode: prepared.mode(settings)?, shots: settings.shots.unwrap_or(0) };
    let clock = Arc::new(Clock::open(&settings.clock.clone().unwrap_or_default())?);
    let streams: Vec<u32> = prepared.configs.iter().map(|config| config.stream).collect();
    let sinks = Sinks::open(settings, &prepared, &clock, origin.local)?;
    let rows_left = sinks.rows_left(settings);
    let queue = Queue::new(sinks.queue_events);
    let mut warnings: Vec<String> = sinks.recorder.as_ref().map(|set| set.warnings().to_vec()).unwrap_or_default();
    let mut receiver = Receiver::new(
        io,
        ReceiverConfig {
            framing: prepared.framing,
            streams: prepared.configs.clone(),
            pool: Arc::clone(&prepared.pool),
            regions: prepared.regions.clone(),
            spare: prepared.spare,
            clock: Some(Arc::clone(&clock)),
        },
    );
    if let Some(control) = &mut origin.control {
        let first_shot = match begin(control, start) {
            Ok(first_shot) => first_shot,
            Err(error) => {
                sinks.abandon();
                return Err(error);
            }
        };
        for (index, config) in prepared.configs.iter().enumerate() {
            receiver.reconfigure(index, StreamConfig { first_shot: Some(first_shot), ..*config });
        }
    }

    let Sinks { packets, recorder, triggers: capture, .. } = sinks;
    let watch = Watch::new(if origin.control.is_some() { streams.len() as u8 } else { 0 });
    let books_slot = OnceLock::new();
    let (ran, events, lacked_room, recorded) = std::thread::scope(|scope| {
        let watcher = origin.control.map(|control| scope.spawn(|| watch.follow(control)));
        let waker = recorder.as_ref().map(Set::waker);
        let (queue_of, books) = (&queue, &books_slot);
        let sink = recorder.map(|set| {
            let recording = recording::Recording { set, capture, queue: queue_of, books, live };
            scope.spawn(move || recording.run())
        });
        let sink = sink.or(packets.map(|sink| scope.spawn(move || capture::record(sink, queue_of, books, live))));
        let wake = || {
            if let Some(waker) = &waker {
                waker.wake();
            }
        };
        // From here on a panic of this thread lets the others end.
        let closing = Closing { queue: &queue, watch: &watch, wake: &wake };
        if let Some(cpu) = settings.cpu {
            warnings.extend(cpu::pin(cpu).err());
        }
        let mut stage = Stage {
            receiver: &mut receiver,
            joiner: Joiner::new(&streams, prepared.alignment(settings)),
            gate: sink.as_ref().map(|_| Gate::new(Arc::clone(&queue), prepared.policy)),
            wake: &wake,
            items: Vec::with_capacity(64),
            arriving: VecDeque::with_capacity(64),
            listened_ns: 0,
            blocked: None,
            rows_left,
            live,
            busy_poll: settings.busy_poll.unwrap_or(false),
            clock: &clock,
            asked: Asked::of(settings),
            idle: settings.idle_s.map(Duration::from_secs_f64),
            events: 0,
            sequential: settings.sequential.unwrap_or(false),
            handed: 0,
            rest: Rest::new(origin.receive_buffer, prepared.geometry.cut().rest, Instant::now()),
        };
        live.listens(origin.local);
        let ran = stage.run(stop, &watch);
        watch.stop();
        stage.finish(&watch);
        // Some of the last shots may have found no room only now.
        let (events, lacked_room) = (stage.events, stage.lacks_room());
        let books: Vec<Books> = (0..streams.len()).map(|index| *receiver.books(index)).collect();
        let (device, counters) = (receiver.io().device(), receiver.io().counters());
        let _ = books_slot.set(recording::stored_books(
            &streams,
            &books,
            &times(&receiver, streams.len()),
            (receiver.unknown(), device, &counters),
            &live.step(),
        ));
        drop(closing);
        let recorded = match sink.map(|sink| sink.join()) {
            None => Ok(None),
            Some(Ok(recorded)) => recorded.map(Some),
            Some(Err(_)) => Err(Failed { error: RunError::Panicked("recorder"), given_up: Vec::new() }),
        };
        if let Some(Err(_)) = watcher.map(|watcher| watcher.join()) {
            return Err(RunError::Panicked("watch"));
        }
        Ok((ran, events, lacked_room, recorded))
    })?;
    let (recorded, lost, ended) = match recorded {
        Ok(recorded) => (recorded, Vec::new(), ran.ended.map_err(|error| (Cause::TransportFailed, error))),
        Err(Failed { error, given_up }) => (None, given_up, Err((Cause::RecorderFailed, error))),
    };
    let write_seconds = recorded.as_ref().map_or(0.0, |recorded| recorded.seconds);
    let triggers = recorded.as_ref().and_then(|recorded| recorded.triggers);
    let finished = recorded.map(|recorded| recorded.finished);
    warnings.extend(finished.iter().flat_map(|finished| finished.report.warnings.iter().cloned()));
    warnings.extend(watch.warnings());
    warnings.extend(ending(&receiver));
    let step = Some(live.step()).filter(|_| streams.len() > 1);
    warnings.extend(step.as_ref().and_then(|step| incomplete(step, settings)));
    let mut told = HashSet::new();
    warnings.retain(|warning| told.insert(warning.clone()));
    let mut books: Vec<Books> = (0..streams.len()).map(|index| *receiver.books(index)).collect();
    let mut lacked_room = lacked_room;
    for given in finished.iter().flat_map(|finished| &finished.given_up).chain(&lost) {
        lacked_room |= given.cause == DropCause::SinkFull;
        books[given.link].take_back(given.complete, given.partial, given.cause);
    }
    let without_room = books.iter().map(|books| books.shot_drops.get(DropCause::SinkFull)).max().unwrap_or(0);
    let shots = Shots { received: events, without_room, lacked_room };
    let end = End::of(Asked::of(settings), shots, ran.elapsed, ended);
    let outcome = Outcome {
        sent: watch.reports().unwrap_or_default().to_vec(),
        streams: books,
        unknown: *receiver.unknown(),
        device: receiver.io().device(),
        end,
        seconds: ran.seconds,
        local: origin.local,
        rows: finished.as_ref().map_or_else(|| live.read().rows, |finished| finished.report.rows),
        removed: finished.as_ref().map(|finished| finished.removed).unwrap_or_default(),
        report: finished.map(|finished| finished.report),
        triggers,
        write_seconds,
        geometry: prepared.geometry,
        receive_buffer: origin.receive_buffer,
        times: times(&receiver, streams.len()),
        clock: (clock.source().clone(), clock.refresh()),
        learned: origin.learned,
        pages: prepared.pool.region().pages(),
        pool_bytes: prepared.pool.region().len(),
        stages: live.stages(),
        events: step,
        warnings,
    };
    outcome.total().balance()?;
    Ok(outcome)
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
fn ending<P: PacketIo>(receiver: &Receiver<P>) -> Option<String> {
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

fn times<P: PacketIo>(receiver: &Receiver<P>, streams: usize) -> Vec<Times> {
    (0..streams).map(|index| receiver.times(index).clone()).collect()
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
