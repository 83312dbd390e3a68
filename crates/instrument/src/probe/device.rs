//! Probe state machine: set-up messages, triggers and shots.

use super::Config;
use super::clock::Stamp;
use super::counters::{Failures, LinkReport, ProbeCounters, ProbeState};
use super::error::ProbeError;
use super::link::{Link, Target, framing_by_id};
use super::pace::{Next, PaceCounters, Pacer, Timing};
use super::patterns::Patterns;
use super::shots::{FireError, Route, ShotContext, Shots, Upcoming};
use super::transport::{LinkRequest, LinkTransport};
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

/// Maximum sequence gap that counts as lost triggers. A larger jump means that the trigger source changed.
const TRIGGER_WINDOW: u32 = 1 << 16;
/// Poll interval while the next shot is still being read, in ns. Longer than a server spins.
const READ_POLL_NS: u64 = 200_000;
/// Maximum number of retries for a stopped run's last packets while the path is full.
const MAX_STOP_RETRIES: u32 = 10_000;

/// Next action of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait for messages; no run is active.
    Idle,
    /// Wait for a trigger command.
    Trigger,
    /// Wait until this time, in ns.
    At(u64),
    /// Call [`Probe::fire`], then [`Probe::sent`].
    Fire,
}

/// A response datagram: a set-up reply or a trigger acknowledgement.
pub type Response = ArrayVec<u8, LEN>;

/// An emulated probe without sockets and without a clock. It sends the shots of its [`Shots`] source.
///
/// Pass datagrams from the set-up port to [`Self::receive`]; [`Self::next`] returns the next action. `open` opens the
/// transport of a link once the receiver has configured its destination.
#[derive(Debug)]
pub struct Probe<Io, Open, S = Patterns> {
    config: Config,
    seed: u64,
    shots: S,
    regions: Regions,
    open: Open,
    ports: Vec<Port<Io>>,
    owner: Option<u32>,
    /// Time of the owner's last message, in ns.
    owner_seen_ns: u64,
    cached_reply: Option<CachedReply>,
    sequence: Sequence,
    next_shot: u64,
    run: Option<Run>,
    /// Counters of the runs before the current one.
    pace: PaceCounters,
    refused: u64,
}

#[derive(Debug)]
struct Port<Io> {
    link: Link,
    qp: u32,
    transport: Option<(LinkRequest, LinkTransport<Io>)>,
    target: Option<Target>,
    /// Counters at the last Start.
    started: LinkReport,
}

impl<Io> Port<Io> {
    /// Returns the route of its packets if target and transport are set.
    fn route(&self) -> Option<Route> {
        let (Some(Target { destination, framing, keys }), Some((_, transport))) = (&self.target, &self.transport)
        else {
            return None;
        };
        let (source, ethernet, psn) = (transport.source, transport.ethernet, self.link.psn());
        Some(Route { source, destination: *destination, ethernet, framing: framing.clone(), keys: *keys, psn })
    }
}

