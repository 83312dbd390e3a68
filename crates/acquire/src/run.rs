//! A whole run: set up a probe, receive its shots, hand them to a recorder, and close the books.
//!
//! Three threads: the caller's receives; one records; one watches the probe over its control connection, so
//! that neither of the others ever waits for an answer.

use crate::books::{Books, Imbalance};
use crate::config::{Bytes, Settings};
use crate::control::{Control, ControlError};
use crate::event::{Joined, Joiner};
use crate::live::Live;
use crate::receiver::{self, Receiver, ReceiverConfig, SPARE_BYTES};
use crate::sink::{Gate, Policy, Queue};
use crate::stream::{Item, StreamConfig};
use crate::watch::Watch;
use shotline_memory::{MemoryError, Pages, Pool, Region, Regions, Registrar, Sge};
use shotline_store::info::{LinkInfo, RunInfo};
use shotline_store::recorder::WHOLE_RUN;
use shotline_store::shot::{Event, StreamBooks};
use shotline_store::{Recorder, RecorderConfig, Report, StoreError};
use shotline_transport::udp::{SCRATCH_BYTES, UdpConfig, UdpIo};
use shotline_transport::{IoError, PacketIo};
use shotline_verbs::ud::Ud;
use shotline_wire::framing::{self, Framing};
use shotline_wire::setup::{Configure, Describe, Mode, Source, Start};
use shotline_wire::shot::{DropCause, Geometry, GeometryError};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Port of plain-UDP shots, so that no analyser takes them for RoCE.
pub const PLAIN_UDP_PORT: u16 = 47911;
/// Shots in the queue to the recorder that the pool should at least have room for.
const LEAST_QUEUE: usize = 4;
/// Batches received between two looks at the clock.
const BATCHES: usize = 32;
/// Rows that a file is laid out for when nobody says how many: its tables grow with them.
const MOST_ROWS: u64 = 200_000;
/// How long to spin for packets before sleeping.
const SPIN: Duration = Duration::from_micros(50);

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
    /// From the first packet to the last, in seconds.
    pub seconds: f64,
    /// The recorder's report, unless shots were discarded.
    pub report: Option<Report>,
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

/// Everything of a run that is settled before the probe is asked to start.
struct Prepared {
    framing: &'static dyn Framing,
    describe: Describe,
    geometry: Geometry,
    configs: Vec<StreamConfig>,
    pool: Arc<Pool>,
    regions: Regions,
    scratch: Sge,
    spare: Sge,
    bind: SocketAddr,
    policy: Policy,
}

/// Runs until the shots asked for have come, the time is over, the probe has ended, or `stop` is set. `live` is
/// kept up to date meanwhile.
pub fn run(settings: &Settings, stop: &AtomicBool, live: &Live) -> Result<Outcome, RunError> {
    if settings.out.is_none() && settings.discard != Some(true) {
        return Err(RunError::Settings("name a file to record to with --out, or --discard the shots".into()));
    }
    let probe =
        settings.probe.ok_or_else(|| RunError::Settings("name the probe's set-up address with --probe".into()))?;
    let mut control = Control::open(probe, settings.take_over.unwrap_or(false))?;
    let prepared = prepare(settings, &mut control)?;
    let io = UdpIo::open(
        &UdpConfig {
            bind: prepared.bind,
            sealed: prepared.framing.sealed(),
            capacity: receiver::capacity(&prepared.configs),
            scratch: prepared.scratch,
            receive_buffer: settings.receive_buffer.unwrap_or(Bytes(256 << 20)).0 as usize,
        },
        &prepared.regions,
    )?;
    let (local, granted) = (io.local_addr(), io.receive_buffer());
    if prepared.framing.sealed() {
        let mut io = Ud::new(io);
        let mut configure = |prepared: &mut Prepared| {
            for link in 0..prepared.configs.len() {
                let pair = io.create()?;
                prepared.configs[link].key = pair.number;
                configure_link(&mut control, prepared, link, local, pair.number, pair.q_key)?;
            }
            Ok::<_, RunError>(())
        };
        let mut prepared = prepared;
        configure(&mut prepared)?;
        receive(settings, prepared, control, io, granted, stop, live)
    } else {
        let mut prepared = prepared;
        for link in 0..prepared.configs.len() {
            prepared.configs[link].key = prepared.configs[link].stream;
            configure_link(&mut control, &mut prepared, link, local, 0, 0)?;
        }
        receive(settings, prepared, control, io, granted, stop, live)
    }
}

