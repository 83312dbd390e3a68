//! The loop that serves a card.

use super::dma::Maps;
use super::error::{CardError, End};
use super::guest::Guest;
use super::send::Sent;
use super::session::Session;
use super::socket::{Listener, refuse, wait};
use super::window::SEND_QUEUES;
use super::wire::{Incoming, Sink, Source};
use rustix::fd::AsFd;
use shotline_rtl::card::{CHANNELS, Counters, Device, Distributed};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Clocks between two looks at the window.
const LOOK: u64 = 16;
/// Looks at the window between two at the sockets.
const LOOKS: u64 = 32;
/// Frames that are queued ahead.
const AHEAD: usize = 64;
/// Idle time in nanoseconds from which on it is not simulated.
const IDLE_NS: u64 = 100_000;
/// Time between two looks while the card is idle, and without a driver.
const IDLE: Duration = Duration::from_micros(50);
const ALONE: Duration = Duration::from_millis(100);
/// Clocks until the last frames of a connection must be decided on.
const LIMIT: u64 = 2_000_000;
/// Clocks after which frames that are not decided on are counted again.
const RECOUNT: u64 = 1000;

/// Configuration of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Rate of the wire in Gbit/s, at most [`MAX_GBPS`](shotline_rtl::card::MAX_GBPS).
    pub gbps: f64,
    /// TAI time of the first frame in nanoseconds, unless the card's time is later.
    pub start_ns: u64,
    /// Channels that must run before the first frame comes.
    pub channels: usize,
    /// Frames wait until all channels that run have descriptors for them.
    pub pause: bool,
    /// The server ends when the first driver has gone.
    pub once: bool,
    /// Seed of the latencies of the bus.
    pub seed: u64,
}

/// What happened, to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A driver has connected.
    Connected {
        /// Number of its process, 0 if it is not known.
        pid: i32,
    },
    /// A second driver was turned away.
    Refused,
    /// The driver has gone.
    Disconnected {
        /// The rule that it broke, if it was disconnected.
        broken: Option<String>,
    },
    /// All frames of the source have been sent, and each has been received or counted as dropped.
    Decided {
        /// Their number since the driver connected.
        frames: u64,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { pid } => write!(f, "a driver has connected (process {pid})"),
            Self::Refused => f.write_str("a second driver was turned away: the card has one"),
            Self::Disconnected { broken: None } => f.write_str("the driver has disconnected"),
            Self::Disconnected { broken: Some(rule) } => write!(f, "the driver was disconnected: {rule}"),
            Self::Decided { frames } => write!(f, "frames: all sent and decided ({frames})"),
        }
    }
}

/// Counters of all connections.
#[derive(Clone, Debug, PartialEq)]
pub struct Totals {
    /// Drivers that connected.
    pub connections: u64,
    /// Frames that came over the wire.
    pub frames: u64,
    /// What became of them in the distributor.
    pub distributed: Distributed,
    /// Packets of the delivered ones, by channel.
    pub channels: Vec<Counters>,
    /// Frames that software sent, by queue.
    pub sent: Vec<Sent>,
    /// Clocks that were simulated.
    pub clocks: u64,
    /// Time since the first frame in seconds, with time that was not simulated.
    pub simulated_s: f64,
}

/// Where a card and its driver meet.
#[derive(Debug)]
enum Place {
    Socket(Listener),
    Guest(Guest),
}

/// A card that waits for drivers.
#[derive(Debug)]
pub struct Server {
    place: Place,
    settings: Settings,
}

impl Server {
    /// Listens at a path. The socket of an earlier process is removed.
    ///
    /// # Errors
    /// If something else is at the path, or the kernel refuses it.
    pub fn bind(path: &Path, settings: Settings) -> Result<Self, CardError> {
        Ok(Self { place: Place::Socket(Listener::bind(path)?), settings })
    }

    /// Opens the memory of a virtual machine, at most 2 GiB of which the first byte has the address 0. `window` is the file
    /// that the driver in the machine sees as the window.
    ///
    /// # Errors
    /// If the memory is not as expected, or cannot be opened.
    pub fn attach(window: &Path, memory: &Path, settings: Settings) -> Result<Self, CardError> {
        Ok(Self { place: Place::Guest(Guest::open(window, memory)?), settings })
    }

