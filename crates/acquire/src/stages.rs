//! How busy each stage of a pipeline is, so that a run can say which one limits it.
//!
//! A stage's time is divided: *busy* at its work, *starved* of input from the stage before, *stalled* by the stage
//! behind, which has no room. The stage that is busy while its neighbours wait is the one that limits.

use serde::Serialize;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What a stage did with some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// It worked.
    Busy,
    /// It had nothing to work on.
    Starved,
    /// It had nowhere to put its work.
    Stalled,
}

/// A stage's counters: written by its thread, read by anybody.
#[derive(Debug, Default)]
pub struct Stage {
    busy_ns: AtomicU64,
    starved_ns: AtomicU64,
    stalled_ns: AtomicU64,
    bytes: AtomicU64,
    /// Sum over time of how full its input queue was, in ns.
    filled_ns: AtomicU64,
}

impl Stage {
    /// Enters some time, during which `filled` (0 to 1) of the stage's input queue was in use.
    pub(crate) fn spend(&self, how: Spent, time: Duration, filled: f64) {
        let ns = time.as_nanos() as u64;
        let counter = match how {
            Spent::Busy => &self.busy_ns,
            Spent::Starved => &self.starved_ns,
            Spent::Stalled => &self.stalled_ns,
        };
        // One writer: no need to add in one instruction.
        let add = |counter: &AtomicU64, ns: u64| counter.store(counter.load(Relaxed) + ns, Relaxed);
        add(counter, ns);
        add(&self.filled_ns, (ns as f64 * filled) as u64);
    }
    /// Sets the bytes that have passed.
    pub(crate) fn passed(&self, bytes: u64) {
        self.bytes.store(bytes, Relaxed);
    }

    /// The counters now.
    pub fn read(&self, name: &'static str) -> Reading {
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        let (busy, starved, stalled) = (load(&self.busy_ns), load(&self.starved_ns), load(&self.stalled_ns));
        let all = (busy + starved + stalled).max(1) as f64;
        let bits = load(&self.bytes) as f64 * 8.0;
        Reading {
            stage: name,
            gbps: bits / all,
            busy_gbps: if busy > 0 { bits / busy as f64 } else { 0.0 },
            busy: busy as f64 / all,
            starved: starved as f64 / all,
            stalled: stalled as f64 / all,
            occupancy: load(&self.filled_ns) as f64 / all,
        }
    }
}

/// A stage so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// Its name.
    pub stage: &'static str,
    /// Gbit/s that passed through it.
    pub gbps: f64,
    /// Gbit/s while it was busy: what it could do if it never waited.
    pub busy_gbps: f64,
    /// Share of its time at work.
    pub busy: f64,
    /// Share of its time without input.
    pub starved: f64,
    /// Share of its time without room for its output.
    pub stalled: f64,
    /// How full its input queue was, 0 to 1, averaged over time.
    pub occupancy: f64,
}

/// What limits a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Whoever sends: no stage of ours is busy most of the time.
    Sender,
    /// The stage of this name.
    Stage(&'static str),
}

impl Limit {
    /// The stage that was busy for most of its time, of those that were so for more than `SATURATED` of it.
    pub fn of(stages: &[Reading]) -> Self {
        let busiest = stages.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
        busiest.filter(|stage| stage.busy > SATURATED).map_or(Self::Sender, |stage| Self::Stage(stage.stage))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sender => "the sender",
            Self::Stage(name) => name,
        })
    }
}

/// Share of its time above which a stage counts as saturated.
const SATURATED: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stage_that_works_while_others_wait_is_the_limit() {
        let (receive, store) = (Stage::default(), Stage::default());
        let second = Duration::from_secs(1);
        receive.spend(Spent::Busy, second, 0.0);
        receive.spend(Spent::Starved, second, 0.0);
        store.spend(Spent::Busy, second / 2, 0.25);
        store.spend(Spent::Starved, second, 0.0);
        receive.passed(1 << 30);
        let read = || [receive.read("receive"), store.read("store")];
        assert_eq!(Limit::of(&read()), Limit::Sender);
        assert!((read()[0].gbps - 4.295).abs() < 0.01 && (read()[0].busy_gbps - 8.590).abs() < 0.01);
        assert!((read()[1].occupancy - 0.25 / 3.0).abs() < 0.01);
        store.spend(Spent::Busy, 100 * second, 1.0);
        receive.spend(Spent::Stalled, 100 * second, 0.0);
        assert_eq!(Limit::of(&read()).to_string(), "store");
    }

    #[test]
    fn nothing_is_a_limit_before_anything_has_happened() {
        let idle = Stage::default().read("store");
        assert_eq!((Limit::of(&[idle]), idle.busy_gbps), (Limit::Sender, 0.0));
    }
}
