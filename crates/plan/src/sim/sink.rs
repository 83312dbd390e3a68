//! What follows the packets: assembly in buffers of a pool, and stages of whole bursts.

use super::random::Random;
use super::time::{Time, picoseconds};
use super::unit::Stalls;
use crate::plan::{Policy, Stage};
use std::collections::VecDeque;

/// A burst that has been assembled, in its buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// When its instrument had it.
    pub(super) made: Time,
    /// Packets that are there.
    pub(super) packets: u32,
    /// Whether all are.
    pub(super) complete: bool,
}

/// A stream's burst under assembly.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Assembly {
    /// Its number, and that of the next burst to come when none is open.
    pub(super) number: u64,
    pub(super) made: Time,
    pub(super) packets: u32,
    pub(super) state: Open,
}

/// Whether a burst is under assembly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Open {
    /// None is.
    #[default]
    No,
    /// One is, in a buffer.
    Placed,
    /// No buffer was free for it.
    Refused,
}

/// Units of one stage in one receiver, with one queue before them.
#[derive(Debug)]
pub(super) struct Group {
    queue: VecDeque<Job>,
    /// The burst that each unit works on.
    working: Vec<Option<Job>>,
    stalls: Vec<Option<Stalls>>,
    service: f64,
    spread: f64,
    /// Work so far, without stalls.
    busy: u128,
    /// Bursts that may wait.
    room: usize,
    policy: Policy,
}

/// What becomes of a burst that comes to a group.
#[derive(Debug)]
pub(super) enum Came {
    /// A unit begins with it and will be done at this time.
    Begun(usize, Time),
    /// It waits.
    Waits,
    /// It waits, or is itself given up, and this one is dropped.
    Drops(Job),
}

impl Group {
    pub(super) fn new(stage: &Stage, burst_s: f64, slot_bytes: u64, random: &mut Random) -> Self {
        let units = stage.count as usize;
        let room = stage.buffer_bytes.map_or(usize::MAX, |bytes| (bytes / slot_bytes as f64) as usize * units);
        Self {
            queue: VecDeque::new(),
            working: vec![None; units],
            stalls: (0..units).map(|_| stage.stall.map(|stall| Stalls::new(stall, random.unit()))).collect(),
            service: burst_s,
            spread: stage.spread,
            busy: 0,
            room: if stage.policy == Policy::Block { usize::MAX } else { room },
            policy: stage.policy,
        }
    }

    /// A burst comes.
    pub(super) fn take(&mut self, now: Time, job: Job, random: &mut Random) -> Came {
        if let Some(unit) = self.working.iter().position(Option::is_none) {
            return Came::Begun(unit, self.begin(now, unit, job, random));
        }
        if self.queue.len() < self.room {
            self.queue.push_back(job);
            return Came::Waits;
        }
        match (self.policy, self.queue.pop_front()) {
            (Policy::DropOldest, Some(oldest)) => {
                self.queue.push_back(job);
                Came::Drops(oldest)
            }
            (_, Some(oldest)) => {
                self.queue.push_front(oldest);
                Came::Drops(job)
            }
            (_, None) => Came::Drops(job),
        }
    }

    /// A unit is done: its burst, and when it will be done with the next.
    pub(super) fn done(&mut self, now: Time, unit: usize, random: &mut Random) -> (Option<Job>, Option<Time>) {
        let job = self.working[unit].take();
        let next = self.queue.pop_front().map(|job| self.begin(now, unit, job, random));
        (job, next)
    }

    fn begin(&mut self, now: Time, unit: usize, job: Job, random: &mut Random) -> Time {
        self.working[unit] = Some(job);
        let factor = if self.spread > 0.0 { random.lognormal(self.spread) } else { 1.0 };
        let service = picoseconds(self.service * factor).max(1);
        self.busy += u128::from(service);
        self.stalls[unit].map_or(now.saturating_add(service), |stalls| stalls.done(now, service))
    }

    /// Work so far, without stalls, in picoseconds.
    pub(super) fn busy(&self) -> u128 {
        self.busy
    }

    /// Units.
    pub(super) fn units(&self) -> usize {
        self.working.len()
    }

    /// Bursts that wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Packets of all bursts that are here.
    pub(super) fn packets(&self) -> u64 {
        let working = self.working.iter().flatten();
        self.queue.iter().chain(working).map(|job| u64::from(job.packets)).sum()
    }
}
