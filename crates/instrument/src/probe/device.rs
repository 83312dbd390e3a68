//! The probe itself: what it answers, and what it sends.

use super::Config;
use super::clock::Stamp;
use super::error::ProbeError;
use super::link::{Link, Target, spoken};
use super::outlet::{Outlet, Wanted};
use super::pace::{Next, PaceCounts, Pacer, Timing};
use super::patterns::Patterns;
use super::shots::{Moment, ReadError, Shots, Upcoming, Way};
use super::stats::{Failures, LinkStats, Stats};
use arrayvec::ArrayVec;
use shotline_memory::{Regions, Registrar};
use shotline_random::SplitMix64;
use shotline_transport::{IoError, PacketIo};
use shotline_wire::framing::{self, Framing};
use shotline_wire::setup::{
    self, Acknowledgement, Body, Configure, Describe, LEN, Message, Mode, Refusal, Reply, Report, Request, Sequence,
    Start, Trigger, Verdict,
};
use shotline_wire::shot::Geometry;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;

/// A trigger whose sequence number jumps further than this comes from another source, not after lost ones.
const TRIGGER_WINDOW: u32 = 1 << 16;
/// While the next shot is still being read, it is looked for this often. Longer than a server spins.
const READ_AGAIN_NS: u64 = 200_000;
/// Times that the last packets of a stopped run are offered to a path that is full.
const STOP_TRIES: u32 = 10_000;

