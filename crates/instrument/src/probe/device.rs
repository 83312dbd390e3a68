//! The probe itself: what it answers, and what it sends.

use super::faults::{FaultCounts, Injected, Random};
use super::link::{Link, LinkCounts, Target};
use super::pace::{Next, PaceCounts, Pacer, Timing};
use super::prebuilt::Prebuilt;
use super::samples::{SampleError, Source, SourceReport};
use super::{Config, ConfigError};
use arrayvec::ArrayVec;
use serde::Serialize;
use shotline_memory::{MemoryError, Regions, Registrar};
use shotline_transport::{IoError, PacketIo};
use shotline_wire::framing;
use shotline_wire::record::Record;
use shotline_wire::setup::{
    self, Acknowledgement, Body, Configure, Describe, LEN, Message, Mode, Model, Refusal, Reply, Report, Request,
    Sequence, Start, Trigger, Verdict,
};
use shotline_wire::shot::Geometry;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;

/// What the probe calls itself.
pub const MODEL: &str = "Shotline emulated probe";
/// A trigger whose sequence number jumps further than this comes from another source, not after lost ones.
const TRIGGER_WINDOW: u32 = 1 << 16;
/// Times that the last packets of a stopped run are offered to a path that is full.
const STOP_TRIES: u32 = 10_000;

/// Why there is no probe.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Its settings make no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It has no samples.
    #[error(transparent)]
    Samples(#[from] SampleError),
    /// It has no room for its distinct shots.
    #[error("{0}; or prepare fewer distinct shots")]
    Memory(#[from] MemoryError),
}

/// What a link needs of a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which link.
    pub link: u8,
    /// Where it will send.
    pub destination: SocketAddr,
    /// Whether its packets end in an ICRC.
    pub sealed: bool,
}

/// A transport for one link.
#[derive(Debug)]
pub struct Outlet<Io> {
    /// The transport.
    pub io: Io,
    /// The address that its packets come from.
    pub source: SocketAddr,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait for messages: nothing is running.
    Idle,
    /// Wait for a trigger command.
    Trigger,
    /// Nothing before this time.
    At(u64),
    /// Call [`Probe::fire`], then [`Probe::sent`].
    Fire,
}

/// The present time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// TAI nanoseconds.
    pub tai_ns: u64,
    /// The clock is locked to a reference.
    pub locked: bool,
}

/// A datagram that answers another: a set-up message, or the acknowledgement of a trigger.
pub type Answer = ArrayVec<u8, LEN>;

/// Everything that a probe has done.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// The seed of its faults and random numbers.
    pub seed: u64,
    /// Its samples.
    pub source: SourceReport,
    /// Number of the next shot.
    pub next_shot: u64,
    /// Shots and triggers that did not happen.
    pub pace: PaceCounts,
    /// Requests refused.
    pub refused: u64,
    /// Each link.
    pub links: Vec<LinkStats>,
    /// Each fault, if they are kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Injected>,
}

/// Everything that a link has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LinkStats {
    /// Sent.
    #[serde(flatten)]
    pub counts: LinkCounts,
    /// Broken on purpose.
    pub faults: FaultCounts,
}

/// An emulated probe, without sockets and without a clock.
///
/// Datagrams from the set-up port go into [`Self::receive`]; [`Self::next`] says what to do. `open` makes the
/// transport of a link when the receiver has said where to send.
#[derive(Debug)]
pub struct Probe<Io, Open> {
    config: Config,
    seed: u64,
    source: Source,
    prebuilt: Prebuilt,
    regions: Regions,
    open: Open,
    ports: Vec<Port<Io>>,
    owner: Option<u32>,
    answered: Option<Answered>,
    sequence: Sequence,
    next_shot: u64,
    run: Option<Run>,
    /// Of the runs before the present one.
    pace: PaceCounts,
    refused: u64,
}

#[derive(Debug)]
struct Port<Io> {
    link: Link,
    qp: u32,
    outlet: Option<(Wanted, Outlet<Io>)>,
    target: Option<Target>,
    /// Counts at the last Start.
    started: LinkStats,
}

/// The last request that changed something, for when its reply was lost and it comes again.
#[derive(Debug)]
struct Answered {
    token: u32,
    sequence: u32,
    reply: Answer,
}

#[derive(Debug)]
struct Run {
    running: bool,
    pacer: Pacer,
    triggered: bool,
    first_shot: u64,
    left: Option<u64>,
    last_trigger: Option<u32>,
}