/// Reply to the last state-changing request, resent if the request is repeated because the reply was lost.
#[derive(Debug)]
struct CachedReply {
    token: u32,
    sequence: u32,
    reply: Response,
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
    Open: FnMut(&LinkRequest, &Regions) -> Result<LinkTransport<Io>, IoError>,
{
    /// Opens the sample source and allocates memory for the distinct shots.
    ///
    /// # Errors
    /// If the settings are invalid, the samples cannot be read, or memory is short.
    pub fn new(config: Config, open: Open) -> Result<Self, ProbeError> {
        let mut registrar = Registrar::new();
        let patterns = Patterns::new(&config, &mut registrar)?;
        Self::with(patterns, registrar.finish(), config, open)
    }
}

impl<Io, Open, S> Probe<Io, Open, S>
where
    Io: PacketIo,
    Open: FnMut(&LinkRequest, &Regions) -> Result<LinkTransport<Io>, IoError>,
    S: Shots,
{
    /// Creates a probe that sends `shots`, whose payloads are in `regions`. The configuration's sample settings are
    /// ignored.
    pub fn with(shots: S, regions: Regions, config: Config, open: Open) -> Result<Self, ProbeError> {
        config.check()?;
        let seed = config.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let mut random = SplitMix64::new(seed);
        let ports = (0..config.links)
            .map(|index| {
                // Queue pairs 0 and 1 are reserved, and all ones is multicast.
                let qp = 2 + random.below(0xff_fffd) as u32;
                let link = Link::new(index, random.below(1 << 24) as u32, seed, &config);
                let started = LinkReport::of(&link);
                Port { link, qp, transport: None, target: None, started }
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
            owner_seen_ns: 0,
            cached_reply: None,
            sequence: Sequence::NONE,
            run: None,
            pace: PaceCounters::default(),
            refused: 0,
        })
    }

    /// Processes a datagram from the set-up port and returns the response, if any.
    pub fn receive(&mut self, datagram: &[u8], now: u64) -> Option<Response> {
        if let Ok(trigger) = Trigger::parse(datagram) {
            let verdict = self.trigger(&trigger, now);
            return trigger.acknowledge.then(|| response(&Acknowledgement { trigger, verdict }.emit()));
        }
        let Ok(message) = Message::parse(datagram) else {
            let refusal = setup::refuse_malformed(datagram)?;
            self.refused += 1;
            return Some(response(&refusal));
        };
        let Body::Request { take_over, request } = message.body else { return None };
        if let Some(cached) = &self.cached_reply
            && (cached.token, cached.sequence) == (message.token, message.sequence)
        {
            return Some(cached.reply.clone());
        }
        self.note_owner(message.token, now);
        let result = self.execute(message.token, take_over, request, now);
        self.note_owner(message.token, now);
        match result {
            Ok(reply) => {
                let reply = response(&message.reply(reply).emit());
                if !matches!(request, Request::Query | Request::Status { .. }) {
                    let Message { token, sequence, .. } = message;
                    self.cached_reply = Some(CachedReply { token, sequence, reply: reply.clone() });
                }
                Some(reply)
            }
            Err(refusal) => {
                self.refused += 1;
                message.refuse(refusal).map(|reply| response(&reply.emit()))
            }
        }
    }

    /// Returns the next action at `now`, in ns.
    pub fn next(&mut self, now: u64) -> Step {
        let Some(run) = self.run.as_mut().filter(|run| run.running) else { return Step::Idle };
        match self.shots.upcoming() {
            Upcoming::Shot { number, recorded_ns } => {
                // Skipped numbers count as shots, so the run may end among them.
                let skipped = number.saturating_sub(self.next_shot);
                if run.left.is_some_and(|left| left <= skipped) {
                    let left = run.left.unwrap_or(0);
                    return self.end_at(self.next_shot + left);
                }
                if let Some(recorded_ns) = recorded_ns {
                    run.pacer.set_recorded_time(recorded_ns, now);
                }
                match run.pacer.next(now) {
                    Next::Fire => Step::Fire,
                    Next::At(time) => Step::At(time),
                    Next::Trigger => Step::Trigger,
                }
            }
            Upcoming::Pending => Step::At(now + READ_POLL_NS),
            Upcoming::End(end) => {
                let end = run.left.map_or(end, |left| end.min(self.next_shot.saturating_add(left)));
                self.end_at(end)
            }
        }
    }

    /// Returns `true` if the run ended because the source has no more shots.
    pub fn has_ended(&mut self) -> bool {
        let is_stopped = self.run.as_ref().is_some_and(|run| !run.running);
        is_stopped && matches!(self.shots.upcoming(), Upcoming::End(_))
    }

    /// Sends the next shot on every link, after [`Self::next`] returned [`Step::Fire`]; does nothing if the run was
    /// stopped since. Pass trigger commands that arrived during sampling to [`Self::receive`] first: they are missed.
    /// While a path is full, calls `retry` and stops trying once it returns `false`. An error ends the run.
    pub fn fire(&mut self, stamp: Stamp, retry: &mut dyn FnMut() -> bool) -> Result<(), FireError> {
        let Some(run) = self.run.as_mut().filter(|run| run.running) else { return Ok(()) };
        let tai_ns = stamp.tai_ns.saturating_sub(run.pacer.since_first_sample_ns());
        let event = self.sequence.event(self.next_shot.wrapping_sub(run.first_shot));
        // A mark emulates an event detected by the instrument itself.
        let every = self.config.mark_every.map(|every| every.max(1));
        let marked = every.is_some_and(|every| self.next_shot > 0 && self.next_shot.is_multiple_of(every));
        let context = ShotContext { stamp: Stamp { tai_ns, ..stamp }, triggered: run.triggered || marked, event };
        let shot = self.shots.load(&context).inspect_err(|_| run.running = false)?;
        self.skip_to(shot);
        self.next_shot = shot.wrapping_add(1);
        let Some(run) = &mut self.run else { return Ok(()) };
        run.left = run.left.map(|left| left.saturating_sub(1));
        let last = run.left == Some(0);
        for port in &mut self.ports {
            let (Some(target), Some((_, transport))) = (&port.target, &mut port.transport) else { continue };
            let sent = port.link.send_shot(shot, target, &mut self.shots, &mut transport.io, retry);
            if let Err(error) = sent {
                run.running = false;
                return Err(error.into());
            }
        }
        if last { Ok(self.finish(retry)?) } else { Ok(()) }
    }

    /// Skips the shot numbers before `shot`; their sequence numbers are consumed as if the packets had been lost
    /// earlier.
    fn skip_to(&mut self, shot: u64) {
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

    /// Ends the run and skips the numbers below `end`.
    fn end_at(&mut self, end: u64) -> Step {
        self.skip_to(end);
        self.next_shot = self.next_shot.max(end);
        self.stop();
        Step::Idle
    }

    /// Records that the shot was completely sent at `now`, in ns.
    pub fn sent(&mut self, now: u64) {
        if let Some(run) = &mut self.run {
            run.pacer.sent(now);
        }
    }

    /// Returns `true` if trigger commands start the shots of the current run.
    pub fn takes_commands(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.running && run.pacer.takes_commands())
    }

    /// Returns the counters so far and drains the list of faults.
    pub fn counters(&mut self) -> ProbeCounters {
        let mut faults: Vec<_> = self.ports.iter_mut().flat_map(|port| port.link.take_faults()).collect();
        faults.sort_by_key(|fault| (fault.shot, fault.link, fault.packet));
        ProbeCounters { faults, ..self.state().counters }
    }

    /// Returns the state, without the list of faults, which stays as it is.
    pub fn state(&self) -> ProbeState {
        let current = self.run.as_ref().map(|run| run.pacer.counters()).unwrap_or_default();
        let counters = ProbeCounters {
            seed: self.seed,
            source: self.shots.report(),
            next_shot: self.next_shot,
            pace: self.pace.plus(&current),
            requests_refused: self.refused,
            failures: Failures::default(),
            links: self.ports.iter().map(|port| LinkReport::of(&port.link)).collect(),
            faults: Vec::new(),
        };
        let destinations = self.ports.iter().map(|port| port.target.as_ref().map(|target| target.destination));
        let (is_running, geometry) = (self.running(), *self.shots.geometry());
        ProbeState { counters, is_running, geometry, destinations: destinations.collect() }
    }

    fn running(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.running)
    }

