//! Stages of packets: first-in-first-out servers with a buffer before them.

use super::random::Random;
use super::time::{Time, picoseconds};
use crate::formula::queue::Stall;
use crate::plan::{Kind, Plan, Policy, Stage};
use std::collections::VecDeque;

/// Bytes that may wait before a unit of a stage of packets if the plan does not say.
pub const DEFAULT_BUFFER_BYTES: f64 = 67_108_864.0;

/// One packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    /// When its instrument had it.
    pub(super) made: Time,
    /// The number of its burst in its stream.
    pub(super) number: u64,
    pub(super) stream: u32,
    pub(super) bytes: u32,
    /// Whether it is the last of its burst.
    pub(super) last: bool,
}

/// When a unit stops, in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stalls {
    phase: u64,
    seconds: u64,
    every: u64,
}

impl Stalls {
    /// `phase` from 0 to 1 says where in a period the first stall begins.
    pub(super) fn new(stall: Stall, phase: f64) -> Self {
        let every = picoseconds(stall.every_s).max(2);
        let seconds = picoseconds(stall.seconds).clamp(1, every - 1);
        Self { phase: ((every as f64 * phase) as u64).min(every - 1), seconds, every }
    }

    /// When work of `service` that begins at `start` is done: it rests during stalls.
    pub(super) fn done(&self, start: u64, service: u64) -> u64 {
        // Where in a period `start` is, counted from the beginning of its stall.
        let inside = start % self.every;
        let at = if inside >= self.phase { inside - self.phase } else { self.every - self.phase + inside };
        let begun = start.saturating_add(self.seconds.saturating_sub(at));
        let left = self.every - at.max(self.seconds); // until the next stall
        if service <= left {
            return begun.saturating_add(service);
        }
        let work = self.every - self.seconds; // in each period
        let rest = service - left;
        let periods = (rest - 1) / work;
        let stalled = periods.saturating_add(1).saturating_mul(self.seconds);
        begun.saturating_add(service).saturating_add(stalled)
    }
}

/// A server and what waits for it.
#[derive(Debug)]
struct Unit {
    free_at: Time,
    stalls: Option<Stalls>,
    /// Bytes that wait or are served.
    backlog: u64,
    /// When each of them leaves; unused where a buffer is shared.
    leaving: VecDeque<(Time, u32)>,
}

impl Unit {
    /// Serves a packet that comes at `now`; when it leaves.
    fn serve(&mut self, now: Time, service: Time) -> Time {
        let start = now.max(self.free_at);
        self.free_at = match &self.stalls {
            None => start.saturating_add(service),
            Some(stalls) => stalls.done(start, service),
        };
        self.free_at
    }

    /// Forgets what has left by `now`.
    fn settle(&mut self, now: Time) {
        while let Some((_, bytes)) = self.leaving.front().filter(|(leaves, _)| *leaves <= now) {
            self.backlog -= u64::from(*bytes);
            self.leaving.pop_front();
        }
    }
}

/// A stage of packets with all its units.
#[derive(Debug)]
pub(super) struct PacketStage {
    /// The unit that each stream passes.
    route: Vec<u32>,
    units: Vec<Unit>,
    /// Time for a packet, and for the last of a burst.
    service: [Time; 2],
    /// Bytes that a buffer holds.
    room: u64,
    /// Units that share one buffer, and what each such buffer holds, if they do.
    shared: Option<(u32, Vec<u64>)>,
    pub(super) counts: StageCounts,
}

/// What a stage has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StageCounts {
    pub(super) came: u64,
    pub(super) dropped: u64,
    pub(super) busy: u128,
    pub(super) high_water: u64,
}

