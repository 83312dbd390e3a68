//! Senders that take no set-up: what they send is said by settings, or learned from it.

use super::prepare::{Instrument, Prepared, check_shape, framing_of, pool_bytes, receive_buffer};
use super::{Opened, Origin, Outcome, RunError, Wanted, receive};
use crate::config::{Settings, queue_pair};
use crate::learn::{self, Held, Hints, Learned, Until};
use crate::live::{Live, Notice};
use crate::memory::Memory;
use crate::receiver;
use shotline_memory::Regions;
use shotline_transport::{IoError, PacketIo};
use shotline_verbs::ud::{QueuePair, Ud};
use shotline_wire::framing::{self, Digitizer, Framing};
use shotline_wire::shot::{Geometry, GeometryError, Packing};
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Receives that a backend is opened for while the sender is still to be learned.
const LEARNING_CAPACITY: usize = 1 << 16;
/// The same for blocks of digitizers, which have more packets than any shot.
const BLOCKS_CAPACITY: usize = 1 << 18;

/// A pool of so many bytes is filled before a port is opened.
const SMALL_POOL: u64 = 256 << 20;

pub(super) fn run<P: PacketIo>(
    settings: &Settings,
    memory: Memory,
    listen: SocketAddr,
    stop: &AtomicBool,
    live: &Live,
    open: impl FnOnce(&Wanted, &Regions) -> Result<Opened<P>, IoError>,
) -> Result<Outcome, RunError> {
    let asks_for_set_up =
        [settings.rate_hz.is_some(), settings.gbps.is_some(), settings.external_trigger == Some(true)];
    if asks_for_set_up.contains(&true) || settings.bind.is_some() {
        return Err(RunError::Settings(
            "--rate-hz, --gbps, --external-trigger and --bind are for a --probe: a sender that is listened to does as it does, and --listen is the address".into(),
        ));
    }
    match settings.framing.as_deref().unwrap_or("ud") {
        name if learn::can_learn(name) => learned(settings, memory, name, listen, stop, live, open),
        "counted" => Err(RunError::Settings(
            "counted packets say nothing but a count, and only set-up tells where it begins: record from a --probe, or have the sender use ud".into(),
        )),
        _ => told(settings, memory, listen, stop, live, open),
    }
}

/// The sender was described by settings.
fn told<P: PacketIo>(
    settings: &Settings,
    mut memory: Memory,
    listen: SocketAddr,
    stop: &AtomicBool,
    live: &Live,
    open: impl FnOnce(&Wanted, &Regions) -> Result<Opened<P>, IoError>,
) -> Result<Outcome, RunError> {
    memory.settle()?;
    let framing = framing_of(settings)?;
    let packing = packing(settings, Packing::Packed12)?;
    let geometry = Geometry::new(
        settings.channels.unwrap_or(96),
        settings.samples.unwrap_or(2000),
        bits(settings, packing),
        packing,
        settings.sample_rate_hz.unwrap_or(0),
    )?;
    let links = settings.links.unwrap_or(1);
    check_links(links)?;
    let instrument = Instrument { name: format!("{} sender", framing.name()), pattern_period: 0 };
    let mut prepared = Prepared::new(settings, &memory, framing, geometry, links, instrument)?;
    let Opened { io, receive_buffer, .. } = open(&prepared.wanted(settings, &memory, listen), &memory.regions)?;
    if io.queue_pair().is_some() {
        return Err(RunError::Settings(
            "a device chooses its queue pair's number, and only set-up can tell it: record from a --probe, or with --transport udp".into(),
        ));
    }
    let origin = Origin { control: None, local: listen, receive_buffer, learned: None };
    if !framing.sealed() {
        for config in &mut prepared.configs {
            config.key = config.stream;
        }
        return receive(settings, prepared, origin, io, stop, live);
    }
    let (Some(first), Some(q_key)) = (settings.queue_pair, settings.q_key) else {
        return Err(RunError::Settings(
            "say with --queue-pair and --q-key what the sender's ud packets name: a receiver takes no others".into(),
        ));
    };
    let mut io = Ud::new(io);
    for (link, config) in (0..).zip(&mut prepared.configs) {
        config.key = queue_pair(first, link).map_err(RunError::Settings)?;
        io.attach(QueuePair { number: config.key, q_key });
    }
    receive(settings, prepared, origin, io, stop, live)
}