    /// Updates the time of the owner's last message if `token` is the owner's.
    fn note_owner(&mut self, token: u32, now: u64) {
        if self.owner == Some(token) {
            self.owner_seen_ns = now;
        }
    }

    fn execute(&mut self, token: u32, take_over: bool, request: Request, now: u64) -> Result<Reply, Refusal> {
        let owned_by_other = self.owner.is_some_and(|owner| owner != token);
        match request {
            Request::Query => Ok(Reply::Describe(self.describe())),
            Request::Status { link } => self.report(link, token, now).map(Reply::Status),
            // An idle probe accepts any receiver; a running one must be taken over.
            Request::Configure(request) if !self.running() => self.configure(token, request),
            _ if owned_by_other && !take_over => Err(Refusal::Owned),
            Request::Configure(_) if !owned_by_other => Err(Refusal::Running),
            Request::Configure(request) => self.configure(token, request),
            Request::Start(start) => {
                let first_shot = self.start(start, now)?;
                self.owner = Some(token);
                Ok(Reply::Started { first_shot })
            }
            Request::Sequence(_) if self.running() => Err(Refusal::Running),
            // A recording's events are fixed.
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
            framings: (0..8).filter(|id| framing_by_id(*id).is_some()).fold(0, |bits, id| bits | 1 << id),
            pattern_period: self.shots.pattern_period(),
            array: self.config.described_array().and_then(|array| array.description()),
        }
    }