impl<Io, Open> Probe<Io, Open>
where
    Io: PacketIo,
    Open: FnMut(&Wanted, &Regions) -> Result<Outlet<Io>, IoError>,
{
    /// Opens the samples and takes the memory for the distinct shots.
    pub fn new(config: Config, open: Open) -> Result<Self, ProbeError> {
        config.check()?;
        let source = Source::new(&config)?;
        let mut registrar = Registrar::new();
        let prebuilt = Prebuilt::new(&source, config.links, &mut registrar)?;
        let seed = config.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let mut random = Random::new(seed);
        let ports = (0..config.links)
            .map(|index| {
                // 0 and 1 are not for users, and all ones is multicast.
                let qp = 2 + random.below(0xff_fffd) as u32;
                let link = Link::new(index, random.below(1 << 24) as u32, seed, &config);
                let started = stats(&link);
                Port { link, qp, outlet: None, target: None, started }
            })
            .collect();
        Ok(Self {
            next_shot: config.first_shot,
            config,
            seed,
            source,
            prebuilt,
            regions: registrar.finish(),
            open,
            ports,
            owner: None,
            answered: None,
            sequence: Sequence::NONE,
            run: None,
            pace: PaceCounts::default(),
            refused: 0,
        })
    }

    /// A datagram has come to the set-up port; returns the one to answer with.
    pub fn receive(&mut self, datagram: &[u8], now: u64) -> Option<Answer> {
        if let Ok(trigger) = Trigger::parse(datagram) {
            let verdict = self.trigger(&trigger, now);
            return trigger.acknowledge.then(|| answer(&Acknowledgement { trigger, verdict }.emit()));
        }
        let Ok(message) = Message::parse(datagram) else {
            let refusal = setup::refuse_unread(datagram)?;
            self.refused += 1;
            return Some(answer(&refusal));
        };
        let Body::Request { take_over, request } = message.body else { return None };
        if let Some(answered) = &self.answered
            && (answered.token, answered.sequence) == (message.token, message.sequence)
        {
            return Some(answered.reply.clone());
        }
        match self.carry_out(message.token, take_over, request, now) {
            Ok(reply) => {
                let reply = answer(&message.reply(reply).emit());
                if !matches!(request, Request::Query | Request::Status { .. }) {
                    let Message { token, sequence, .. } = message;
                    self.answered = Some(Answered { token, sequence, reply: reply.clone() });
                }
                Some(reply)
            }
            Err(refusal) => {
                self.refused += 1;
                message.refuse(refusal).map(|reply| answer(&reply.emit()))
            }
        }
    }

    /// What to do at `now`.
    pub fn next(&mut self, now: u64) -> Step {
        match &mut self.run {
            Some(run) if run.running => match run.pacer.next(now) {
                Next::Fire => Step::Fire,
                Next::At(time) => Step::At(time),
                Next::Trigger => Step::Trigger,
            },
            _ => Step::Idle,
        }
    }

    /// Sends the shot that [`Self::next`] asked for on every link, unless the run was stopped since. Trigger
    /// commands that came while it was sampled must have been given to [`Self::receive`]: they are missed. While a path is full, `again` says whether
    /// to go on trying. An error ends the run.
    pub fn fire(&mut self, stamp: Stamp, again: &mut dyn FnMut() -> bool) -> Result<(), IoError> {
        let Some(run) = self.run.as_mut().filter(|run| run.running) else { return Ok(()) };
        let (shot, triggered) = (self.next_shot, run.triggered);
        let tai_ns = stamp.tai_ns.saturating_sub(run.pacer.sampled_before_ns());
        self.next_shot = self.next_shot.wrapping_add(1);
        run.left = run.left.map(|left| left.saturating_sub(1));
        let last = run.left == Some(0);
        let event = match self.sequence.event(shot.wrapping_sub(run.first_shot)) {
            Some(event) => event.into(),
            None => self.prebuilt.pattern(shot),
        };
        for (index, port) in (0..).zip(&mut self.ports) {
            let (Some(target), Some((_, outlet))) = (&port.target, &mut port.outlet) else { continue };
            let record = Record {
                clock_locked: stamp.locked,
                triggered,
                shot,
                tai_ns,
                stream: target.link.stream,
                event,
                ..Record::of(self.prebuilt.geometry(index))
            };
            self.prebuilt.write_record(index, &record);
            let sent = port.link.send_shot(shot, target, &mut self.prebuilt, &mut outlet.io, again);
            if let Err(error) = sent {
                run.running = false;
                return Err(error);
            }
        }
        if last { self.finish(again) } else { Ok(()) }
    }

    /// The shot has been sent; it is `now`.
    pub fn sent(&mut self, now: u64) {
        if let Some(run) = &mut self.run {
            run.pacer.sent(now);
        }
    }

    /// Whether trigger commands start the shots of the present run.
    pub fn takes_commands(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.running && run.pacer.takes_commands())
    }

    /// Everything that was done so far. Takes the list of faults with it.
    pub fn stats(&mut self) -> Stats {
        let present = self.run.as_ref().map(|run| run.pacer.counts()).unwrap_or_default();
        let mut faults: Vec<_> = self.ports.iter_mut().flat_map(|port| port.link.take_faults()).collect();
        faults.sort_by_key(|fault| (fault.shot, fault.link, fault.packet));
        Stats {
            seed: self.seed,
            source: self.source.report(),
            next_shot: self.next_shot,
            pace: self.pace.plus(&present),
            refused: self.refused,
            links: self.ports.iter().map(|port| stats(&port.link)).collect(),
            faults,
        }
    }

    fn running(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.running)
    }

    fn carry_out(&mut self, token: u32, take_over: bool, request: Request, now: u64) -> Result<Reply, Refusal> {
        let owned = self.owner.is_some_and(|owner| owner != token);
        match request {
            Request::Query => Ok(Reply::Describe(self.describe())),
            Request::Status { link } => self.report(link, token).map(Reply::Status),
            // At rest it is anyone's to configure; while it runs it must be taken over.
            Request::Configure(request) if !self.running() => self.configure(token, request),
            _ if owned && !take_over => Err(Refusal::Owned),
            Request::Configure(_) if !owned => Err(Refusal::Running),
            Request::Configure(request) => self.configure(token, request),
            Request::Start(start) => {
                let first_shot = self.start(start, now)?;
                self.owner = Some(token);
                Ok(Reply::Started { first_shot })
            }
            Request::Sequence(_) if self.running() => Err(Refusal::Running),
            Request::Sequence(sequence) => {
                self.sequence = sequence;
                self.owner = Some(token);
                Ok(Reply::Sequenced(sequence))
            }
            Request::Stop { link } => {
                self.report(link, token)?;
                self.stop();
                self.owner = Some(token);
                self.report(link, token).map(Reply::Stopped)
            }
        }
    }

    fn describe(&self) -> Describe {
        let geometry = self.source.geometry();
        Describe {
            model: Model::from(MODEL).unwrap_or_default(),
            links: self.config.links,
            channels: geometry.channels(),
            bits: geometry.bits(),
            packing: geometry.packing(),
            sample_rate_hz: geometry.sample_rate_hz(),
            max_samples: geometry.samples(),
            framings: (0..framing::ALL.len()).fold(0, |bits, id| bits | 1 << id),
            pattern_period: self.source.pattern_period(),
        }
    }

    /// Everything is checked and opened before anything is changed. A new owner ends the run of the old one,
    /// and begins with no link configured and no transmit sequence; shot and sequence numbers go on.
    fn configure(&mut self, token: u32, mut request: Configure) -> Result<Reply, Refusal> {
        let framing = framing::by_id(request.framing).ok_or(Refusal::Framing)?;
        request.geometry = self.shape(&request.geometry)?;
        let to = request.destination;
        if to.port() == 0 || to.ip().is_unspecified() || to.ip().is_multicast() {
            return Err(Refusal::Destination);
        }
        let port = self.ports.get(usize::from(request.link)).ok_or(Refusal::Link)?;
        let wanted = Wanted { link: request.link, destination: to, sealed: framing.sealed() };
        let opened = match &port.outlet {
            Some((present, _)) if *present == wanted => None,
            _ => Some((self.open)(&wanted, &self.regions).map_err(|_| Refusal::Destination)?),
        };

        if self.owner != Some(token) {
            self.stop();
            self.ports.iter_mut().for_each(|port| port.target = None);
            self.sequence = Sequence::NONE;
            self.owner = Some(token);
        }
        let port = &mut self.ports[usize::from(request.link)];
        if let Some(outlet) = opened {
            port.outlet = Some((wanted, outlet));
        }
        let source = setup::Source {
            address: port.outlet.as_ref().map_or(to, |(_, outlet)| outlet.source),
            qp: port.qp,
            first_psn: port.link.psn(),
            pattern_period: self.source.pattern_period(),
        };
        port.target = Some(Target { to, framing, link: request.framing_link(&source) });
        self.prebuilt.fill(request.link, request.stream, &request.geometry, &self.source);
        Ok(Reply::Configured(request, source))
    }

    /// The shape of a link's shots if it is asked for this one: the probe's own, with as many samples or fewer.
    fn shape(&self, asked: &Geometry) -> Result<Geometry, Refusal> {
        let own = self.source.geometry();
        let same = (asked.channels(), asked.bits(), asked.packing()) == (own.channels(), own.bits(), own.packing());
        let rate = [0, own.sample_rate_hz()].contains(&asked.sample_rate_hz());
        if !same || !rate || asked.samples() > own.samples() {
            return Err(Refusal::Geometry);
        }
        Geometry::new(own.channels(), asked.samples(), own.bits(), own.packing(), own.sample_rate_hz())
            .map_err(|_| Refusal::Geometry)
    }

    fn start(&mut self, start: Start, now: u64) -> Result<u64, Refusal> {
        if self.running() {
            return Err(Refusal::Running);
        }
        let configured = |(index, port): (u8, &Port<Io>)| port.target.map(|_| *self.prebuilt.geometry(index));
        let shapes: Vec<_> = (0..).zip(&self.ports).filter_map(configured).collect();
        if shapes.is_empty() {
            return Err(Refusal::NotConfigured);
        }
        let timing = match (start.mode, self.config.trigger_hz) {
            (Mode::FreeRunning, _) => Timing::Free(self.config.free_running),
            (Mode::FixedRate { millihertz }, _) => Timing::Free(super::pace::Pace::Rate(millihertz as f64 / 1e3)),
            (Mode::ExternalTrigger, Some(hz)) => Timing::External(hz),
            (Mode::ExternalTrigger, None) => Timing::Command,
        };
        for port in &mut self.ports {
            port.started = stats(&port.link);
        }
        let run = Run {
            running: true,
            pacer: Pacer::new(timing, &shapes, now),
            triggered: start.mode == Mode::ExternalTrigger,
            first_shot: self.next_shot,
            left: (start.shots > 0).then_some(start.shots),
            last_trigger: None,
        };
        if let Some(before) = self.run.replace(run) {
            self.pace = self.pace.plus(&before.pacer.counts());
        }
        Ok(self.next_shot)
    }

    /// Ends the run, if there is one. What a full path does not take is counted as not sent; so is the rest
    /// after an error, which the next run will meet again.
    fn stop(&mut self) {
        if self.running() {
            let mut tries = STOP_TRIES;
            let _ = self.finish(&mut || {
                std::thread::yield_now();
                tries -= 1;
                tries > 0
            });
        }
    }

    /// Sends what is held back and ends the run.
    fn finish(&mut self, again: &mut dyn FnMut() -> bool) -> Result<(), IoError> {
        if let Some(run) = &mut self.run {
            run.running = false;
        }
        for port in &mut self.ports {
            if let (Some(target), Some((_, outlet))) = (&port.target, &mut port.outlet) {
                port.link.flush(target, &mut self.prebuilt, &mut outlet.io, again)?;
            }
        }
        Ok(())
    }

    fn report(&self, link: u8, token: u32) -> Result<Report, Refusal> {
        let port = self.ports.get(usize::from(link)).ok_or(Refusal::Link)?;
        let counts = port.link.counts().since(&port.started.counts);
        let faults = port.link.fault_counts().since(&port.started.faults);
        let saturated = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Ok(Report {
            link,
            running: self.running(),
            taken: self.owner.is_some_and(|owner| owner != token),
            next_shot: self.next_shot,
            shots_sent: counts.shots,
            packets_sent: counts.packets,
            triggers_missed: self.run.as_ref().map_or(0, |run| run.pacer.counts().missed),
            lost: saturated(faults.lost),
            duplicated: saturated(faults.duplicated),
            reordered: saturated(faults.reordered),
            corrupted: saturated(faults.corrupted),
        })
    }

    /// Obeys a trigger, or says why not. A command only changes nothing.
    fn trigger(&mut self, trigger: &Trigger, now: u64) -> Verdict {
        let accepted = Verdict::Accepted { shot: self.next_shot };
        let Some(run) = self.run.as_mut().filter(|run| run.running && run.pacer.takes_commands()) else {
            return Verdict::NotRunning;
        };
        let ahead = run.last_trigger.map(|last| trigger.sequence.wrapping_sub(last));
        if ahead.is_some_and(|ahead| ahead.wrapping_neg() <= TRIGGER_WINDOW) {
            return Verdict::Repeated;
        }
        let free = if trigger.command_only {
            run.pacer.next(now) == Next::Trigger
        } else {
            if let Some(ahead @ 1..=TRIGGER_WINDOW) = ahead {
                run.pacer.miss(u64::from(ahead) - 1);
            }
            run.last_trigger = Some(trigger.sequence);
            run.pacer.trigger(now)
        };
        if free { accepted } else { Verdict::Busy }
    }
}

fn answer(bytes: &[u8]) -> Answer {
    Answer::try_from(bytes).unwrap_or_default() // no message is longer
}

fn stats(link: &Link) -> LinkStats {
    LinkStats { counts: link.counts(), faults: link.fault_counts() }
}
