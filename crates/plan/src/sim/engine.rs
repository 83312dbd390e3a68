//! Event loop of the simulation.
//!
//! Each event source (actor) has a number: a stream's next packet, the head of a lane (packets that have left a unit,
//! in order), a unit of a stage of bursts, an instrument's next trigger. An actor has at most one entry in the heap, so
//! the heap's size depends on the plan and not on queue lengths. No event is needed between stages in which each unit's
//! packets stay in order: a packet passes them in one step.

use super::histogram::Histogram;
use super::outcome::{Bursts, DropCount, Outcome, Packets, Rates, StageOutcome};
use super::random::Random;
use super::sink::{Admission, Assembly, AssemblyState, Group, Job, SinkCounters};
use super::time::{PICOSECOND, Time, picoseconds};
use super::unit::{Packet, PacketStage};
use crate::plan::{Burst, Per, Plan, Stage, Start};
use shotline_wire::shot::DropCause;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

/// Number of intervals over which rates are measured.
const INTERVALS: usize = 1000;
/// Events between two progress reports.
const REPORT_EVERY: u64 = 1 << 18;

/// Sending side of a stream: bursts that wait for the first stage.
#[derive(Debug, Default)]
struct Sender {
    /// Time at which each burst is sampled, and its number.
    waiting: VecDeque<(Time, u64)>,
    /// Packets of the first burst already sent.
    sent: u32,
    /// Number of the next burst.
    next_number: u64,
    /// The sender has an entry in the heap.
    scheduled: bool,
}

/// An instrument.
#[derive(Debug)]
struct Probe {
    offset: f64,
    triggers: u64,
    busy_until: Time,
}

/// Stages that a packet passes in one step, and the lanes after the last one.
#[derive(Clone, Debug)]
struct Segment {
    stages: Range<usize>,
    first_lane: usize,
}

impl Segment {
    /// Returns the number of lanes after its last stage: one per unit.
    fn lanes(&self, stages: &[PacketStage]) -> usize {
        stages[self.stages.end - 1].units()
    }
}

/// Event source.
#[derive(Clone, Copy, Debug)]
enum Actor {
    Sender(u32),
    Lane { segment: u32, lane: u32 },
    Server { stage: u32, receiver: u32, unit: u32 },
    Probe(u32),
}

pub(super) struct Engine<'p> {
    plan: &'p Plan,
    seed: u64,
    end: Time,
    random: Random,
    /// Time (upper bits) and actor (lower 32 bits) of pending events.
    heap: BinaryHeap<Reverse<u128>>,
    /// Actor being processed; it is rescheduled when it is done.
    acting: usize,
    actors: Vec<Actor>,
    first_server: Vec<usize>,
    senders: Vec<Sender>,
    probes: Vec<Probe>,
    stages: Vec<PacketStage>,
    segments: Vec<Segment>,
    lanes: Vec<VecDeque<(Time, Packet)>>,
    assemblies: Vec<Assembly>,
    free_slots: Vec<u64>,
    /// For each stage of bursts, one group per receiver.
    groups: Vec<Vec<Group>>,
    params: Params,
    counters: Counters,
}

/// Parameters of the plan, precomputed for the event handlers.
#[derive(Debug)]
struct Params {
    packets: u32,
    bytes: [u32; 2],
    burst_bytes: u64,
    slot_bytes: u64,
    slots: u64,
    busy: Time,
    sampling: Time,
    period: f64,
    /// The first stage is a line that the instrument feeds: it sends a packet when the previous one has left.
    paced: bool,
    /// Each stream has its own such line with an event after it, and that event sends the next packet.
    driven: bool,
    bursts_waiting: usize,
    receiver_of: Vec<u32>,
}

