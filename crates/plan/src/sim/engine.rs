//! The events and what they do.
//!
//! Everything that can happen next has a number: a stream's next packet, the head of a lane (packets that have left a
//! unit, in order), a unit of a stage of bursts, an instrument's next trigger. Each has at most one entry in the heap,
//! which so stays as small as the plan, whatever waits in queues. Stages that get each unit's packets in order need
//! no event between them: a packet passes them in one step.

use super::histogram::Histogram;
use super::outcome::{Bursts, Drop, Outcome, Packets, Rates, StageOutcome};
use super::random::Random;
use super::sink::{Assembly, Came, Group, Job, Open};
use super::time::{PICOSECOND, Time, picoseconds};
use super::unit::{Packet, PacketStage};
use crate::plan::{Burst, Per, Plan, Stage, Start};
use shotline_wire::shot::DropCause;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

/// Parts of the time for which rates are told.
const INTERVALS: usize = 1000;
/// Events between two words on progress.
const REPORT_EVERY: u64 = 1 << 18;

/// One stream's instrument: bursts that wait for the first stage.
#[derive(Debug, Default)]
struct Sender {
    /// When each burst was made, and its number.
    waiting: VecDeque<(Time, u64)>,
    /// Packets of the first that have left.
    sent: u32,
    /// Numbers given.
    made: u64,
    /// Whether it is in the heap.
    scheduled: bool,
}

/// An instrument.
#[derive(Debug)]
struct Probe {
    offset: f64,
    triggers: u64,
    busy_until: Time,
}

/// Stages that a packet passes in one step, and the lanes behind the last.
#[derive(Clone, Debug)]
struct Segment {
    stages: Range<usize>,
    first_lane: usize,
}

impl Segment {
    /// Lanes behind its last stage: one for each unit.
    fn lanes(&self, stages: &[PacketStage]) -> usize {
        stages[self.stages.end - 1].units()
    }
}

/// What an event's number means.
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
    /// When, and who: both in one number, the time above.
    heap: BinaryHeap<Reverse<u128>>,
    /// Who acts now: it comes back into the heap when it is done.
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
    /// For each stage of bursts, one group for each receiver.
    groups: Vec<Vec<Group>>,
    shape: Shape,
    books: Books,
}

/// Numbers of the plan that every event needs.
#[derive(Debug)]
struct Shape {
    packets: u32,
    bytes: [u32; 2],
    burst_bytes: u64,
    slot_bytes: u64,
    slots: u64,
    busy: Time,
    sampling: Time,
    period: f64,
    /// Whether the first stage is a line that the instrument drives: it sends a packet when the last has left.
    paced: bool,
    /// Whether each stream has such a line of its own, with an event behind it: then that event sends the next packet.
    driven: bool,
    bursts_waiting: usize,
    receiver_of: Vec<u32>,
}

impl Shape {
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

#[derive(Debug)]
struct Books {
    triggers: u64,
    missed: u64,
    bursts: Bursts,
    made: u64,
    delivered: u64,
    overrun: u64,
    no_buffer: u64,
    placed: u64,
    /// For each stage of bursts: packets that came, packets that were dropped, most bursts that waited.
    sinks: Vec<(u64, u64, u64)>,
    packet_latency: Histogram,
    burst_latency: Histogram,
    intervals: Vec<u64>,
    least_free: u64,
}

impl<'p> Engine<'p> {
    pub(super) fn new(plan: &'p Plan, seconds: f64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let source = &plan.source;
        let mut shape = Shape::new(plan);
        let (packet_stages, burst_stages): (Vec<_>, Vec<_>) =
            plan.stages.iter().partition(|stage| !stage.kind.takes_bursts());
        let stages: Vec<_> = packet_stages.iter().map(|stage| PacketStage::new(plan, stage, &mut random)).collect();
        let segments = segments(&stages);
        let own_line = plan.stages[0].per == Per::Link && segments.first().is_some_and(|first| first.stages.len() == 1);
        shape.driven = shape.paced && own_line;
        let groups: Vec<Vec<_>> = burst_stages
            .iter()
            .map(|stage| {
                let service = stage.burst_s(&source.burst);
                (0..plan.receiver.count).map(|_| Group::new(stage, service, shape.slot_bytes, &mut random)).collect()
            })
            .collect();
        let lanes = segments.iter().map(|segment| segment.lanes(&stages)).sum();
        let (actors, first_server) = actors(plan, &segments, &stages, &burst_stages);
        let mut offset = |_| if source.together { 0.0 } else { random.unit() * shape.period };
        let probes: Vec<_> =
            (0..source.probes).map(|p| Probe { offset: offset(p), triggers: 0, busy_until: 0 }).collect();
        let books = Books::new(burst_stages.len(), shape.slots);
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
            free_slots: vec![shape.slots; plan.receiver.count as usize],
            groups,
            shape,
            books,
            probes,
            actors,
        };
        for probe in 0..source.probes {
            let first = engine.probes[probe as usize].offset as Time;
            engine.at(first, engine.actors.len() - (source.probes - probe) as usize);
        }
        engine
    }