    /// Configures a link. All checks and opens precede any change. A new owner ends the previous owner's run and starts
    /// with no link configured and no transmit sequence; shot and sequence numbers continue.
    fn configure(&mut self, token: u32, mut request: Configure) -> Result<Reply, Refusal> {
        let framing = framing_by_id(request.framing).ok_or(Refusal::Framing)?;
        request.geometry = self.accept_geometry(&request.geometry)?;
        let to = request.destination;
        if to.port() == 0 || to.ip().is_unspecified() || to.ip().is_multicast() {
            return Err(Refusal::Destination);
        }
        let port = self.ports.get(usize::from(request.link)).ok_or(Refusal::Link)?;
        let link_request = LinkRequest { link: request.link, destination: to, sealed: framing.has_icrc() };
        let opened = match &port.transport {
            Some((current, _)) if *current == link_request => None,
            _ => Some((self.open)(&link_request, &self.regions).map_err(|_| Refusal::Destination)?),
        };

        if self.owner != Some(token) {
            self.stop();
            self.ports.iter_mut().for_each(|port| port.target = None);
            self.sequence = Sequence::NONE;
            self.owner = Some(token);
            self.next_shot = self.shots.begin(self.next_shot);
        }
        let port = &mut self.ports[usize::from(request.link)];
        if let Some(transport) = opened {
            port.transport = Some((link_request, transport));
        }
        let source = setup::Source {
            address: port.transport.as_ref().map_or(to, |(_, transport)| transport.source),
            qp: port.qp,
            first_psn: port.link.psn(),
            pattern_period: self.shots.pattern_period(),
        };
        port.target = Some(Target { destination: to, framing, keys: request.framing_link(&source) });
        if let Some(route) = port.route() {
            self.shots.set_route(request.link, &route);
        }
        self.shots.prepare(request.link, request.stream, &request.geometry);
        Ok(Reply::Configured(request, source))
    }

    /// Sets a link's destination without set-up messages; the receiver must have obtained the keys by other means. Use
    /// it with [`Self::begin`], and not together with set-up messages.
    ///
    /// # Errors
    /// If the transport cannot be opened.
    pub fn set_target(
        &mut self,
        link: u8,
        to: SocketAddr,
        framing: Arc<dyn Framing>,
        keys: framing::Link,
    ) -> Result<(), IoError> {
        let link_request = LinkRequest { link, destination: to, sealed: framing.has_icrc() };
        let transport = (self.open)(&link_request, &self.regions)?;
        let Some(port) = self.ports.get_mut(usize::from(link)) else { return Ok(()) };
        port.transport = Some((link_request, transport));
        port.target = Some(Target { destination: to, framing, keys: framing::Link { src_qp: port.qp, ..keys } });
        if let Some(route) = port.route() {
            self.shots.set_route(link, &route);
        }
        let geometry = *self.shots.geometry();
        self.shots.prepare(link, keys.stream, &geometry);
        Ok(())
    }

    /// Starts a run on all links set by [`Self::set_target`] and returns the first shot number.
    ///
    /// # Errors
    /// If a run is active or no link is configured.
    pub fn begin(&mut self, start: Start, now: u64) -> Result<u64, Refusal> {
        self.next_shot = self.shots.begin(self.next_shot);
        self.start(start, now)
    }

    /// Returns a link's geometry for a request: the probe's own, with the requested number of samples if that is not
    /// more.
    fn accept_geometry(&self, requested: &Geometry) -> Result<Geometry, Refusal> {
        let own = self.shots.geometry();
        let same = (requested.channels(), requested.bits(), requested.packing())
            == (own.channels(), own.bits(), own.packing());
        let rate = [0, own.sample_rate_hz()].contains(&requested.sample_rate_hz());
        let samples =
            requested.samples() == own.samples() || self.shots.is_live() && requested.samples() < own.samples();
        if !same || !rate || !samples {
            return Err(Refusal::Geometry);
        }
        Geometry::new(own.channels(), requested.samples(), own.bits(), own.packing(), own.sample_rate_hz())
            .map_err(|_| Refusal::Geometry)
    }

