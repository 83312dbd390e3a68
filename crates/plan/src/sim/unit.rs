//! Stages of packets: FIFO servers with a finite buffer.

use super::random::Random;
use super::time::{Time, picoseconds};
use crate::formula::queue::Stall;
use crate::plan::{Kind, Plan, Policy, Stage};
use std::collections::VecDeque;

/// Default queue capacity per unit of a packet stage in bytes.
pub const DEFAULT_BUFFER_BYTES: f64 = 67_108_864.0;

/// A packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    /// Time at which the instrument had sampled its burst.
    pub(super) sampled_at: Time,
    /// Number of its burst in its stream.
    pub(super) number: u64,
    pub(super) stream: u32,
    pub(super) bytes: u32,
    /// Last packet of its burst.
    pub(super) last: bool,
}

/// Stall schedule of a unit, in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stalls {
    phase: u64,
    duration: u64,
    period: u64,
}

impl Stalls {
    /// Creates a schedule. `phase`, from 0 to 1, is the position of the first stall in a period.
    pub(super) fn new(stall: Stall, phase: f64) -> Self {
        let period = picoseconds(stall.every_s).max(2);
        let duration = picoseconds(stall.seconds).clamp(1, period - 1);
        Self { phase: ((period as f64 * phase) as u64).min(period - 1), duration, period }
    }

    /// Returns the end of a service of length `service` that begins at `start`, interrupted by stalls.
    pub(super) fn end_of_service(&self, start: u64, service: u64) -> u64 {
        // Position of `start` in its period, from the beginning of the stall.
        let offset = start % self.period;
        let at = if offset >= self.phase { offset - self.phase } else { self.period - self.phase + offset };
        let begun = start.saturating_add(self.duration.saturating_sub(at));
        let left = self.period - at.max(self.duration); // until the next stall
        if service <= left {
            return begun.saturating_add(service);
        }
        let work = self.period - self.duration; // per period
        let rest = service - left;
        let periods = (rest - 1) / work;
        let stalled = periods.saturating_add(1).saturating_mul(self.duration);
        begun.saturating_add(service).saturating_add(stalled)
    }
}

/// A server with its queue.
#[derive(Debug)]
struct Unit {
    free_at: Time,
    stalls: Option<Stalls>,
    /// Bytes queued or in service.
    backlog: u64,
    /// Departure times and lengths of these packets; unused with a shared buffer.
    departures: VecDeque<(Time, u32)>,
}

impl Unit {
    /// Serves a packet that arrives at `now` and returns its departure time.
    fn serve(&mut self, now: Time, service: Time) -> Time {
        let start = now.max(self.free_at);
        self.free_at = match &self.stalls {
            None => start.saturating_add(service),
            Some(stalls) => stalls.end_of_service(start, service),
        };
        self.free_at
    }

    /// Removes packets that have left by `now` from the backlog.
    fn expire(&mut self, now: Time) {
        while let Some((_, bytes)) = self.departures.front().filter(|(departure, _)| *departure <= now) {
            self.backlog -= u64::from(*bytes);
            self.departures.pop_front();
        }
    }
}

/// A stage of packets with all its units.
#[derive(Debug)]
pub(super) struct PacketStage {
    /// Unit of each stream.
    route: Vec<u32>,
    units: Vec<Unit>,
    /// Service time of a packet, and of the last packet of a burst.
    service: [Time; 2],
    /// Capacity of a buffer in bytes.
    capacity: u64,
    /// Number of units per shared buffer and the bytes in each such buffer, if buffers are shared.
    shared: Option<(u32, Vec<u64>)>,
    pub(super) counters: StageCounters,
}

/// Counters of a packet stage.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StageCounters {
    pub(super) arrived: u64,
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
        let capacity = stage.buffer_bytes.unwrap_or(DEFAULT_BUFFER_BYTES);
        Self {
            route: (0..plan.source.streams()).map(|stream| plan.unit(stage, stream)).collect(),
            units: (0..units)
                .map(|_| Unit { free_at: 0, stalls: stalls(random), backlog: 0, departures: VecDeque::new() })
                .collect(),
            service: [bytes, last].map(|bytes| picoseconds(stage.packet_s(bytes)).max(1)),
            capacity: if stage.policy == Policy::Block { u64::MAX } else { capacity as u64 },
            shared,
            counters: StageCounters::default(),
        }
    }

    /// Returns `true` if each unit of `next` receives packets of only one unit of this stage, and therefore in order.
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

    /// Processes the arrival of a packet at `now`; returns its departure time, or `None` if it is dropped.
    pub(super) fn admit(&mut self, now: Time, packet: &Packet) -> Option<Time> {
        let (number, service) = (self.route[packet.stream as usize], self.service(packet));
        let unit = &mut self.units[number as usize];
        unit.expire(now);
        let backlog = match &mut self.shared {
            Some((ports, backlogs)) => &mut backlogs[(number / *ports) as usize],
            None => &mut unit.backlog,
        };
        self.counters.arrived += 1;
        let with_packet = *backlog + u64::from(packet.bytes);
        if with_packet > self.capacity {
            self.counters.dropped += 1;
            return None;
        }
        *backlog = with_packet;
        self.counters.high_water = self.counters.high_water.max(with_packet);
        self.counters.busy += u128::from(service);
        let departure = unit.serve(now, service);
        if self.shared.is_none() {
            unit.departures.push_back((departure, packet.bytes));
        }
        Some(departure)
    }

    /// Removes a departed packet from a shared buffer. Units with their own buffers track departures themselves.
    pub(super) fn depart(&mut self, packet: &Packet) {
        if let Some((ports, backlogs)) = &mut self.shared {
            backlogs[(self.route[packet.stream as usize] / *ports) as usize] -= u64::from(packet.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stalls from 30 to 50, 130 to 150 and so on.
    fn stalls() -> Stalls {
        Stalls { phase: 30, duration: 20, period: 100 }
    }

    #[test]
    fn stalls_interrupt_service_without_losing_work() {
        let cases = [(0, 10, 10), (0, 30, 30), (0, 31, 51), (35, 5, 55), (50, 80, 130), (50, 81, 151), (0, 191, 251)];
        for (start, service, done) in cases {
            assert_eq!(stalls().end_of_service(start, service), done, "{service} from {start}");
        }
    }

    #[test]
    fn a_stalled_unit_works_for_its_availability() {
        let mut unit = Unit { free_at: 0, stalls: Some(stalls()), backlog: 0, departures: VecDeque::new() };
        let mut last = 0;
        for _ in 0..80_000 {
            last = unit.serve(0, 1);
        }
        assert!(last.abs_diff(100_000) <= 20, "{last}");
    }
}
