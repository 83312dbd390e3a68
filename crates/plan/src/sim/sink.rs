//! Assembly of bursts in pool buffers, and stages of whole bursts.

use super::random::Random;
use super::time::{Time, picoseconds};
use super::unit::Stalls;
use crate::plan::{Policy, Stage};
use std::collections::VecDeque;

/// An assembled burst.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Time at which the instrument had sampled it.
    pub(super) sampled_at: Time,
    /// Number of packets present.
    pub(super) packets: u32,
    /// All packets are present.
    pub(super) complete: bool,
}

/// Assembly state of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Assembly {
    /// Number of the burst in assembly, or of the next burst if there is none.
    pub(super) number: u64,
    pub(super) sampled_at: Time,
    pub(super) packets: u32,
    pub(super) state: AssemblyState,
}

/// State of the burst in assembly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AssemblyState {
    /// No burst is in assembly.
    #[default]
    Idle,
    /// The burst has a buffer.
    Placed,
    /// No buffer was free for the burst.
    Refused,
}

/// Units of one stage in one receiver, with a common queue.
#[derive(Debug)]
pub(super) struct Group {
    queue: VecDeque<Job>,
    /// Burst in service at each unit.
    working: Vec<Option<Job>>,
    stalls: Vec<Option<Stalls>>,
    service: f64,
    spread: f64,
    /// Service time so far without stalls, in picoseconds.
    busy: u128,
    /// Maximum number of queued bursts.
    capacity: usize,
    policy: Policy,
}

/// Counters of a stage of bursts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SinkCounters {
    /// Packets in bursts that arrived.
    pub(super) arrived: u64,
    /// Packets in bursts that were dropped.
    pub(super) dropped: u64,
    /// Maximum number of queued bursts.
    pub(super) max_queued: u64,
}

/// Result of a burst's arrival at a group.
#[derive(Debug)]
pub(super) enum Admission {
    /// Service started at this unit and ends at this time.
    Started(usize, Time),
    /// The burst is queued.
    Queued,
    /// This burst was dropped: the arriving one, or the oldest in its favour.
    Dropped(Job),
}

impl Group {
    pub(super) fn new(stage: &Stage, burst_s: f64, slot_bytes: u64, random: &mut Random) -> Self {
        let units = stage.count as usize;
        let capacity = stage.buffer_bytes.map_or(usize::MAX, |bytes| (bytes / slot_bytes as f64) as usize * units);
        Self {
            queue: VecDeque::new(),
            working: vec![None; units],
            stalls: (0..units).map(|_| stage.stall.map(|stall| Stalls::new(stall, random.unit()))).collect(),
            service: burst_s,
            spread: stage.spread,
            busy: 0,
            capacity: if stage.policy == Policy::Block { usize::MAX } else { capacity },
            policy: stage.policy,
        }
    }

    /// Processes the arrival of a burst.
    pub(super) fn admit(&mut self, now: Time, job: Job, random: &mut Random) -> Admission {
        if let Some(unit) = self.working.iter().position(Option::is_none) {
            return Admission::Started(unit, self.start(now, unit, job, random));
        }
        if self.queue.len() < self.capacity {
            self.queue.push_back(job);
            return Admission::Queued;
        }
        match (self.policy, self.queue.pop_front()) {
            (Policy::DropOldest, Some(oldest)) => {
                self.queue.push_back(job);
                Admission::Dropped(oldest)
            }
            (_, Some(oldest)) => {
                self.queue.push_front(oldest);
                Admission::Dropped(job)
            }
            (_, None) => Admission::Dropped(job),
        }
    }

    /// Ends the service at a unit; returns its burst and the end of service of the next one, if any.
    pub(super) fn finish(&mut self, now: Time, unit: usize, random: &mut Random) -> (Option<Job>, Option<Time>) {
        let job = self.working[unit].take();
        let next = self.queue.pop_front().map(|job| self.start(now, unit, job, random));
        (job, next)
    }

    /// Starts service and returns its end.
    fn start(&mut self, now: Time, unit: usize, job: Job, random: &mut Random) -> Time {
        self.working[unit] = Some(job);
        let factor = if self.spread > 0.0 { random.lognormal(self.spread) } else { 1.0 };
        let service = picoseconds(self.service * factor).max(1);
        self.busy += u128::from(service);
        self.stalls[unit].map_or(now.saturating_add(service), |stalls| stalls.end_of_service(now, service))
    }

    /// Returns the service time so far without stalls, in picoseconds.
    pub(super) fn busy(&self) -> u128 {
        self.busy
    }

    /// Returns the number of units.
    pub(super) fn units(&self) -> usize {
        self.working.len()
    }

    /// Returns the number of queued bursts.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of packets of all bursts queued or in service.
    pub(super) fn packets(&self) -> u64 {
        let working = self.working.iter().flatten();
        self.queue.iter().chain(working).map(|job| u64::from(job.packets)).sum()
    }
}