fn prepare(settings: &Settings, control: &mut Control) -> Result<Prepared, RunError> {
    let name = settings.framing.as_deref().unwrap_or("ud");
    let known = || framing::ALL.map(|framing| framing.name()).join(", ");
    let framing = framing::by_name(name)
        .ok_or_else(|| RunError::Settings(format!("expected a framing of {}, found {name}", known())))?;
    let describe = control.query()?;
    let links = settings.links.unwrap_or(describe.links);
    if links == 0 || links > describe.links || usize::from(links) > shotline_store::shot::MAX_LINKS {
        return Err(RunError::Settings(format!("the probe has {} links, cannot record {links}", describe.links)));
    }
    let geometry = Geometry::new(
        describe.channels,
        settings.samples.unwrap_or(2000.min(describe.max_samples)),
        describe.bits,
        describe.packing,
        describe.sample_rate_hz,
    )?;
    let packets = u64::from(geometry.packets());
    let config = |stream: u8| StreamConfig {
        stream: stream.into(),
        key: 0,
        geometry,
        source: None,
        first_shot: None,
        first_psn: None,
        window: settings.window.unwrap_or_else(|| 128_u64.div_ceil(packets).max(4)).max(1),
        timeout_ns: settings.timeout_ms.unwrap_or(100).max(1) * 1_000_000,
    };
    let configs: Vec<_> = (0..links).map(config).collect();

    let mut registrar = Registrar::new();
    let pool_bytes = settings.pool.unwrap_or(Bytes(256 << 20)).0;
    let slots = pool_bytes / u64::from(geometry.slot_bytes());
    let least = (receiver::held(&configs) + LEAST_QUEUE * configs.len()) as u64;
    if slots < least {
        return Err(RunError::Settings(format!(
            "a pool of {pool_bytes} bytes holds {slots} shots of {} bytes, assembly and the queue need {least}: --pool {}MiB",
            geometry.slot_bytes(),
            (least * u64::from(geometry.slot_bytes())).div_ceil(1 << 20),
        )));
    }
    let pool = Pool::new(&mut registrar, slots.min(1 << 24) as u32, geometry.slot_bytes())?;
    let mut element = |len: u32| {
        let region = registrar.add(Region::host(len as usize)?);
        Ok::<_, MemoryError>(Sge { region, offset: 0, len })
    };
    let (scratch, spare) = (element(SCRATCH_BYTES)?, element(SPARE_BYTES)?);
    let port = if framing.sealed() { shotline_wire::udp::ROCE_PORT } else { PLAIN_UDP_PORT };
    let bind = match settings.bind {
        Some(bind) => bind,
        None => SocketAddr::new(control.local_ip()?, port),
    };
    let policy = settings.policy.unwrap_or_default();
    Ok(Prepared {
        framing,
        describe,
        geometry,
        configs,
        pool,
        regions: registrar.finish(),
        scratch,
        spare,
        bind,
        policy,
    })
}

fn configure_link(
    control: &mut Control,
    prepared: &mut Prepared,
    link: usize,
    local: SocketAddr,
    dest_qp: u32,
    q_key: u32,
) -> Result<(), RunError> {
    let stream = prepared.configs[link].stream;
    let source: Source = control.configure(Configure {
        link: link as u8,
        framing: framing::id_of(prepared.framing.name()).unwrap_or(0),
        geometry: prepared.geometry,
        destination: local,
        dest_qp,
        q_key,
        stream,
    })?;
    let config = &mut prepared.configs[link];
    // A probe that does not know its own address (it sends from "any") is known by its first packet.
    config.source = Some(source.address).filter(|address| !address.ip().is_unspecified() && address.port() != 0);
    config.first_psn = Some(source.first_psn);
    prepared.describe.pattern_period = source.pattern_period;
    Ok(())
}