/// The sender is looked at first.
fn learned<P: PacketIo>(
    settings: &Settings,
    mut memory: Memory,
    name: &str,
    listen: SocketAddr,
    stop: &AtomicBool,
    live: &Live,
    open: impl FnOnce(&Wanted, &Regions) -> Result<Opened<P>, IoError>,
) -> Result<Outcome, RunError> {
    let blocks = super::prepare::blocks(settings);
    let links = settings.links.unwrap_or(1);
    if links != 1 && name != Digitizer.name() {
        return Err(RunError::Settings(format!("a {name} sender is one link: run one receiver for each address")));
    }
    check_links(links)?;
    let wanted = Wanted {
        bind: listen,
        sealed: framing::is_sealed(name).unwrap_or(false),
        remainders: name == Digitizer.name(),
        capacity: if blocks { BLOCKS_CAPACITY } else { LEARNING_CAPACITY },
        scratch: memory.scratch,
        receive_buffer: receive_buffer(settings),
    };
    // A small pool is filled in a moment; what comes while a large one is filled is looked at and not kept.
    if pool_bytes(settings) <= SMALL_POOL {
        memory.settle()?;
    }
    let Opened { io, receive_buffer, .. } = open(&wanted, &memory.regions)?;
    if io.queue_pair().is_some() {
        return Err(RunError::Settings(format!("an RDMA device receives datagrams from a --probe, not {name}")));
    }
    let (begun, seconds) = (Cell::new(None), settings.seconds.map(Duration::from_secs_f64));
    let idle = settings.idle_s.map(Duration::from_secs_f64);
    let ended = |silence: Duration| {
        stop.load(Ordering::Relaxed)
            || seconds.zip(begun.get()).is_some_and(|(seconds, begun): (_, Instant)| begun.elapsed() > seconds)
            || idle.is_some_and(|idle| silence > idle)
    };
    let Settings { pages, samples, sample_rate_hz, .. } = *settings;
    let hints = Hints { pages, samples, sample_rate_hz, streams: links.into() };
    // The port is open, and what comes is looked at, while the pool is still being filled with pages.
    let ready = || {
        let ready = memory.is_settled();
        if ready {
            live.listens(listen);
            begun.set(begun.get().or_else(|| Some(Instant::now())));
        }
        ready
    };
    let refused = |from, why: &str| live.notice(Notice::Refused { from, framing: name.into(), why: why.into() });
    let (until, pool) = (Until { ready, ended, refused }, (&memory.regions, memory.scratch));
    let learned = learn::learn(name, hints, io, pool, until);
    let (mut learned, io): (_, Held<P>) = learned.map_err(|error| error.at(listen))?;
    memory.settle()?;
    let (geometry, words) = common_shape(settings, &learned)?;
    // Like the framings of set-up it lives as long as the program: some bytes, once a run.
    let framing: Box<dyn Framing> = std::mem::replace(&mut learned[0].framing, Box::new(Digitizer));
    let framing = Box::leak(framing);
    let instrument = Instrument { name: format!("{name} sender"), pattern_period: 0 };
    let mut prepared = Prepared::new(settings, &memory, framing, geometry, links, instrument)?;
    let capacity = receiver::capacity(&prepared.configs);
    if capacity > wanted.capacity {
        return Err(RunError::Settings(format!(
            "a window of {} shots of {} packets is more than {} receives: give a smaller --window",
            prepared.configs[0].window,
            geometry.packets(),
            wanted.capacity
        )));
    }
    for (config, learned) in prepared.configs.iter_mut().zip(learned) {
        config.key = learned.key;
        config.stream = learned.stream.unwrap_or(config.stream);
        config.first_shot = learned.first_shot;
    }
    let origin = Origin { control: None, local: listen, receive_buffer, learned: Some(words) };
    receive(settings, prepared, origin, io, stop, live)
}

fn check_links(links: u8) -> Result<(), RunError> {
    if links == 0 || usize::from(links) > shotline_store::shot::MAX_LINKS {
        let most = shotline_store::shot::MAX_LINKS;
        return Err(RunError::Settings(format!("expected 1 to {most} links, found {links}")));
    }
    Ok(())
}

/// The shape of the shots of all streams, and what was learned of them in words.
fn common_shape(settings: &Settings, learned: &[Learned]) -> Result<(Geometry, String), RunError> {
    let words: Vec<_> = learned.iter().map(|learned| learned.words.as_str()).collect();
    let words = words.join("\n");
    let geometry = shape(settings, &learned[0])?;
    for other in &learned[1..] {
        if shape(settings, other)? != geometry {
            return Err(RunError::Settings(format!(
                "the streams of one run have the same blocks, and these differ: run one receiver for each kind\n{words}"
            )));
        }
    }
    Ok((geometry, words))
}

/// The bytes that the sender sends as the samples that settings say they are.
fn shape(settings: &Settings, learned: &Learned) -> Result<Geometry, RunError> {
    let told = learned.shape;
    if let Some(told) = told {
        check_shape(settings, "its packets say", told)?;
    }
    let packing = packing(settings, told.map_or(Packing::Uint8, |told| told.packing))?;
    let channels = settings.channels.or(told.map(|told| told.channels)).unwrap_or(1);
    let bits_all = u64::from(learned.sample_bytes) * 8;
    let instant = u64::from(packing.bits_per_sample()) * u64::from(channels);
    let found = (instant > 0 && bits_all.is_multiple_of(instant)).then(|| bits_all / instant);
    let asked = settings.samples.map(u64::from);
    let samples = found.filter(|found| asked.is_none_or(|asked| asked == *found));
    let Some(samples) = samples.and_then(|samples| u32::try_from(samples).ok()) else {
        return Err(RunError::Settings(format!(
            "shots of {} bytes came: they are not {} of {channels} channels as {}; change --samples, --channels or --sample-format",
            learned.sample_bytes,
            asked.map_or("whole samples".into(), |samples| format!("{samples} samples")),
            packing.name()
        )));
    };
    let rate = settings.sample_rate_hz.or(told.map(|told| told.sample_rate_hz)).unwrap_or(0);
    let bits = settings.bits.or(told.map(|told| told.bits)).unwrap_or(packing.bits_per_sample() as u8);
    Geometry::cut_as((channels, samples), (bits, packing), rate, learned.trailer, learned.cut)
        .map_err(|error: GeometryError| error.into())
}

fn packing(settings: &Settings, default: Packing) -> Result<Packing, RunError> {
    let Some(name) = &settings.sample_format else { return Ok(default) };
    let known = || Packing::ALL.map(Packing::name).join(", ");
    Packing::by_name(name)
        .ok_or_else(|| RunError::Settings(format!("expected a sample format of {}, found {name}", known())))
}

fn bits(settings: &Settings, packing: Packing) -> u8 {
    settings.bits.unwrap_or(packing.bits_per_sample() as u8)
}