    fn start(&mut self, start: Start, now: u64) -> Result<u64, Refusal> {
        if self.running() {
            return Err(Refusal::Running);
        }
        let configured = |(index, port): (u8, &Port<Io>)| port.target.as_ref().map(|_| *self.shots.geometry_of(index));
        let geometries: Vec<_> = (0..).zip(&self.ports).filter_map(configured).collect();
        if geometries.is_empty() {
            return Err(Refusal::NotConfigured);
        }
        let timing = match (start.mode, self.config.trigger_hz) {
            (Mode::FreeRunning, _) => Timing::Free(self.config.free_running),
            (Mode::FixedRate { millihertz }, _) => Timing::Free(super::pace::Pace::Rate(millihertz as f64 / 1e3)),
            (Mode::ExternalTrigger, Some(hz)) => Timing::External(hz),
            (Mode::ExternalTrigger, None) => Timing::Command,
        };
        for port in &mut self.ports {
            port.started = LinkReport::of(&port.link);
        }
        let run = Run {
            running: true,
            pacer: Pacer::new(timing, &geometries, now),
            triggered: start.mode == Mode::ExternalTrigger,
            first_shot: self.next_shot,
            left: (start.shots > 0).then_some(start.shots),
            last_trigger: None,
        };
        if let Some(before) = self.run.replace(run) {
            self.pace = self.pace.plus(&before.pacer.counters());
        }
        Ok(self.next_shot)
    }

    /// Ends the active run, if any. Packets that a full path does not accept are counted as discarded, as are the
    /// packets after an error; the next run reports that error again.
    fn stop(&mut self) {
        if self.running() {
            let mut retries = MAX_STOP_RETRIES;
            let _ = self.finish(&mut || {
                std::thread::yield_now();
                retries -= 1;
                retries > 0
            });
        }
    }

    /// Sends packets held back by fault injection and ends the run.
    fn finish(&mut self, retry: &mut dyn FnMut() -> bool) -> Result<(), IoError> {
        if let Some(run) = &mut self.run {
            run.running = false;
        }
        for port in &mut self.ports {
            if let (Some(target), Some((_, transport))) = (&port.target, &mut port.transport) {
                port.link.flush(target, &mut self.shots, &mut transport.io, retry)?;
            }
        }
        Ok(())
    }

    fn report(&self, link: u8, token: u32, now: u64) -> Result<Report, Refusal> {
        let port = self.ports.get(usize::from(link)).ok_or(Refusal::Link)?;
        let counters = port.link.counters().since(&port.started.counters);
        let faults = port.link.fault_counters().since(&port.started.faults);
        let saturated = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Ok(Report {
            link,
            running: self.running(),
            is_owned_by_other: self.owner.is_some_and(|owner| owner != token),
            owner_silent_ms: self
                .owner
                .map_or(0, |_| saturated(now.saturating_sub(self.owner_seen_ns) / 1_000_000).max(1)),
            next_shot: self.next_shot,
            shots_sent: counters.shots,
            packets_sent: counters.packets,
            triggers_missed: self.run.as_ref().map_or(0, |run| run.pacer.counters().missed),
            lost: saturated(faults.lost + counters.missing),
            duplicated: saturated(faults.duplicated),
            reordered: saturated(faults.reordered),
            corrupted: saturated(faults.corrupted),
        })
    }

    /// Processes a trigger and returns the verdict. A trigger with `command_only` changes no state.
    fn trigger(&mut self, trigger: &Trigger, now: u64) -> Verdict {
        let owned_by_other = trigger.token != 0 && self.owner.is_some_and(|owner| owner != trigger.token);
        if owned_by_other && !trigger.take_over {
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
        let is_free = if trigger.command_only {
            run.pacer.next(now) == Next::Trigger
        } else {
            if let Some(ahead @ 1..=TRIGGER_WINDOW) = ahead {
                run.pacer.miss(u64::from(ahead) - 1);
            }
            run.last_trigger = Some(trigger.sequence);
            run.pacer.trigger(now)
        };
        if is_free { accepted } else { Verdict::Busy }
    }
}

fn response(bytes: &[u8]) -> Response {
    Response::try_from(bytes).unwrap_or_default() // LEN is the length of the longest message
}