/// Why a shot was not sent.
#[derive(Debug, thiserror::Error)]
pub enum FireError {
    /// The link failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The shot could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
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

/// A datagram that answers another: a set-up message, or the acknowledgement of a trigger.
pub type Answer = ArrayVec<u8, LEN>;

/// An emulated probe, without sockets and without a clock. It sends whatever its [`Shots`] give.
///
/// Datagrams from the set-up port go into [`Self::receive`]; [`Self::next`] says what to do. `open` makes the
/// transport of a link when the receiver has said where to send.
#[derive(Debug)]
pub struct Probe<Io, Open, S = Patterns> {
    config: Config,
    seed: u64,
    shots: S,
    regions: Regions,
    open: Open,
    ports: Vec<Port<Io>>,
    owner: Option<u32>,
    /// When a message of its owner came.
    owner_heard: u64,
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

impl<Io> Port<Io> {
    /// Where its packets go, once that is known.
    fn way(&self) -> Option<Way> {
        let (Some(Target { to, framing, link: keys }), Some((_, outlet))) = (&self.target, &self.outlet) else {
            return None;
        };
        let (source, ethernet, psn) = (outlet.source, outlet.ethernet, self.link.psn());
        Some(Way { source, destination: *to, ethernet, framing: framing.clone(), keys: *keys, psn })
    }
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
        let mut registrar = Registrar::new();
        let patterns = Patterns::new(&config, &mut registrar)?;
        Self::with(patterns, registrar.finish(), config, open)
    }
}

impl<Io, Open, S> Probe<Io, Open, S>
where
    Io: PacketIo,
    Open: FnMut(&Wanted, &Regions) -> Result<Outlet<Io>, IoError>,
    S: Shots,
{
    /// A probe that sends these shots, whose payloads are in `regions`. What the configuration says of samples is not
    /// looked at.
    pub fn with(shots: S, regions: Regions, config: Config, open: Open) -> Result<Self, ProbeError> {
        config.check()?;
        let seed = config.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let mut random = SplitMix64::new(seed);
        let ports = (0..config.links)
            .map(|index| {
                // 0 and 1 are not for users, and all ones is multicast.
                let qp = 2 + random.below(0xff_fffd) as u32;
                let link = Link::new(index, random.below(1 << 24) as u32, seed, &config);
                let started = LinkStats::of(&link);
                Port { link, qp, outlet: None, target: None, started }
            })
            .collect();
        Ok(Self {
            next_shot: config.first_shot,
            config,
            seed,
            shots,
            regions,
            open,
            ports,
            owner: None,
            owner_heard: 0,
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
        self.hear(message.token, now);
        let carried_out = self.carry_out(message.token, take_over, request, now);
        self.hear(message.token, now);
        match carried_out {
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
        let Some(run) = self.run.as_mut().filter(|run| run.running) else { return Step::Idle };
        match self.shots.upcoming() {
            Upcoming::Shot { number, taken_ns } => {
                // Numbers that were left out count as shots, so the end may lie among them.
                let left_out = number.saturating_sub(self.next_shot);
                if run.left.is_some_and(|left| left <= left_out) {
                    let left = run.left.unwrap_or(0);
                    return self.end_at(self.next_shot + left);
                }
                if let Some(taken_ns) = taken_ns {
                    run.pacer.taken(taken_ns, now);
                }
                match run.pacer.next(now) {
                    Next::Fire => Step::Fire,
                    Next::At(time) => Step::At(time),
                    Next::Trigger => Step::Trigger,
                }
            }
            Upcoming::Later => Step::At(now + READ_AGAIN_NS),
            Upcoming::End(end) => {
                let most = run.left.map_or(end, |left| end.min(self.next_shot.saturating_add(left)));
                self.end_at(most)
            }
        }
    }

    /// Whether nothing runs because the last shot has been sent.
    pub fn has_ended(&mut self) -> bool {
        let rests = self.run.as_ref().is_some_and(|run| !run.running);
        rests && matches!(self.shots.upcoming(), Upcoming::End(_))
    }

    /// Sends the shot that [`Self::next`] asked for on every link, unless the run was stopped since. Trigger
    /// commands that came while it was sampled must have been given to [`Self::receive`]: they are missed. While a path is full, `again` says whether
    /// to go on trying. An error ends the run.
    pub fn fire(&mut self, stamp: Stamp, again: &mut dyn FnMut() -> bool) -> Result<(), FireError> {
        let Some(run) = self.run.as_mut().filter(|run| run.running) else { return Ok(()) };
        let tai_ns = stamp.tai_ns.saturating_sub(run.pacer.sampled_before_ns());
        let event = self.sequence.event(self.next_shot.wrapping_sub(run.first_shot));
        // A mark stands for an event that the instrument itself has noticed.
        let every = self.config.mark_every.map(|every| every.max(1));
        let marked = every.is_some_and(|every| self.next_shot > 0 && self.next_shot.is_multiple_of(every));
        let moment = Moment { stamp: Stamp { tai_ns, ..stamp }, triggered: run.triggered || marked, event };
        let shot = self.shots.load(&moment).inspect_err(|_| run.running = false)?;
        self.leave_out(shot);
        self.next_shot = shot.wrapping_add(1);
        let Some(run) = &mut self.run else { return Ok(()) };
        run.left = run.left.map(|left| left.saturating_sub(1));
        let last = run.left == Some(0);
        for port in &mut self.ports {
            let (Some(target), Some((_, outlet))) = (&port.target, &mut port.outlet) else { continue };
            let sent = port.link.send_shot(shot, target, &mut self.shots, &mut outlet.io, again);
            if let Err(error) = sent {
                run.running = false;
                return Err(error.into());
            }
        }
        if last { Ok(self.finish(again)?) } else { Ok(()) }
    }

    /// Numbers up to this one are not sent: their packets are left out as they were on the way that they took before.
    fn leave_out(&mut self, shot: u64) {
        let count = shot.saturating_sub(self.next_shot);
        if count == 0 {
            return;
        }
        for (link, port) in (0..).zip(&mut self.ports) {
            if port.target.is_some() {
                port.link.skip(count, self.shots.geometry_of(link).packets());
            }
        }
        if let Some(run) = &mut self.run {
            run.left = run.left.map(|left| left.saturating_sub(count));
        }
    }

    /// The run is over, and so are the numbers below `end`.
    fn end_at(&mut self, end: u64) -> Step {
        self.leave_out(end);
        self.next_shot = self.next_shot.max(end);
        self.stop();
        Step::Idle
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
            source: self.shots.report(),
            next_shot: self.next_shot,
            pace: self.pace.plus(&present),
            refused: self.refused,
            failures: Failures::default(),
            links: self.ports.iter().map(|port| LinkStats::of(&port.link)).collect(),
            faults,
        }
    }

    fn running(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.running)
    }

    fn hear(&mut self, token: u32, now: u64) {
        if self.owner == Some(token) {
            self.owner_heard = now;
        }
    }

    fn carry_out(&mut self, token: u32, take_over: bool, request: Request, now: u64) -> Result<Reply, Refusal> {
        let owned = self.owner.is_some_and(|owner| owner != token);
        match request {
            Request::Query => Ok(Reply::Describe(self.describe())),
            Request::Status { link } => self.report(link, token, now).map(Reply::Status),
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
            // What was sent is known: it is no longer anyone's to choose.
            Request::Sequence(_) if !self.shots.is_live() => Err(Refusal::Kind),
            Request::Sequence(sequence) => {
                self.sequence = sequence;
                self.owner = Some(token);
                Ok(Reply::Sequenced(sequence))
            }
            Request::Stop { link } => {
                self.report(link, token, now)?;
                self.stop();
                self.owner = Some(token);
                self.report(link, token, now).map(Reply::Stopped)
            }
        }
    }

    fn describe(&self) -> Describe {
        let geometry = self.shots.geometry();
        Describe {
            model: self.shots.model(),
            links: self.config.links,
            channels: geometry.channels(),
            bits: geometry.bits(),
            packing: geometry.packing(),
            sample_rate_hz: geometry.sample_rate_hz(),
            max_samples: geometry.samples(),
            framings: (0..8).filter(|id| spoken(*id).is_some()).fold(0, |bits, id| bits | 1 << id),
            pattern_period: self.shots.pattern_period(),
        }
    }

    /// Everything is checked and opened before anything is changed. A new owner ends the run of the old one,
    /// and begins with no link configured and no transmit sequence; shot and sequence numbers go on.
    fn configure(&mut self, token: u32, mut request: Configure) -> Result<Reply, Refusal> {
        let framing = spoken(request.framing).ok_or(Refusal::Framing)?;
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
            self.next_shot = self.shots.begin(self.next_shot);
        }
        let port = &mut self.ports[usize::from(request.link)];
        if let Some(outlet) = opened {
            port.outlet = Some((wanted, outlet));
        }
        let source = setup::Source {
            address: port.outlet.as_ref().map_or(to, |(_, outlet)| outlet.source),
            qp: port.qp,
            first_psn: port.link.psn(),
            pattern_period: self.shots.pattern_period(),
        };
        port.target = Some(Target { to, framing, link: request.framing_link(&source) });
        if let Some(way) = port.way() {
            self.shots.direct(request.link, &way);
        }
        self.shots.prepare(request.link, request.stream, &request.geometry);
        Ok(Reply::Configured(request, source))
    }

    /// Sends a link's shots to a receiver that does not ask, under the keys that it was told by other means. With
    /// [`Self::begin`] this stands for set-up; the two do not mix.
    pub fn aim(
        &mut self,
        link: u8,
        to: SocketAddr,
        framing: Arc<dyn Framing>,
        keys: framing::Link,
    ) -> Result<(), IoError> {
        let wanted = Wanted { link, destination: to, sealed: framing.sealed() };
        let outlet = (self.open)(&wanted, &self.regions)?;
        let Some(port) = self.ports.get_mut(usize::from(link)) else { return Ok(()) };
        port.outlet = Some((wanted, outlet));
        port.target = Some(Target { to, framing, link: framing::Link { src_qp: port.qp, ..keys } });
        if let Some(way) = port.way() {
            self.shots.direct(link, &way);
        }
        let geometry = *self.shots.geometry();
        self.shots.prepare(link, keys.stream, &geometry);
        Ok(())
    }

    /// Begins to send on all links that were aimed ([`Self::aim`]).
    pub fn begin(&mut self, start: Start, now: u64) -> Result<u64, Refusal> {
        self.next_shot = self.shots.begin(self.next_shot);
        self.start(start, now)
    }

    /// The shape of a link's shots if it is asked for this one: the probe's own, with as many samples or fewer.
    fn shape(&self, asked: &Geometry) -> Result<Geometry, Refusal> {
        let own = self.shots.geometry();
        let same = (asked.channels(), asked.bits(), asked.packing()) == (own.channels(), own.bits(), own.packing());
        let rate = [0, own.sample_rate_hz()].contains(&asked.sample_rate_hz());
        let samples = asked.samples() == own.samples() || self.shots.is_live() && asked.samples() < own.samples();
        if !same || !rate || !samples {
            return Err(Refusal::Geometry);
        }
        Geometry::new(own.channels(), asked.samples(), own.bits(), own.packing(), own.sample_rate_hz())
            .map_err(|_| Refusal::Geometry)
    }

    fn start(&mut self, start: Start, now: u64) -> Result<u64, Refusal> {
        if self.running() {
            return Err(Refusal::Running);
        }
        let configured = |(index, port): (u8, &Port<Io>)| port.target.as_ref().map(|_| *self.shots.geometry_of(index));
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
            port.started = LinkStats::of(&port.link);
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
                port.link.flush(target, &mut self.shots, &mut outlet.io, again)?;
            }
        }
        Ok(())
    }

    fn report(&self, link: u8, token: u32, now: u64) -> Result<Report, Refusal> {
        let port = self.ports.get(usize::from(link)).ok_or(Refusal::Link)?;
        let counts = port.link.counts().since(&port.started.counts);
        let faults = port.link.fault_counts().since(&port.started.faults);
        let saturated = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Ok(Report {
            link,
            running: self.running(),
            taken: self.owner.is_some_and(|owner| owner != token),
            owner_silent_ms: self
                .owner
                .map_or(0, |_| saturated(now.saturating_sub(self.owner_heard) / 1_000_000).max(1)),
            next_shot: self.next_shot,
            shots_sent: counts.shots,
            packets_sent: counts.packets,
            triggers_missed: self.run.as_ref().map_or(0, |run| run.pacer.counts().missed),
            lost: saturated(faults.lost + counts.absent),
            duplicated: saturated(faults.duplicated),
            reordered: saturated(faults.reordered),
            corrupted: saturated(faults.corrupted),
        })
    }

    /// Obeys a trigger, or says why not. A command only changes nothing.
    fn trigger(&mut self, trigger: &Trigger, now: u64) -> Verdict {
        let foreign = trigger.token != 0 && self.owner.is_some_and(|owner| owner != trigger.token);
        if foreign && !trigger.take_over {
            self.refused += 1;
            return Verdict::Owned;
        }
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