    /// Serves one driver after the other, until `stop` is set or, if so configured, the first has gone.
    ///
    /// # Errors
    /// If the RTL breaks a rule, or the source or the sink fails.
    pub fn run(
        &self,
        source: &mut dyn Source,
        sink: &mut dyn Sink,
        stop: &AtomicBool,
        notice: &mut dyn FnMut(Notice),
    ) -> Result<Totals, CardError> {
        let Settings { gbps, seed, .. } = self.settings;
        let device = Device::new(gbps, Maps::default(), 0, seed).map_err(CardError::Rule)?;
        let mut card = Card { settings: self.settings, device, feed: Feed::new(source), totals: Totals::new() };
        while !stop.load(Ordering::Relaxed) {
            let Some(mut session) = self.meet(card.device.memory_mut(), notice)? else { continue };
            let broken = match self.serve(&mut card, &mut session, sink, stop, notice) {
                Ok(()) | Err(End::Gone) => None,
                Err(End::Broken(rule)) => Some(rule),
                Err(End::Card(error)) => return Err(error),
            };
            card.finish(&session, notice)?;
            session.window.close();
            if !stop.load(Ordering::Relaxed) {
                notice(Notice::Disconnected { broken });
            }
            if self.settings.once {
                break;
            }
        }
        Ok(card.totals)
    }

    /// Begins with a driver. Returns `None` if none has come yet, after a while.
    fn meet(&self, maps: &mut Maps, notice: &mut dyn FnMut(Notice)) -> Result<Option<Session>, CardError> {
        let listener = match &self.place {
            Place::Socket(listener) => listener,
            Place::Guest(guest) => return guest.session(maps).map(Some),
        };
        let Some(fd) = listener.accept() else {
            wait(&[listener.as_fd()], ALONE);
            return Ok(None);
        };
        let session = Session::new(fd)?;
        if let Some(session) = &session {
            notice(Notice::Connected { pid: session.pid() });
        }
        Ok(session)
    }

    /// Returns the socket on which drivers connect, if there is one.
    fn listener(&self) -> Option<&Listener> {
        match &self.place {
            Place::Socket(listener) => Some(listener),
            Place::Guest(_) => None,
        }
    }

    /// Serves a driver until it goes, or `stop` is set.
    fn serve(
        &self,
        card: &mut Card<'_>,
        session: &mut Session,
        sink: &mut dyn Sink,
        stop: &AtomicBool,
        notice: &mut dyn FnMut(Notice),
    ) -> Result<(), End> {
        let mut is_idle = true;
        for looks in 0_u64.. {
            let mut is_asked = false;
            if is_idle || looks.is_multiple_of(LOOKS) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                // First, because a driver that has gone may be there again.
                is_asked = session.requests(card.device.memory_mut())?;
                while let Some(second) = self.listener().and_then(Listener::accept) {
                    refuse(&second);
                    notice(Notice::Refused);
                }
            }
            is_idle = card.look(session, sink, notice)? && !is_asked;
            if is_idle {
                let sockets = session.fd().into_iter().chain(self.listener().map(AsFd::as_fd));
                wait(&sockets.collect::<Vec<_>>(), IDLE);
            }
        }
        Ok(())
    }
}

/// Frames of the source on their way to the wire.
struct Feed<'a> {
    source: &'a mut dyn Source,
    /// A frame whose time has not come, or for which there is no room.
    held: Option<Incoming>,
    /// TAI time of the first frame.
    origin_ns: Option<u64>,
    /// Enough channels run, or ran, in this connection.
    started: bool,
    /// It was shown that all frames have been decided on.
    decided: bool,
}

impl<'a> Feed<'a> {
    fn new(source: &'a mut dyn Source) -> Self {
        Self { source, held: None, origin_ns: None, started: false, decided: false }
    }

    fn next(&mut self) -> Result<Option<Incoming>, End> {
        match self.held.take() {
            Some(frame) => Ok(Some(frame)),
            None => self.source.next().map_err(End::frames),
        }
    }

    /// Returns `true` if all frames have been sent, and it was not shown that they have been decided on.
    fn is_decidable(&self) -> bool {
        self.started && !self.decided && self.held.is_none() && self.source.is_over()
    }
}

/// The card with its wire.
struct Card<'a> {
    settings: Settings,
    device: Device<Maps>,
    feed: Feed<'a>,
    totals: Totals,
}

