//! A whole run: set up a probe, receive its shots, hand them to a recorder, and close the books.
//!
//! A sender without set-up is listened to instead (`listen`).
//!
//! Three threads: the caller's receives (`stage`); one records (`recording`); one watches the probe over its
//! control connection, so that neither of the others ever waits for an answer.

mod capture;
mod listen;
mod prepare;
mod recording;
mod rest;
mod stage;

use crate::books::{Books, Imbalance};
use crate::clock::{self, Clock, ClockError};
use crate::config::Settings;
use crate::control::{Control, ControlError};
use crate::event::Joiner;
use crate::learn::LearnError;
use crate::live::Live;
use crate::memory::Memory;
use crate::receiver::{Receiver, ReceiverConfig};
use crate::sink::{Gate, Policy, Queue};
use crate::stages;
use crate::stream::{StreamConfig, Times};
use crate::watch::Watch;
use prepare::{Prepared, default_port, pool_bytes};
use rest::Rest;
use shotline_memory::{MemoryError, Pages, Regions, Sge};
use shotline_store::set::Removed;
use shotline_store::{Report, Set, StoreError};
use shotline_transport::{DeviceCounts, IoError, PacketIo};
use shotline_verbs::ud::Ud;
use shotline_wire::setup::{Sequence, Start};
use shotline_wire::shot::{Geometry, GeometryError, MAX_SHOTS};
use stage::Stage;
use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

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
    #[error(transparent)]
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
    /// From the first packet to the last, in seconds.
    pub seconds: f64,
    /// The recorder's report, unless shots were discarded.
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
    for (name, seconds) in [("--seconds", settings.seconds), ("--idle-s", settings.idle_s)] {
        if let Some(seconds) = seconds.filter(|seconds| !(0.0..=1e9).contains(seconds)) {
            return Err(RunError::Settings(format!("expected {name} from 0 to 1e9 s, found {seconds}")));
        }
    }
    settings.check().map_err(RunError::Settings)?;
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
    let memory = Memory::new(pool_bytes(settings))?;
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
    let mut control = Control::open(probe, settings.take_over.unwrap_or(false))?;
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
fn sequence(settings: &Settings, control: &mut Control) -> Result<(), RunError> {
    let Some(events) = &settings.transmit_sequence else { return Ok(()) };
    let sequence = Sequence::new(events).map_err(|error| RunError::Settings(error.to_string()))?;
    control.sequence(sequence)?;
    Ok(())
}

/// Where shots come from.
struct Origin {
    /// The conversation with the probe, if it takes set-up.
    control: Option<Control>,
    /// Where packets come to.
    local: SocketAddr,
    receive_buffer: usize,
    learned: Option<String>,
}

fn receive<P: PacketIo>(
    settings: &Settings,
    prepared: Prepared,
    mut origin: Origin,
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
    let outs = settings.out.as_ref().filter(|_| settings.discard != Some(true));
    outs.map_or(Ok(()), |outs| capture::check(settings, outs))?;
    let packets = match outs.map(Vec::as_slice) {
        Some([out]) if capture::is_capture(out) => {
            Some(capture::create(settings, &prepared, &clock, origin.local, out)?)
        }
        _ => None,
    };
    let (queue_events, capture) = recording::capture(settings, &prepared)?;
    let mut recorder = match outs {
        Some(outs) if packets.is_none() => Some(recording::recorder(settings, &prepared, &clock, outs)?),
        _ => None,
    };
    // Which of the shots become rows only the capture knows.
    let rows_left = recorder.as_ref().filter(|_| capture.is_none()).map_or(u64::MAX, Set::remaining);
    let queue = Queue::new(queue_events);
    let mut warnings: Vec<String> = recorder.as_ref().map(|recorder| recorder.warnings().to_vec()).unwrap_or_default();
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
        let begun = control.start(start).map_err(RunError::from).and_then(|first| match first {
            0..MAX_SHOTS => Ok(first),
            _ => Err(RunError::Settings(format!(
                "the probe begins with shot {first}, numbers stay below 2^48: reset it"
            ))),
        });
        let first_shot = begun.inspect_err(|_| {
            // A run that never began leaves no file.
            if let Some(set) = recorder.take() {
                set.abandon();
            } else if let (Some(_), Some([out])) = (&packets, outs.map(Vec::as_slice)) {
                let _ = std::fs::remove_file(out);
            }
        })?;
        for (index, config) in prepared.configs.iter().enumerate() {
            receiver.reconfigure(index, StreamConfig { first_shot: Some(first_shot), ..*config });
        }
    }

    let watch = Watch::new(if origin.control.is_some() { streams.len() as u8 } else { 0 });
    let books_slot = OnceLock::new();
    let (received, report) = std::thread::scope(|scope| {
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
            pin(cpu, &mut warnings);
        }
        let deadline =
            settings.seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
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
            most_events: settings.shots.filter(|shots| *shots > 0).unwrap_or(u64::MAX),
            idle: settings.idle_s.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 1e9))),
            events: 0,
            sequential: settings.sequential.unwrap_or(false),
            handed: 0,
            rest: Rest::new(origin.receive_buffer, prepared.geometry.cut().rest, Instant::now()),
        };
        let received = stage.run(stop, deadline, &watch);
        watch.stop();
        let ended = stage.finish(&watch);
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
        let report = match sink.map(|sink| sink.join()) {
            None => Ok(None),
            Some(Ok(report)) => report.map(Some),
            Some(Err(_)) => Err(RunError::Panicked("recorder")),
        };
        let watched = watcher.map_or(Ok(()), |watcher| watcher.join().map_err(|_| RunError::Panicked("watch")));
        let received = received.and_then(|seconds| ended.and(watched).map(|()| seconds));
        (received, report)
    });
    let (seconds, recorded) = (received?, report?);
    let write_seconds = recorded.as_ref().map_or(0.0, |recorded| recorded.seconds);
    let triggers = recorded.as_ref().and_then(|recorded| recorded.triggers);
    let finished = recorded.map(|recorded| recorded.finished);
    warnings.extend(finished.iter().flat_map(|finished| finished.report.warnings.iter().cloned()));
    warnings.extend(watch.warnings());
    if receiver.has_changed() {
        warnings.push(
            "the sender's context tells another sample rate or format: the recording ends there, run again for what follows".into(),
        );
    }
    let mut told = HashSet::new();
    warnings.retain(|warning| told.insert(warning.clone()));
    let mut books: Vec<Books> = (0..streams.len()).map(|index| *receiver.books(index)).collect();
    for given in finished.iter().flat_map(|finished| &finished.given_up) {
        books[given.link].take_back(given.complete, given.partial, given.cause);
    }
    let outcome = Outcome {
        sent: watch.reports().to_vec(),
        streams: books,
        unknown: *receiver.unknown(),
        device: receiver.io().device(),
        seconds,
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
        warnings,
    };
    outcome.total().balance()?;
    Ok(outcome)
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

fn pin(cpu: u32, warnings: &mut Vec<String>) {
    let mut set = rustix::thread::CpuSet::new();
    if cpu as usize >= rustix::thread::CpuSet::MAX_CPU {
        warnings.push(format!("cannot run on processor {cpu}: there is none"));
        return;
    }
    set.set(cpu as usize);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        warnings.push(format!("cannot run on processor {cpu}: {error}"));
    }
}