    /// An actor, which must not be waiting for another time, acts at `time`.
    fn at(&mut self, time: Time, actor: usize) {
        self.heap.push(Reverse((u128::from(time) << u32::BITS) | actor as u128));
    }

    /// Runs to the end.
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
                    self.served(now, stage as usize, receiver as usize, unit as usize)
                }
                Actor::Probe(probe) => self.trigger(now, probe),
            };
            if let Some(next) = next {
                self.at(next, actor);
            }
            events += 1;
            if events.is_multiple_of(REPORT_EVERY) {
                progress(now as f64 / self.end as f64);
            }
        }
        self.outcome()
    }

    /// A trigger, or the instrument's own pace; when the next comes.
    fn trigger(&mut self, now: Time, index: u32) -> Option<Time> {
        let source = &self.plan.source;
        let probe = &mut self.probes[index as usize];
        probe.triggers += 1;
        self.books.triggers += 1;
        let next = match source.random {
            true => now.saturating_add((self.random.exponential() * self.shape.period) as Time),
            false => (probe.offset + probe.triggers as f64 * self.shape.period) as Time,
        };
        // What is within a millionth of the busy time is rounding, not a missed trigger.
        if now + self.shape.busy / 1_000_000 + 1 < probe.busy_until {
            self.books.missed += 1;
        } else {
            probe.busy_until = now + self.shape.busy;
            for stream in index * source.links..(index + 1) * source.links {
                self.make(now + self.shape.sampling, stream);
            }
        }
        Some(next.max(now + 1))
    }

    /// A burst exists from `ready` on.
    fn make(&mut self, ready: Time, stream: u32) {
        self.books.bursts.made += 1;
        self.books.made += u64::from(self.shape.packets);
        let sender = &mut self.senders[stream as usize];
        if sender.waiting.len() >= self.shape.bursts_waiting {
            self.books.overrun += u64::from(self.shape.packets);
            self.books.bursts.dropped += 1;
            return;
        }
        let idle = sender.waiting.is_empty() && !sender.scheduled;
        sender.waiting.push_back((ready, sender.made));
        sender.made += 1;
        if idle {
            sender.scheduled = true;
            self.at(ready, stream as usize);
        }
    }

    /// A stream's next packet goes to the first stage, if its burst is there; when the one after it does.
    fn send(&mut self, now: Time, stream: u32) -> Option<Time> {
        let sender = &mut self.senders[stream as usize];
        let (made, number) = sender.waiting.front().copied()?;
        if made > now {
            return Some(made);
        }
        sender.sent += 1;
        let last = sender.sent == self.shape.packets;
        if last {
            sender.sent = 0;
            sender.waiting.pop_front();
        }
        let packet = Packet { made, number, stream, bytes: self.shape.bytes[usize::from(last)], last };
        let mut next = now;
        if self.segments.is_empty() {
            self.assemble(now, packet);
        } else {
            let left = self.pass(0, now, packet);
            if self.shape.driven && left.is_some() {
                return None; // its arrival behind the line sends the next
            }
            if self.shape.paced {
                next = left.unwrap_or(now.saturating_add(self.stages[0].service(&packet)));
            }
        }
        let (ready, _) = self.senders[stream as usize].waiting.front()?;
        Some(next.max(*ready))
    }

    /// A packet passes a segment's stages; when it has left the first of them, if there was room.
    fn pass(&mut self, segment: usize, mut now: Time, packet: Packet) -> Option<Time> {
        let Segment { stages, first_lane } = self.segments[segment].clone();
        let mut left = None;
        for stage in &mut self.stages[stages.clone()] {
            match stage.take(now, &packet) {
                Some(leaves) => now = leaves,
                None => return left,
            }
            left = left.or(Some(now));
        }
        let unit = self.stages[stages.end - 1].unit_of(packet.stream) as usize;
        let lane = &mut self.lanes[first_lane + unit];
        lane.push_back((now, packet));
        let actor = self.senders.len() + first_lane + unit;
        if lane.len() == 1 && actor != self.acting {
            self.at(now, actor);
        }
        left
    }

    /// The head of a lane arrives behind its segment; when the next does.
    fn arrive(&mut self, now: Time, segment: usize, lane: usize) -> Option<Time> {
        let (_, packet) = self.lanes[lane].pop_front()?;
        self.stages[self.segments[segment].stages.end - 1].left(&packet);
        if segment + 1 < self.segments.len() {
            self.pass(segment + 1, now, packet);
        } else {
            self.assemble(now, packet);
        }
        let stream = packet.stream as usize;
        if segment == 0
            && self.shape.driven
            && !self.senders[stream].scheduled
            && let Some(next) = self.send(now, packet.stream)
        {
            self.senders[stream].scheduled = true;
            self.at(next, stream);
        }
        self.lanes[lane].front().map(|(next, _)| *next)
    }

    /// A packet is placed in its burst's buffer.
    fn assemble(&mut self, now: Time, packet: Packet) {
        let (stream, receiver) = (packet.stream as usize, self.shape.receiver_of[packet.stream as usize] as usize);
        let open = self.assemblies[stream];
        if open.state != Open::No && open.number != packet.number {
            self.close(now, stream, receiver);
        }
        let expected = self.assemblies[stream].number;
        let assembly = &mut self.assemblies[stream];
        if assembly.state == Open::No {
            self.books.bursts.lost += packet.number - expected;
            let free = &mut self.free_slots[receiver];
            let state = if *free == 0 { Open::Refused } else { Open::Placed };
            *assembly = Assembly { number: packet.number, made: packet.made, packets: 0, state };
            if state == Open::Placed {
                *free -= 1;
                self.books.least_free = self.books.least_free.min(*free);
            }
        }
        self.books.placed += 1;
        if assembly.state == Open::Refused {
            self.books.no_buffer += 1;
        } else {
            assembly.packets += 1;
            self.books.packet_latency.add(now - packet.made);
        }
        if packet.last {
            self.close(now, stream, receiver);
        }
    }

    /// Nothing more comes of a burst.
    fn close(&mut self, now: Time, stream: usize, receiver: usize) {
        let assembly = &mut self.assemblies[stream];
        let Assembly { number, made, packets, state } = *assembly;
        *assembly = Assembly { number: number + 1, ..Assembly::default() };
        match state {
            Open::No => {}
            Open::Refused => self.books.bursts.dropped += 1,
            Open::Placed => {
                let job = Job { made, packets, complete: packets == self.shape.packets };
                self.hand(now, 0, receiver, job);
            }
        }
    }

    /// A burst comes to a stage of bursts, or to the end.
    fn hand(&mut self, now: Time, stage: usize, receiver: usize, job: Job) {
        let Some(groups) = self.groups.get_mut(stage) else { return self.deliver(now, receiver, job) };
        let counts = &mut self.books.sinks[stage];
        counts.0 += u64::from(job.packets);
        match groups[receiver].take(now, job, &mut self.random) {
            Came::Begun(unit, done) => {
                let units = self.groups[stage][receiver].units();
                self.at(done, self.first_server[stage] + receiver * units + unit);
            }
            Came::Waits => counts.2 = counts.2.max(groups[receiver].waiting() as u64),
            Came::Drops(job) => {
                counts.1 += u64::from(job.packets);
                self.books.bursts.dropped += 1;
                self.free_slots[receiver] += 1;
            }
        }
    }

    /// A unit of a stage of bursts is done; when it will be done with the next.
    fn served(&mut self, now: Time, stage: usize, receiver: usize, unit: usize) -> Option<Time> {
        let (job, next) = self.groups[stage][receiver].done(now, unit, &mut self.random);
        if let Some(job) = job {
            self.hand(now, stage + 1, receiver, job);
        }
        next
    }

    fn deliver(&mut self, now: Time, receiver: usize, job: Job) {
        self.free_slots[receiver] += 1;
        let books = &mut self.books;
        books.delivered += u64::from(job.packets);
        *(if job.complete { &mut books.bursts.complete } else { &mut books.bursts.partial }) += 1;
        books.burst_latency.add(now - job.made);
        let interval = (now as u128 * INTERVALS as u128 / u128::from(self.end)) as usize;
        let share = f64::from(job.packets) / f64::from(self.shape.packets);
        books.intervals[interval.min(INTERVALS - 1)] += (self.shape.burst_bytes as f64 * share) as u64;
    }

    /// Packets wherever they are now.
    fn in_flight(&self) -> u64 {
        let packets = u64::from(self.shape.packets);
        let senders = self.senders.iter().map(|s| s.waiting.len() as u64 * packets - u64::from(s.sent));
        let lanes = self.lanes.iter().map(|lane| lane.len() as u64);
        let open = self.assemblies.iter().filter(|a| a.state == Open::Placed).map(|a| u64::from(a.packets));
        let groups = self.groups.iter().flatten().map(Group::packets);
        senders.chain(lanes).chain(open).chain(groups).sum()
    }

    fn outcome(self) -> Outcome {
        let (books, end) = (&self.books, self.end);
        let seconds = end as f64 * PICOSECOND;
        let (packet_stages, burst_stages) = self.plan.stages.split_at(self.stages.len());
        let share = |busy: u128, units: usize, of: &Stage| {
            let available = of.stall.map_or(1.0, |stall| stall.availability());
            busy as f64 / (end as f64 * units as f64 * available)
        };
        let first = if matches!(self.plan.source.burst, Burst::Shot { .. }) { "probe" } else { "source" };
        let mut drops = vec![(first.to_owned(), DropCause::Overrun, books.overrun)];
        let mut stages = Vec::new();
        for (of, stage) in packet_stages.iter().zip(&self.stages) {
            drops.push((of.name.clone(), DropCause::WireGap, stage.counts.dropped));
            stages.push(StageOutcome {
                name: of.name.clone(),
                packets: stage.counts.came,
                dropped: stage.counts.dropped,
                busy_share: share(stage.counts.busy, stage.units(), of),
                high_water_bytes: stage.counts.high_water,
            });
        }
        drops.push(("pool".into(), DropCause::NoBuffer, books.no_buffer));
        stages.push(StageOutcome {
            name: "pool".into(),
            packets: books.placed,
            dropped: books.no_buffer,
            busy_share: 0.0,
            high_water_bytes: (self.shape.slots - books.least_free) * self.shape.slot_bytes,
        });
        for ((of, groups), (came, dropped, waited)) in burst_stages.iter().zip(&self.groups).zip(&books.sinks) {
            drops.push((of.name.clone(), DropCause::SinkBusy, *dropped));
            stages.push(StageOutcome {
                name: of.name.clone(),
                packets: *came,
                dropped: *dropped,
                busy_share: share(groups.iter().map(Group::busy).sum(), groups.iter().map(Group::units).sum(), of),
                high_water_bytes: waited * self.shape.slot_bytes,
            });
        }
        let drops: Vec<_> = drops
            .into_iter()
            .filter(|(_, _, packets)| *packets > 0)
            .map(|(stage, cause, packets)| Drop { stage, cause: cause.name(), packets })
            .collect();
        let bursts = &books.bursts;
        Outcome {
            seconds,
            seed: self.seed,
            triggers: books.triggers,
            missed: books.missed,
            bursts: Bursts {
                in_flight: bursts.made - bursts.complete - bursts.partial - bursts.dropped - bursts.lost,
                ..*bursts
            },
            packets: Packets {
                made: books.made,
                delivered: books.delivered,
                dropped: drops.iter().map(|drop| drop.packets).sum(),
                in_flight: self.in_flight(),
            },
            drops,
            stages,
            pool_slots: self.shape.slots,
            pool_high_water_slots: self.shape.slots - books.least_free,
            packet_latency: books.packet_latency.percentiles(),
            burst_latency: books.burst_latency.percentiles(),
            rate: books.rates(seconds),
        }
    }
}

impl Books {
    fn new(sinks: usize, slots: u64) -> Self {
        Self {
            triggers: 0,
            missed: 0,
            bursts: Bursts::default(),
            made: 0,
            delivered: 0,
            overrun: 0,
            no_buffer: 0,
            placed: 0,
            sinks: vec![(0, 0, 0); sinks],
            packet_latency: Histogram::new(),
            burst_latency: Histogram::new(),
            intervals: vec![0; INTERVALS],
            least_free: slots,
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

/// The actors in the order of their numbers, and the number of the first server of each stage of bursts.
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
    for (stage, of) in burst_stages.iter().enumerate() {
        first_server.push(actors.len());
        for receiver in 0..plan.receiver.count {
            actors.extend((0..of.count).map(|unit| Actor::Server { stage: stage as u32, receiver, unit }));
        }
    }
    actors.extend((0..source.probes).map(Actor::Probe));
    (actors, first_server)
}

/// Splits the stages where packets of several units meet, and before and behind a shared buffer, which must see what
/// comes and goes in the order of time.
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