impl Card<'_> {
    /// Does what is to be done, and runs for some clocks. Returns `true` if the card was and is idle.
    fn look(
        &mut self,
        session: &mut Session,
        sink: &mut dyn Sink,
        notice: &mut dyn FnMut(Notice),
    ) -> Result<bool, End> {
        let is_touched = session.look(&mut self.device, sink)?;
        let quiet = Device::<Maps>::idle_clocks(session.channels.longest_time());
        let is_idle = !is_touched && self.device.quiet() > quiet;
        if is_idle {
            session.channels.idle();
            self.device.skip_to(self.feed.source.now_ns());
        }
        if self.feed(session, is_idle)? {
            return self.run(LOOK).map(|()| false);
        }
        if !is_idle {
            return self.run(LOOK).map(|()| false);
        }
        if self.feed.is_decidable() {
            let counted = self.count(|| session.window.beat()).map_err(CardError::Rule)?;
            if !self.is_decided(&counted, notice) {
                self.run(RECOUNT)?;
            }
        }
        Ok(true)
    }

    fn run(&mut self, clocks: u64) -> Result<(), End> {
        (0..clocks).try_for_each(|_| self.device.tick()).map_err(End::rule)
    }

    /// Puts frames on the wire. Returns `true` if there were some.
    fn feed(&mut self, session: &mut Session, is_idle: bool) -> Result<bool, End> {
        let runs = session.channels.running() >= self.settings.channels;
        // Idle: all descriptors that were given have been fetched.
        self.feed.started |= is_idle && runs;
        if !self.feed.started && !runs {
            self.feed.source.discard();
        }
        if !self.feed.started || (self.settings.pause && !runs) {
            return Ok(false);
        }
        let mut any = false;
        while self.device.waiting() < AHEAD {
            let Some(frame) = self.feed.next()? else { break };
            let origin_ns = *self.feed.origin_ns.get_or_insert_with(|| {
                self.device.skip_to(self.settings.start_ns);
                self.device.now_ns()
            });
            let at_ns = origin_ns.saturating_add(frame.at_ns);
            let is_far = at_ns > self.device.now_ns().saturating_add(IDLE_NS);
            let must_wait = is_far && (!is_idle || any);
            if must_wait || (self.settings.pause && !session.channels.reserve(&self.device, frame.bytes.len())) {
                self.feed.held = Some(frame);
                break;
            }
            self.device.skip_to(if is_far { at_ns } else { 0 });
            self.device.send(frame.bytes, at_ns);
            any = true;
        }
        Ok(any)
    }

    /// Shows, if so, that each frame of the source has been counted.
    fn is_decided(&mut self, counted: &(Distributed, Vec<Counters>), notice: &mut dyn FnMut(Notice)) -> bool {
        let (distributed, channels) = counted;
        let decided = channels.iter().map(|counters| counters.total().packets).sum::<u64>();
        let is_decided = distributed.total() == self.device.arrived() && decided == distributed.delivered;
        if is_decided {
            self.feed.decided = true;
            notice(Notice::Decided { frames: self.device.arrived() });
        }
        is_decided
    }

    /// Reads all counters, which takes so long that `beat` must be called meanwhile.
    fn count(&mut self, beat: impl Fn()) -> Result<(Distributed, Vec<Counters>), String> {
        let distributed = self.device.distributed()?;
        let counters = |channel| {
            beat();
            self.device.counters(channel)
        };
        Ok((distributed, (0..CHANNELS).map(counters).collect::<Result<_, _>>()?))
    }

    /// Ends a connection: waits for the last frames, counts, and resets the card.
    fn finish(&mut self, session: &Session, notice: &mut dyn FnMut(Notice)) -> Result<(), CardError> {
        let rule = CardError::Rule;
        *self.device.memory_mut() = Maps::default();
        let end = self.device.clock() + LIMIT;
        while self.device.quiet() <= Device::<Maps>::idle_clocks(0) && self.device.clock() < end {
            self.device.tick().map_err(rule)?;
        }
        let counted = self.count(|| session.window.beat()).map_err(rule)?;
        if self.feed.is_decidable() {
            self.is_decided(&counted, notice);
        }
        let (distributed, channels) = counted;
        let totals = &mut self.totals;
        totals.connections += 1;
        totals.frames += self.device.arrived();
        totals.distributed += distributed;
        totals.channels.iter_mut().zip(channels).for_each(|(sum, counters)| *sum += counters);
        totals.sent.iter_mut().zip(session.send.sent()).for_each(|(sum, sent)| *sum += sent);
        totals.clocks += self.device.clock();
        if let Some(origin_ns) = self.feed.origin_ns {
            totals.simulated_s = (self.device.now_ns() - origin_ns) as f64 / 1e9;
        }
        self.feed.started = false;
        self.device.reset(Maps::default()).map_err(rule)
    }
}

impl Totals {
    fn new() -> Self {
        Self {
            connections: 0,
            frames: 0,
            distributed: Distributed::default(),
            channels: vec![Counters::default(); CHANNELS],
            sent: vec![Sent::default(); SEND_QUEUES],
            clocks: 0,
            simulated_s: 0.0,
        }
    }
}