impl Params {
    fn new(plan: &Plan) -> Self {
        let source = &plan.source;
        let report = plan.report();
        let (bytes, last) = source.burst.packet_bytes();
        let slot_bytes = source.burst.slot_bytes();
        let pool = plan.receiver.pool_bytes.unwrap_or(report.pool_bytes);
        let paced = plan.stages[0].kind.is_line();
        let busy = picoseconds(source.busy_s());
        Self {
            packets: source.burst.packets(),
            bytes: [bytes, last],
            burst_bytes: source.burst.bytes(),
            slot_bytes,
            slots: ((pool / slot_bytes as f64) as u64).max(1),
            busy,
            sampling: picoseconds(source.sampling_s()),
            period: match source.start {
                Start::Periodic(hz) => 1.0 / hz / PICOSECOND,
                Start::Free => 1.0 / report.source.burst_hz / PICOSECOND,
            },
            paced,
            driven: false,
            bursts_waiting: ((source.buffer_bytes / source.burst.bytes() as f64) as usize).max(1),
            receiver_of: (0..source.streams()).map(|s| s / source.links % plan.receiver.count).collect(),
        }
    }
}

/// Counters gathered during the simulation.
#[derive(Debug)]
struct Counters {
    triggers: u64,
    missed: u64,
    bursts: Bursts,
    generated: u64,
    delivered: u64,
    overrun: u64,
    no_buffer: u64,
    placed: u64,
    /// Counters of each stage of bursts.
    sinks: Vec<SinkCounters>,
    packet_latency: Histogram,
    burst_latency: Histogram,
    intervals: Vec<u64>,
    min_free_slots: u64,
}

impl<'p> Engine<'p> {
    pub(super) fn new(plan: &'p Plan, seconds: f64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let source = &plan.source;
        let mut params = Params::new(plan);
        let (packet_stages, burst_stages): (Vec<_>, Vec<_>) =
            plan.stages.iter().partition(|stage| !stage.kind.takes_bursts());
        let stages: Vec<_> = packet_stages.iter().map(|stage| PacketStage::new(plan, stage, &mut random)).collect();
        let segments = segments(&stages);
        let own_line = plan.stages[0].per == Per::Link && segments.first().is_some_and(|first| first.stages.len() == 1);
        params.driven = params.paced && own_line;
        let groups: Vec<Vec<_>> = burst_stages
            .iter()
            .map(|stage| {
                let service = stage.burst_s(&source.burst);
                (0..plan.receiver.count).map(|_| Group::new(stage, service, params.slot_bytes, &mut random)).collect()
            })
            .collect();
        let lanes = segments.iter().map(|segment| segment.lanes(&stages)).sum();
        let (actors, first_server) = actors(plan, &segments, &stages, &burst_stages);
        let mut offset = |_| if source.synchronised { 0.0 } else { random.unit() * params.period };
        let probes: Vec<_> =
            (0..source.probes).map(|p| Probe { offset: offset(p), triggers: 0, busy_until: 0 }).collect();
        let counters = Counters::new(burst_stages.len(), params.slots);
        let mut engine = Self {
            plan,
            seed,
            end: picoseconds(seconds),
            random,
            heap: BinaryHeap::with_capacity(actors.len()),
            acting: 0,
            first_server,
            senders: (0..source.streams()).map(|_| Sender::default()).collect(),
            stages,
            segments,
            lanes: vec![VecDeque::new(); lanes],
            assemblies: vec![Assembly::default(); source.streams() as usize],
            free_slots: vec![params.slots; plan.receiver.count as usize],
            groups,
            params,
            counters,
            probes,
            actors,
        };
        for probe in 0..source.probes {
            let first = engine.probes[probe as usize].offset as Time;
            engine.schedule(first, engine.actors.len() - (source.probes - probe) as usize);
        }
        engine
    }

    /// Schedules an actor, which must not have an entry in the heap.
    fn schedule(&mut self, time: Time, actor: usize) {
        self.heap.push(Reverse((u128::from(time) << u32::BITS) | actor as u128));
    }