fn receive<P: PacketIo>(
    settings: &Settings,
    prepared: Prepared,
    mut control: Control,
    io: P,
    granted: usize,
    stop: &AtomicBool,
    live: &Live,
) -> Result<Outcome, RunError> {
    if prepared.policy == Policy::Block && !io.capabilities().credits {
        return Err(RunError::Settings(
            "the policy block needs a transport with credits; over UDP the kernel would drop packets meanwhile: use drop-newest or drop-oldest".into(),
        ));
    }
    let streams: Vec<u32> = prepared.configs.iter().map(|config| config.stream).collect();
    let room = (prepared.pool.slots() as usize - receiver::held(&prepared.configs)) / streams.len();
    let recorder = match &settings.out {
        Some(out) if settings.discard != Some(true) => Some(recorder(settings, &prepared, out)?),
        _ => None,
    };
    let rows_left = recorder.as_ref().map_or(u64::MAX, Recorder::remaining);
    let in_flight = recorder.as_ref().map_or(0, |_| settings.in_flight.unwrap_or(16) as usize);
    let queue = Queue::new(room.saturating_sub(in_flight.div_ceil(streams.len())).max(1));
    let mut warnings: Vec<String> = recorder.as_ref().map(|recorder| recorder.warnings().to_vec()).unwrap_or_default();
    let mut receiver = Receiver::new(
        io,
        ReceiverConfig {
            framing: prepared.framing,
            streams: prepared.configs.clone(),
            pool: Arc::clone(&prepared.pool),
            regions: prepared.regions.clone(),
            spare: prepared.spare,
        },
    );
    let mode = mode(settings, &prepared)?;
    let start = Start { mode, shots: settings.shots.unwrap_or(0) };
    let first_shot = control.start(start)?;
    for (index, config) in prepared.configs.iter().enumerate() {
        receiver.reconfigure(index, StreamConfig { first_shot: Some(first_shot), ..*config });
    }

    let watch = Watch::new(streams.len() as u8);
    let books_slot = std::sync::OnceLock::new();
    let (received, report) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch.follow(control));
        let waker = recorder.as_ref().map(Recorder::waker);
        let sink = recorder.map(|recorder| {
            let (queue, books) = (&queue, &books_slot);
            scope.spawn(move || record(recorder, queue, books, live).inspect_err(|_| live.set_full()))
        });
        if let Some(cpu) = settings.cpu {
            pin(cpu, &mut warnings);
        }
        let deadline =
            settings.seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
        let mut stage = ReceiveStage {
            receiver: &mut receiver,
            joiner: Joiner::new(&streams),
            gate: sink.as_ref().map(|_| Gate::new(Arc::clone(&queue), prepared.policy)),
            wake: &|| {
                if let Some(waker) = &waker {
                    waker.wake();
                }
            },
            items: Vec::with_capacity(64),
            blocked: None,
            rows_left,
            live,
            busy_poll: settings.busy_poll.unwrap_or(false),
        };
        let received = stage.run(stop, deadline, &watch);
        watch.stop();
        let ended = stage.finish(&watch);
        let books: Vec<Books> = (0..streams.len()).map(|index| *receiver.books(index)).collect();
        let _ = books_slot.set(stored_books(&streams, &books, receiver.unknown()));
        queue.close();
        if let Some(waker) = &waker {
            waker.wake();
        }
        let report = match sink.map(|sink| sink.join()) {
            None => Ok(None),
            Some(Ok(report)) => report.map(Some),
            Some(Err(_)) => Err(RunError::Panicked("recorder")),
        };
        let watched = watcher.join().map_err(|_| RunError::Panicked("watch"));
        let received = received.and_then(|seconds| ended.and(watched).map(|()| seconds));
        (received, report)
    });
    let (seconds, report) = (received?, report?);
    let (report, write_seconds) = report.unzip();
    let write_seconds = write_seconds.unwrap_or(0.0);
    warnings.extend(report.iter().flat_map(|report| report.warnings.iter().cloned()));
    warnings.extend(watch.warnings());
    warnings.dedup();
    let outcome = Outcome {
        sent: watch.reports().to_vec(),
        streams: (0..streams.len()).map(|index| *receiver.books(index)).collect(),
        unknown: *receiver.unknown(),
        seconds,
        report,
        write_seconds,
        geometry: prepared.geometry,
        receive_buffer: granted,
        pages: prepared.pool.region().pages(),
        pool_bytes: prepared.pool.region().len(),
        warnings,
    };
    outcome.total().balance()?;
    Ok(outcome)
}

