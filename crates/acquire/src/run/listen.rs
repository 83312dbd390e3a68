//! Senders without set-up: their format is described by settings, or learned from their packets.

use super::error::RunError;
use super::outcome::Outcome;
use super::phases::receive;
use super::prepare::{Instrument, Origin, PreparedRun, check_shape, receive_buffer};
use crate::config::{ResolvedSettings, Settings};
use crate::learn::{self, BufferedIo, Hints, LearnCallbacks, LearnedStream};
use crate::live::{Live, Notice, Refused};
use crate::memory::Memory;
use crate::receiver;
use shotline_backends::{OpenedReceiver, ReceiverParameters};
use shotline_memory::Regions;
use shotline_transport::{IoError, PacketIo};
use shotline_verbs::ud::{QueuePair, Ud};
use shotline_wire::framing::description::SetUp;
use shotline_wire::framing::{Framing, Kind, NoSetUp};
use shotline_wire::shot::{Geometry, GeometryError, Packing};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Number of receives that a backend is opened for while the sender is not learned yet.
const LEARNING_CAPACITY: usize = 1 << 16;
/// Number of receives for blocks of digitizers, which have more packets than any shot.
const BLOCKS_CAPACITY: usize = 1 << 18;

/// Size of the largest pool in bytes that is populated before a port is opened.
const SMALL_POOL: u64 = 256 << 20;

/// Receives from a sender of the framing in the settings.
pub(super) fn run<P: PacketIo>(
    resolved: ResolvedSettings<'_>,
    memory: Memory,
    kind: Kind,
    stop: &AtomicBool,
    live: &Live,
    open: impl FnOnce(&ReceiverParameters, &Regions) -> Result<OpenedReceiver<P>, IoError>,
) -> Result<Outcome, RunError> {
    match kind.description().set_up {
        SetUp::Learned => learned(resolved, memory, kind, stop, live, open),
        SetUp::Optional { .. } | SetUp::Required { .. } => {
            described(resolved, memory, from_settings(resolved.settings, kind)?, stop, live, open)
        }
    }
}

/// Description of a sender without set-up, as an alternative to learning it.
#[derive(Clone, Debug)]
pub struct SenderDescription {
    /// Framing of its packets. [`Framing::key`] returns the link, from 0; of a sealed framing the transport checks the
    /// ICRC.
    pub framing: Arc<dyn Framing>,
    /// Shape of its shots, the same on all links.
    pub geometry: Geometry,
    /// Name of the sender, for the recording.
    pub name: String,
}

/// Returns the description of a sender in the settings.
fn from_settings(settings: &Settings, kind: Kind) -> Result<SenderDescription, RunError> {
    let framing = receiver::framing(kind).ok_or_else(|| RunError::Settings(NoSetUp(kind).to_string()))?;
    let packing = settings.sample_format.unwrap_or(Packing::Packed12);
    let geometry = Geometry::new(
        settings.channels.unwrap_or(96),
        settings.samples.unwrap_or(2000),
        bits(settings, packing),
        packing,
        settings.sample_rate_hz.unwrap_or(0),
    )?;
    Ok(SenderDescription { framing, geometry, name: format!("{kind} sender") })
}

/// Receives from a sender that is described.
pub(super) fn described<P: PacketIo>(
    resolved: ResolvedSettings<'_>,
    mut memory: Memory,
    sender: SenderDescription,
    stop: &AtomicBool,
    live: &Live,
    open: impl FnOnce(&ReceiverParameters, &Regions) -> Result<OpenedReceiver<P>, IoError>,
) -> Result<Outcome, RunError> {
    memory.wait_populated()?;
    let SenderDescription { framing, geometry, name } = sender;
    let (listen, links) = (resolved.sender.address(), resolved.settings.links.unwrap_or(1));
    let instrument = Instrument { name, pattern_period: 0, array: None };
    let mut prepared = PreparedRun::new(resolved, &memory, framing, geometry, links, instrument)?;
    let OpenedReceiver { io, receive_buffer, .. } =
        open(&prepared.receiver_parameters(&memory, listen), &memory.regions)?;
    if io.queue_pair().is_some() {
        return Err(RunError::Settings(
            "a device chooses its queue pair's number, and only set-up can report it to the sender: record from a --probe, or with --transport udp".into(),
        ));
    }
    prepared.use_in_order(&io)?;
    let origin = Origin { control: None, local: listen, receive_buffer, learned: None };
    let Some(first) = resolved.queue_pair else {
        for config in &mut prepared.configs {
            config.key = config.stream;
        }
        return receive(prepared, origin, io, stop, live);
    };
    let mut io = Ud::new(io);
    for config in &mut prepared.configs {
        config.key = first.number + config.stream;
        io.attach(QueuePair { number: config.key, ..first });
    }
    receive(prepared, origin, io, stop, live)
}