    /// Runs the simulation to the end.
    pub(super) fn run(mut self, progress: &mut dyn FnMut(f64)) -> Outcome {
        let mut events = 0_u64;
        while let Some(Reverse(first)) = self.heap.pop() {
            let (now, actor) = ((first >> u32::BITS) as Time, first as u32 as usize);
            if now >= self.end {
                break;
            }
            self.acting = actor;
            let next = match self.actors[actor] {
                Actor::Sender(stream) => {
                    self.senders[actor].scheduled = false;
                    let next = self.send(now, stream);
                    self.senders[actor].scheduled = next.is_some();
                    next
                }
                Actor::Lane { segment, lane } => self.arrive(now, segment as usize, lane as usize),
                Actor::Server { stage, receiver, unit } => {
                    self.finish_service(now, stage as usize, receiver as usize, unit as usize)
                }
                Actor::Probe(probe) => self.trigger(now, probe),
            };
            if let Some(next) = next {
                self.schedule(next, actor);
            }
            events += 1;
            if events.is_multiple_of(REPORT_EVERY) {
                progress(now as f64 / self.end as f64);
            }
        }
        self.outcome()
    }

    /// Processes a trigger or a period of the instrument's own pace; returns the time of the next.
    fn trigger(&mut self, now: Time, index: u32) -> Option<Time> {
        let source = &self.plan.source;
        let probe = &mut self.probes[index as usize];
        probe.triggers += 1;
        self.counters.triggers += 1;
        let next = match source.random {
            true => now.saturating_add((self.random.exponential() * self.params.period) as Time),
            false => (probe.offset + probe.triggers as f64 * self.params.period) as Time,
        };
        // An overlap of up to one millionth of the busy time is rounding, not a missed trigger.
        if now + self.params.busy / 1_000_000 + 1 < probe.busy_until {
            self.counters.missed += 1;
        } else {
            probe.busy_until = now + self.params.busy;
            for stream in index * source.links..(index + 1) * source.links {
                self.add_burst(now + self.params.sampling, stream);
            }
        }
        Some(next.max(now + 1))
    }

    /// Adds a burst that can be sent from `ready` on.
    fn add_burst(&mut self, ready: Time, stream: u32) {
        self.counters.bursts.generated += 1;
        self.counters.generated += u64::from(self.params.packets);
        let sender = &mut self.senders[stream as usize];
        if sender.waiting.len() >= self.params.bursts_waiting {
            self.counters.overrun += u64::from(self.params.packets);
            self.counters.bursts.dropped += 1;
            return;
        }
        let is_idle = sender.waiting.is_empty() && !sender.scheduled;
        sender.waiting.push_back((ready, sender.next_number));
        sender.next_number += 1;
        if is_idle {
            sender.scheduled = true;
            self.schedule(ready, stream as usize);
        }
    }

    /// Sends a stream's next packet to the first stage if its burst is ready; returns the time of the following packet.
    fn send(&mut self, now: Time, stream: u32) -> Option<Time> {
        let sender = &mut self.senders[stream as usize];
        let (sampled_at, number) = sender.waiting.front().copied()?;
        if sampled_at > now {
            return Some(sampled_at);
        }
        sender.sent += 1;
        let last = sender.sent == self.params.packets;
        if last {
            sender.sent = 0;
            sender.waiting.pop_front();
        }
        let packet = Packet { sampled_at, number, stream, bytes: self.params.bytes[usize::from(last)], last };
        let mut next = now;
        if self.segments.is_empty() {
            self.assemble(now, packet);
        } else {
            let departure = self.pass(0, now, packet);
            if self.params.driven && departure.is_some() {
                return None; // its arrival after the line sends the next packet
            }
            if self.params.paced {
                next = departure.unwrap_or(now.saturating_add(self.stages[0].service(&packet)));
            }
        }
        let (ready, _) = self.senders[stream as usize].waiting.front()?;
        Some(next.max(*ready))
    }