fn mode(settings: &Settings, prepared: &Prepared) -> Result<Mode, RunError> {
    let shot_bits = f64::from(prepared.geometry.shot_bytes()) * 8.0 * prepared.configs.len() as f64;
    let hz = match (settings.rate_hz, settings.gbps, settings.external_trigger.unwrap_or(false)) {
        (None, None, false) => return Ok(Mode::FreeRunning),
        (None, None, true) => return Ok(Mode::ExternalTrigger),
        (Some(hz), None, false) => hz,
        (None, Some(gbps), false) => gbps * 1e9 / shot_bits,
        _ => return Err(RunError::Settings("give one of --rate-hz, --gbps and --external-trigger".into())),
    };
    if hz.is_finite() && (0.001..=1e9).contains(&hz) {
        Ok(Mode::FixedRate { millihertz: (hz * 1000.0).round() as u64 })
    } else {
        Err(RunError::Settings(format!("expected 0.001 to 1e9 shots/s, found {hz}")))
    }
}

fn recorder(settings: &Settings, prepared: &Prepared, out: &std::path::Path) -> Result<Recorder, RunError> {
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
        in_flight: settings.in_flight.unwrap_or(16),
        direct: settings.buffered != Some(true),
        durable: settings.durable.unwrap_or(false),
        overwrite: settings.force.unwrap_or(false),
        ..RecorderConfig::new(rows)
    };
    let link = |config: &StreamConfig| LinkInfo {
        name: format!("{} link {}", prepared.describe.model, config.stream),
        stream: config.stream,
        geometry: prepared.geometry,
    };
    let info = RunInfo {
        instrument: [prepared.describe.model.as_str(), settings.notes.as_deref().unwrap_or("")].join(" ").trim().into(),
        framing: prepared.framing.name().into(),
        config: toml::to_string(settings).unwrap_or_default(),
        pattern_period: Some(u64::from(prepared.describe.pattern_period)).filter(|period| *period > 0),
        ..RunInfo::new(prepared.configs.iter().map(link).collect())
    };
    Ok(Recorder::create(out, &config, &info, &prepared.regions)?)
}

/// The recorder's thread.
fn record(
    mut recorder: Recorder,
    queue: &Queue,
    books: &std::sync::OnceLock<shotline_store::shot::Books>,
    live: &Live,
) -> Result<(Report, f64), RunError> {
    let mut begun: Option<Instant> = None;
    let mut held: Option<Box<Event>> = None;
    while !(queue.is_finished() && held.is_none()) {
        while held.is_none() {
            match queue.pop() {
                Some(Joined::Event(event)) => {
                    begun.get_or_insert_with(Instant::now);
                    held = recorder.offer(*event).err().map(Box::new);
                }
                Some(Joined::Loss(loss)) => recorder.loss(loss),
                None => break,
            }
        }
        let wait = if queue.is_empty() || held.is_some() { Duration::from_millis(10) } else { Duration::ZERO };
        recorder.poll(Some(wait))?;
        held = held.and_then(|event| recorder.offer(*event).err().map(Box::new));
        live.set_written(recorder.visible());
    }
    let report = recorder.finish(books.get().unwrap_or(&shotline_store::shot::Books::default()))?;
    Ok((report, begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64())))
}

fn stored_books(streams: &[u32], books: &[Books], unknown: &Books) -> shotline_store::shot::Books {
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
    let mut all: Vec<_> = streams.iter().zip(books).map(|(stream, books)| stored(*stream, books)).collect();
    all.push(stored(WHOLE_RUN, unknown));
    shotline_store::shot::Books { streams: all }
}