/// Learns a sender from its packets, then receives from it.
fn learned<P: PacketIo>(
    resolved: ResolvedSettings<'_>,
    mut memory: Memory,
    kind: Kind,
    stop: &AtomicBool,
    live: &Live,
    open: impl FnOnce(&ReceiverParameters, &Regions) -> Result<OpenedReceiver<P>, IoError>,
) -> Result<Outcome, RunError> {
    let (settings, listen) = (resolved.settings, resolved.sender.address());
    let links = settings.links.unwrap_or(1);
    let parameters = ReceiverParameters {
        bind: listen,
        sealed: kind.description().sealed,
        remainders: kind.description().trailer.has_record(),
        capacity: if kind.description().large_shots { BLOCKS_CAPACITY } else { LEARNING_CAPACITY },
        scratch: memory.scratch,
        receive_buffer: receive_buffer(settings),
        in_order: None, // the shape of the packets is not known yet
    };
    // A small pool is populated quickly; packets that arrive while a large one is populated are examined and discarded.
    if resolved.pool_bytes <= SMALL_POOL {
        memory.wait_populated()?;
    }
    let OpenedReceiver { io, receive_buffer, .. } = open(&parameters, &memory.regions)?;
    if io.queue_pair().is_some() {
        return Err(RunError::Settings(format!("an RDMA device receives datagrams from a --probe, not {kind}")));
    }
    let (learned, io) = learn_sender(&resolved, &memory, kind, io, stop, live)?;
    memory.wait_populated()?;
    let (geometry, description) = common_shape(settings, &learned)?;
    let framing: Arc<dyn Framing> = Arc::clone(&learned[0].framing);
    let instrument = Instrument { name: format!("{kind} sender"), pattern_period: 0, array: None };
    let mut prepared = PreparedRun::new(resolved, &memory, framing, geometry, links, instrument)?;
    let capacity = receiver::capacity(&prepared.configs);
    if capacity > parameters.capacity {
        return Err(RunError::Settings(format!(
            "a window of {} shots of {} packets needs more than {} receives: use a smaller --window",
            prepared.configs[0].window,
            geometry.packets(),
            parameters.capacity
        )));
    }
    for (config, learned) in prepared.configs.iter_mut().zip(learned) {
        config.key = learned.key;
        config.stream = learned.stream.unwrap_or(config.stream);
        config.first_shot = learned.first_shot;
    }
    let origin = Origin { control: None, local: listen, receive_buffer, learned: Some(description) };
    receive(prepared, origin, io, stop, live)
}

/// Examines packets until the sender is learned.
fn learn_sender<P: PacketIo>(
    resolved: &ResolvedSettings<'_>,
    memory: &Memory,
    kind: Kind,
    io: P,
    stop: &AtomicBool,
    live: &Live,
) -> Result<(Vec<LearnedStream>, BufferedIo<P>), RunError> {
    let (settings, listen) = (resolved.settings, resolved.sender.address());
    let (started, seconds) = (Cell::new(None), settings.seconds.map(Duration::from_secs_f64));
    let idle = settings.idle_s.map(Duration::from_secs_f64);
    let ended = |silence: Duration| {
        stop.load(Ordering::Relaxed)
            || seconds.zip(started.get()).is_some_and(|(seconds, started): (_, Instant)| started.elapsed() > seconds)
            || idle.is_some_and(|idle| silence > idle)
    };
    let Settings { pages, samples, sample_rate_hz, .. } = *settings;
    let hints = Hints { pages, samples, sample_rate_hz, streams: settings.links.unwrap_or(1).into() };
    // The port is open, and packets are examined, while the pool is still being populated.
    let ready = || {
        let ready = memory.is_populated();
        if ready {
            live.set_listening(listen);
            started.set(started.get().or_else(|| Some(Instant::now())));
        }
        ready
    };
    let refused =
        |from, why: &str| live.notice(Notice::Refused(Refused { from, framing: kind.to_string(), reason: why.into() }));
    let (callbacks, pool) = (LearnCallbacks { ready, ended, refused }, (&memory.regions, memory.scratch));
    learn::learn(kind, hints, io, pool, callbacks).map_err(|error| error.with_local(listen).into())
}

/// Returns the common shape of all streams' shots, and their description for the user.
fn common_shape(settings: &Settings, learned: &[LearnedStream]) -> Result<(Geometry, String), RunError> {
    let description: Vec<_> = learned.iter().map(|learned| learned.description.as_str()).collect();
    let description = description.join("\n");
    let geometry = shape(settings, &learned[0])?;
    for other in &learned[1..] {
        if shape(settings, other)? != geometry {
            return Err(RunError::Settings(format!(
                "expected streams with the same blocks, found different ones: run one receiver for each kind\n{description}"
            )));
        }
    }
    Ok((geometry, description))
}

/// Returns the shape of a shot, with the sender's bytes and the settings for its samples.
fn shape(settings: &Settings, learned: &LearnedStream) -> Result<Geometry, RunError> {
    let reported = learned.shape;
    if let Some(reported) = reported {
        check_shape(settings, "the sender has", reported)?;
    }
    let packing = settings.sample_format.or(reported.map(|reported| reported.packing)).unwrap_or(Packing::Uint8);
    let channels = settings.channels.or(reported.map(|reported| reported.channels)).unwrap_or(1);
    let bits_all = u64::from(learned.sample_bytes) * 8;
    let instant = u64::from(packing.bits_per_sample()) * u64::from(channels);
    let found = (instant > 0 && bits_all.is_multiple_of(instant)).then(|| bits_all / instant);
    let requested = settings.samples.map(u64::from);
    let samples = found.filter(|found| requested.is_none_or(|requested| requested == *found));
    let Some(samples) = samples.and_then(|samples| u32::try_from(samples).ok()) else {
        return Err(RunError::Settings(format!(
            "received shots of {} bytes: they are not {} of {channels} channels as {}; change --samples, --channels or --sample-format",
            learned.sample_bytes,
            requested.map_or("whole samples".into(), |samples| format!("{samples} samples")),
            packing.name()
        )));
    };
    let rate = settings.sample_rate_hz.or(reported.map(|reported| reported.sample_rate_hz)).unwrap_or(0);
    let bits = settings.bits.or(reported.map(|reported| reported.bits)).unwrap_or(packing.bits_per_sample() as u8);
    Geometry::with_packetization((channels, samples), (bits, packing), rate, learned.trailer, learned.packetization)
        .map_err(|error: GeometryError| error.into())
}

fn bits(settings: &Settings, packing: Packing) -> u8 {
    settings.bits.unwrap_or(packing.bits_per_sample() as u8)
}