    /// Passes a packet through a segment; returns its departure time from the first stage, `None` if dropped there.
    fn pass(&mut self, segment: usize, mut now: Time, packet: Packet) -> Option<Time> {
        let Segment { stages, first_lane } = self.segments[segment].clone();
        let mut departure = None;
        for stage in &mut self.stages[stages.clone()] {
            match stage.admit(now, &packet) {
                Some(time) => now = time,
                None => return departure,
            }
            departure = departure.or(Some(now));
        }
        let unit = self.stages[stages.end - 1].unit_of(packet.stream) as usize;
        let lane = &mut self.lanes[first_lane + unit];
        lane.push_back((now, packet));
        let actor = self.senders.len() + first_lane + unit;
        if lane.len() == 1 && actor != self.acting {
            self.schedule(now, actor);
        }
        departure
    }

    /// Processes the arrival of a lane's head after its segment; returns the arrival time of the next.
    fn arrive(&mut self, now: Time, segment: usize, lane: usize) -> Option<Time> {
        let (_, packet) = self.lanes[lane].pop_front()?;
        self.stages[self.segments[segment].stages.end - 1].depart(&packet);
        if segment + 1 < self.segments.len() {
            self.pass(segment + 1, now, packet);
        } else {
            self.assemble(now, packet);
        }
        let stream = packet.stream as usize;
        if segment == 0
            && self.params.driven
            && !self.senders[stream].scheduled
            && let Some(next) = self.send(now, packet.stream)
        {
            self.senders[stream].scheduled = true;
            self.schedule(next, stream);
        }
        self.lanes[lane].front().map(|(next, _)| *next)
    }

    /// Places a packet in its burst's buffer.
    fn assemble(&mut self, now: Time, packet: Packet) {
        let (stream, receiver) = (packet.stream as usize, self.params.receiver_of[packet.stream as usize] as usize);
        let open = self.assemblies[stream];
        if open.state != AssemblyState::Idle && open.number != packet.number {
            self.close(now, stream, receiver);
        }
        let expected = self.assemblies[stream].number;
        let assembly = &mut self.assemblies[stream];
        if assembly.state == AssemblyState::Idle {
            self.counters.bursts.lost += packet.number - expected;
            let free = &mut self.free_slots[receiver];
            let state = if *free == 0 { AssemblyState::Refused } else { AssemblyState::Placed };
            *assembly = Assembly { number: packet.number, sampled_at: packet.sampled_at, packets: 0, state };
            if state == AssemblyState::Placed {
                *free -= 1;
                self.counters.min_free_slots = self.counters.min_free_slots.min(*free);
            }
        }
        self.counters.placed += 1;
        if assembly.state == AssemblyState::Refused {
            self.counters.no_buffer += 1;
        } else {
            assembly.packets += 1;
            self.counters.packet_latency.add(now - packet.sampled_at);
        }
        if packet.last {
            self.close(now, stream, receiver);
        }
    }

    /// Ends the assembly of a burst.
    fn close(&mut self, now: Time, stream: usize, receiver: usize) {
        let assembly = &mut self.assemblies[stream];
        let Assembly { number, sampled_at, packets, state } = *assembly;
        *assembly = Assembly { number: number + 1, ..Assembly::default() };
        match state {
            AssemblyState::Idle => {}
            AssemblyState::Refused => self.counters.bursts.dropped += 1,
            AssemblyState::Placed => {
                let job = Job { sampled_at, packets, complete: packets == self.params.packets };
                self.forward(now, 0, receiver, job);
            }
        }
    }

    /// Passes a burst to a stage of bursts, or delivers it after the last one.
    fn forward(&mut self, now: Time, stage: usize, receiver: usize, job: Job) {
        let Some(groups) = self.groups.get_mut(stage) else { return self.deliver(now, receiver, job) };
        let counters = &mut self.counters.sinks[stage];
        counters.arrived += u64::from(job.packets);
        match groups[receiver].admit(now, job, &mut self.random) {
            Admission::Started(unit, done) => {
                let units = self.groups[stage][receiver].units();
                self.schedule(done, self.first_server[stage] + receiver * units + unit);
            }
            Admission::Queued => counters.max_queued = counters.max_queued.max(groups[receiver].waiting() as u64),
            Admission::Dropped(job) => {
                counters.dropped += u64::from(job.packets);
                self.counters.bursts.dropped += 1;
                self.free_slots[receiver] += 1;
            }
        }
    }