fn pin(cpu: u32, warnings: &mut Vec<String>) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu as usize);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        warnings.push(format!("cannot run on processor {cpu}: {error}"));
    }
}

/// The receive thread's work.
struct ReceiveStage<'a, P> {
    receiver: &'a mut Receiver<P>,
    joiner: Joiner,
    gate: Option<Gate>,
    wake: &'a dyn Fn(),
    items: Vec<Item>,
    /// Under the policy `block`: what the queue had no room for.
    blocked: Option<Joined>,
    /// Rows that the sink still has room for.
    rows_left: u64,
    live: &'a Live,
    busy_poll: bool,
}

impl<P: PacketIo> ReceiveStage<'_, P> {
    /// Receives until the run is over. Returns the seconds from the first packet to the last.
    fn run(&mut self, stop: &AtomicBool, deadline: Option<Instant>, watch: &Watch) -> Result<f64, RunError> {
        let begun = Instant::now();
        let mut first = None;
        let mut last = begun;
        let mut shown = begun;
        loop {
            let now = Instant::now();
            let packets = if self.blocked.is_none() {
                self.receiver.poll((now - begun).as_nanos() as u64, BATCHES, &mut self.items)?
            } else {
                0
            };
            if packets > 0 {
                first.get_or_insert(now);
                last = now;
            }
            self.hand_on(false);
            if now - shown > Duration::from_millis(20) {
                shown = now;
                self.live.update(&self.receiver.total());
                if stop.load(Ordering::Relaxed)
                    || deadline.is_some_and(|deadline| now > deadline)
                    || self.live.is_full()
                {
                    watch.stop();
                }
                if watch.gone() && now - last > Duration::from_secs(2) {
                    break;
                }
                // The probe has said where it stopped: wait for the stragglers.
                if let Some(ends) = watch.ends() {
                    let all_in = (0..ends.len()).all(|stream| self.receiver.next(stream) >= Some(ends[stream]));
                    if all_in || now - last > Duration::from_millis(250) {
                        break;
                    }
                }
            }
            if packets == 0 && !self.busy_poll && now - last > SPIN {
                self.receiver.io().wait(Duration::from_millis(1))?;
            }
        }
        self.live.update(&self.receiver.total());
        Ok(first.map_or(0.0, |first| (last - first).as_secs_f64()))
    }

    /// Closes all shots and hands on the rest.
    fn finish(&mut self, watch: &Watch) -> Result<(), RunError> {
        let ends: Vec<Option<u64>> = watch.ends().unwrap_or_default().iter().copied().map(Some).collect();
        self.receiver.finish(&ends, &mut self.items);
        self.hand_on(true);
        while self.blocked.is_some() || !self.gate.as_mut().is_none_or(Gate::close) {
            (self.wake)();
            std::thread::sleep(Duration::from_millis(1));
            self.hand_on(true);
        }
        Ok(())
    }

    fn hand_on(&mut self, all: bool) {
        for item in self.items.drain(..) {
            self.joiner.push(item);
        }
        let mut handed = false;
        loop {
            let next = match self.blocked.take() {
                Some(joined) => Some(joined),
                None => self.joiner.pop().or_else(|| if all { self.joiner.flush() } else { None }),
            };
            let Some(joined) = next else { break };
            // Without a gate shots are discarded here, and their buffers are free again.
            let Some(gate) = &mut self.gate else { continue };
            handed = true;
            let is_event = matches!(joined, Joined::Event(_));
            if is_event && self.rows_left == 0 {
                self.live.set_full();
            }
            let receiver = &mut *self.receiver;
            let mut given_up = 0;
            let mut give_up = |event: &Event, cause: DropCause| {
                given_up += 1;
                for (stream, shot) in event.shots.iter().enumerate() {
                    if let Some(shot) = shot {
                        receiver.books_mut(stream).give_up(shot.meta.is_complete(), cause);
                    }
                }
            };
            if let Err(joined) = gate.put(joined, self.rows_left > 0, &mut give_up) {
                self.blocked = Some(joined);
                break;
            }
            self.rows_left = self.rows_left + given_up - u64::from(is_event);
        }
        if handed {
            (self.wake)();
        }
    }
}