impl PacketStage {
    pub(super) fn new(plan: &Plan, stage: &Stage, random: &mut Random) -> Self {
        let (bytes, last) = plan.source.burst.packet_bytes();
        let units = plan.units(stage);
        let stalls = |random: &mut Random| stage.stall.map(|stall| Stalls::new(stall, random.unit()));
        let shared = match stage.kind {
            Kind::Switch { ports, .. } if ports > 1 && units > 1 => {
                Some((ports, vec![0; units.div_ceil(ports) as usize]))
            }
            _ => None,
        };
        let room = stage.buffer_bytes.unwrap_or(DEFAULT_BUFFER_BYTES);
        Self {
            route: (0..plan.source.streams()).map(|stream| plan.unit(stage, stream)).collect(),
            units: (0..units)
                .map(|_| Unit { free_at: 0, stalls: stalls(random), backlog: 0, leaving: VecDeque::new() })
                .collect(),
            service: [bytes, last].map(|bytes| picoseconds(stage.packet_s(bytes)).max(1)),
            room: if stage.policy == Policy::Block { u64::MAX } else { room as u64 },
            shared,
            counts: StageCounts::default(),
        }
    }

    /// Whether each unit of `next` gets packets of one unit of this stage only, so that they come in order.
    pub(super) fn feeds_in_order(&self, next: &Self) -> bool {
        let mut from = vec![None; next.units.len()];
        self.route.iter().zip(&next.route).all(|(here, there)| {
            let from = from[*there as usize].get_or_insert(*here);
            from == here
        })
    }

    pub(super) fn shares_buffers(&self) -> bool {
        self.shared.is_some()
    }

    pub(super) fn units(&self) -> usize {
        self.units.len()
    }

    pub(super) fn unit_of(&self, stream: u32) -> u32 {
        self.route[stream as usize]
    }

    pub(super) fn service(&self, packet: &Packet) -> Time {
        self.service[usize::from(packet.last)]
    }

    /// A packet comes at `now`: when it leaves, or nothing if there is no room for it.
    pub(super) fn take(&mut self, now: Time, packet: &Packet) -> Option<Time> {
        let (number, service) = (self.route[packet.stream as usize], self.service(packet));
        let unit = &mut self.units[number as usize];
        unit.settle(now);
        let held = match &mut self.shared {
            Some((ports, held)) => &mut held[(number / *ports) as usize],
            None => &mut unit.backlog,
        };
        self.counts.came += 1;
        let with = *held + u64::from(packet.bytes);
        if with > self.room {
            self.counts.dropped += 1;
            return None;
        }
        *held = with;
        self.counts.high_water = self.counts.high_water.max(with);
        self.counts.busy += u128::from(service);
        let leaves = unit.serve(now, service);
        if self.shared.is_none() {
            unit.leaving.push_back((leaves, packet.bytes));
        }
        Some(leaves)
    }

    /// A packet has left, which is told of stages with shared buffers as it happens: of others each unit knows.
    pub(super) fn left(&mut self, packet: &Packet) {
        if let Some((ports, held)) = &mut self.shared {
            held[(self.route[packet.stream as usize] / *ports) as usize] -= u64::from(packet.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stalls of 20 every 100, at 30 to 50, 130 to 150 and so on.
    fn stalls() -> Stalls {
        Stalls { phase: 30, seconds: 20, every: 100 }
    }

    #[test]
    fn work_rests_during_stalls_and_loses_nothing() {
        let cases = [(0, 10, 10), (0, 30, 30), (0, 31, 51), (35, 5, 55), (50, 80, 130), (50, 81, 151), (0, 191, 251)];
        for (start, service, done) in cases {
            assert_eq!(stalls().done(start, service), done, "{service} from {start}");
        }
    }

    #[test]
    fn a_stalled_unit_works_for_the_share_that_is_left() {
        let mut unit = Unit { free_at: 0, stalls: Some(stalls()), backlog: 0, leaving: VecDeque::new() };
        let mut last = 0;
        for _ in 0..80_000 {
            last = unit.serve(0, 1);
        }
        assert!(last.abs_diff(100_000) <= 20, "{last}");
    }
}