    /// Ends the service of a burst; returns the end of service of the unit's next burst.
    fn finish_service(&mut self, now: Time, stage: usize, receiver: usize, unit: usize) -> Option<Time> {
        let (job, next) = self.groups[stage][receiver].finish(now, unit, &mut self.random);
        if let Some(job) = job {
            self.forward(now, stage + 1, receiver, job);
        }
        next
    }

    fn deliver(&mut self, now: Time, receiver: usize, job: Job) {
        self.free_slots[receiver] += 1;
        let counters = &mut self.counters;
        counters.delivered += u64::from(job.packets);
        *(if job.complete { &mut counters.bursts.complete } else { &mut counters.bursts.partial }) += 1;
        counters.burst_latency.add(now - job.sampled_at);
        let interval = (now as u128 * INTERVALS as u128 / u128::from(self.end)) as usize;
        let share = f64::from(job.packets) / f64::from(self.params.packets);
        counters.intervals[interval.min(INTERVALS - 1)] += (self.params.burst_bytes as f64 * share) as u64;
    }

    /// Returns the number of packets at senders, in lanes, in assembly and in stages of bursts.
    fn in_flight(&self) -> u64 {
        let packets = u64::from(self.params.packets);
        let senders = self.senders.iter().map(|s| s.waiting.len() as u64 * packets - u64::from(s.sent));
        let lanes = self.lanes.iter().map(|lane| lane.len() as u64);
        let open = self.assemblies.iter().filter(|a| a.state == AssemblyState::Placed).map(|a| u64::from(a.packets));
        let groups = self.groups.iter().flatten().map(Group::packets);
        senders.chain(lanes).chain(open).chain(groups).sum()
    }

    fn outcome(self) -> Outcome {
        let (counters, end) = (&self.counters, self.end);
        let seconds = end as f64 * PICOSECOND;
        let (packet_stages, burst_stages) = self.plan.stages.split_at(self.stages.len());
        let share = |busy: u128, units: usize, planned: &Stage| {
            let available = planned.stall.map_or(1.0, |stall| stall.availability());
            busy as f64 / (end as f64 * units as f64 * available)
        };
        let first = if matches!(self.plan.source.burst, Burst::Shot { .. }) { "probe" } else { "source" };
        let mut drops = vec![(first.to_owned(), DropCause::Overrun, counters.overrun)];
        let mut stages = Vec::new();
        for (planned, stage) in packet_stages.iter().zip(&self.stages) {
            drops.push((planned.name.clone(), DropCause::WireGap, stage.counters.dropped));
            stages.push(StageOutcome {
                name: planned.name.clone(),
                packets: stage.counters.arrived,
                dropped: stage.counters.dropped,
                busy_share: share(stage.counters.busy, stage.units(), planned),
                high_water_bytes: stage.counters.high_water,
            });
        }
        drops.push(("pool".into(), DropCause::NoBuffer, counters.no_buffer));
        stages.push(StageOutcome {
            name: "pool".into(),
            packets: counters.placed,
            dropped: counters.no_buffer,
            busy_share: 0.0,
            high_water_bytes: (self.params.slots - counters.min_free_slots) * self.params.slot_bytes,
        });
        for ((planned, groups), sink) in burst_stages.iter().zip(&self.groups).zip(&counters.sinks) {
            drops.push((planned.name.clone(), DropCause::SinkBusy, sink.dropped));
            stages.push(StageOutcome {
                name: planned.name.clone(),
                packets: sink.arrived,
                dropped: sink.dropped,
                busy_share: share(groups.iter().map(Group::busy).sum(), groups.iter().map(Group::units).sum(), planned),
                high_water_bytes: sink.max_queued * self.params.slot_bytes,
            });
        }
        let drops: Vec<_> = drops
            .into_iter()
            .filter(|(_, _, packets)| *packets > 0)
            .map(|(stage, cause, packets)| DropCount { stage, cause: cause.name(), packets })
            .collect();
        let bursts = &counters.bursts;
        Outcome {
            simulated_s: seconds,
            seed: self.seed,
            triggers: counters.triggers,
            triggers_missed: counters.missed,
            bursts: Bursts {
                in_flight: bursts.generated - bursts.complete - bursts.partial - bursts.dropped - bursts.lost,
                ..*bursts
            },
            packets: Packets {
                generated: counters.generated,
                delivered: counters.delivered,
                dropped: drops.iter().map(|drop| drop.packets).sum(),
                in_flight: self.in_flight(),
            },
            drops,
            stages,
            pool_slots: self.params.slots,
            pool_high_water_slots: self.params.slots - counters.min_free_slots,
            packet_latency: counters.packet_latency.percentiles(),
            burst_latency: counters.burst_latency.percentiles(),
            rate: counters.rates(seconds),
        }
    }
}

impl Counters {
    fn new(sinks: usize, slots: u64) -> Self {
        Self {
            triggers: 0,
            missed: 0,
            bursts: Bursts::default(),
            generated: 0,
            delivered: 0,
            overrun: 0,
            no_buffer: 0,
            placed: 0,
            sinks: vec![SinkCounters::default(); sinks],
            packet_latency: Histogram::new(),
            burst_latency: Histogram::new(),
            intervals: vec![0; INTERVALS],
            min_free_slots: slots,
        }
    }

    fn rates(&self, seconds: f64) -> Rates {
        let mut sorted = self.intervals.clone();
        sorted.sort_unstable();
        let at =
            |share: f64| sorted[(share * (INTERVALS - 1) as f64) as usize] as f64 * 8.0 / seconds * INTERVALS as f64;
        Rates {
            mean_bits_per_s: sorted.iter().sum::<u64>() as f64 * 8.0 / seconds,
            p1_bits_per_s: at(0.01),
            p50_bits_per_s: at(0.5),
            p99_bits_per_s: at(0.99),
        }
    }
}

/// Returns the actors in the order of their numbers, and the number of the first server of each stage of bursts.
fn actors(
    plan: &Plan,
    segments: &[Segment],
    stages: &[PacketStage],
    burst_stages: &[&Stage],
) -> (Vec<Actor>, Vec<usize>) {
    let source = &plan.source;
    let mut actors: Vec<_> = (0..source.streams()).map(Actor::Sender).collect();
    for (index, segment) in segments.iter().enumerate() {
        let lanes = segment.first_lane..segment.first_lane + segment.lanes(stages);
        actors.extend(lanes.map(|lane| Actor::Lane { segment: index as u32, lane: lane as u32 }));
    }
    let mut first_server = Vec::new();
    for (stage, planned) in burst_stages.iter().enumerate() {
        first_server.push(actors.len());
        for receiver in 0..plan.receiver.count {
            actors.extend((0..planned.count).map(|unit| Actor::Server { stage: stage as u32, receiver, unit }));
        }
    }
    actors.extend((0..source.probes).map(Actor::Probe));
    (actors, first_server)
}

/// Splits the stages where packets of several units meet, and around shared buffers, whose events must be ordered.
fn segments(stages: &[PacketStage]) -> Vec<Segment> {
    let (mut segments, mut first, mut first_lane) = (Vec::new(), 0, 0);
    for (index, stage) in stages.iter().enumerate() {
        let fused = stages
            .get(index + 1)
            .is_some_and(|next| !stage.shares_buffers() && !next.shares_buffers() && stage.feeds_in_order(next));
        if !fused {
            segments.push(Segment { stages: first..index + 1, first_lane });
            first_lane += stage.units();
            first = index + 1;
        }
    }
    segments
}
