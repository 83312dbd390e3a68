//! Utilisation of each stage of a pipeline, to find the one that limits it.
//!
//! A stage's time is divided into *busy* (working), *starved* (no input from the stage before) and *stalled* (no space
//! in the stage after it). The stage that is busy while its neighbours wait is the limit.

use serde::Serialize;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// State of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageState {
    /// Working.
    Busy,
    /// Without input.
    Starved,
    /// Without space for its output.
    Stalled,
}

/// Counters of a stage: written by its thread, read by any.
#[derive(Debug, Default)]
pub struct Stage {
    busy_ns: AtomicU64,
    starved_ns: AtomicU64,
    stalled_ns: AtomicU64,
    bytes: AtomicU64,
    /// Integral over time of the fill level of its input queue, in ns.
    filled_ns: AtomicU64,
}

impl Stage {
    /// Adds some time in a state, during which the stage's input queue was `filled` (0 to 1).
    pub(crate) fn add_time(&self, state: StageState, duration: Duration, filled: f64) {
        let ns = duration.as_nanos() as u64;
        let counter = match state {
            StageState::Busy => &self.busy_ns,
            StageState::Starved => &self.starved_ns,
            StageState::Stalled => &self.stalled_ns,
        };
        // There is one writer, so no atomic addition is needed.
        let add = |counter: &AtomicU64, ns: u64| counter.store(counter.load(Relaxed) + ns, Relaxed);
        add(counter, ns);
        add(&self.filled_ns, (ns as f64 * filled) as u64);
    }
    /// Sets the number of bytes that have passed.
    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Relaxed);
    }

    /// Returns the current utilisation.
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
            seconds: (busy + starved + stalled) as f64 / 1e9,
        }
    }
}

/// Utilisation of a stage since the start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// Name of the stage.
    pub stage: &'static str,
    /// Throughput in Gbit/s.
    pub gbps: f64,
    /// Throughput in Gbit/s while busy: the upper bound if the stage never waited.
    pub busy_gbps: f64,
    /// Fraction of the time that the stage was working.
    pub busy: f64,
    /// Fraction of the time without input.
    pub starved: f64,
    /// Fraction of the time without space for output.
    pub stalled: f64,
    /// Mean fill level of its input queue, 0 to 1.
    pub occupancy: f64,
    /// Time that the fractions refer to.
    #[serde(skip)]
    pub seconds: f64,
}

/// Limit of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bottleneck {
    /// The sender: no stage of this program is busy most of the time.
    Sender,
    /// The stage of this name.
    Stage(&'static str),
}

impl Bottleneck {
    /// Returns the busiest stage, if it was busy for more than 90 % of its time.
    pub fn of(stages: &[Reading]) -> Self {
        let busiest = stages.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
        busiest.filter(|stage| stage.busy > SATURATED).map_or(Self::Sender, |stage| Self::Stage(stage.stage))
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sender => "the sender",
            Self::Stage(name) => name,
        })
    }
}

/// Fraction of its time above which a stage counts as saturated.
const SATURATED: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busy_stage_is_the_limit() {
        let (receive, store) = (Stage::default(), Stage::default());
        let second = Duration::from_secs(1);
        receive.add_time(StageState::Busy, second, 0.0);
        receive.add_time(StageState::Starved, second, 0.0);
        store.add_time(StageState::Busy, second / 2, 0.25);
        store.add_time(StageState::Starved, second, 0.0);
        receive.set_bytes(1 << 30);
        let read = || [receive.read("receive"), store.read("store")];
        assert_eq!(Bottleneck::of(&read()), Bottleneck::Sender);
        assert!((read()[0].gbps - 4.295).abs() < 0.01 && (read()[0].busy_gbps - 8.590).abs() < 0.01);
        assert!((read()[1].occupancy - 0.25 / 3.0).abs() < 0.01);
        store.add_time(StageState::Busy, 100 * second, 1.0);
        receive.add_time(StageState::Stalled, 100 * second, 0.0);
        assert_eq!(Bottleneck::of(&read()).to_string(), "store");
    }

    #[test]
    fn an_idle_pipeline_is_limited_by_the_sender() {
        let idle = Stage::default().read("store");
        assert_eq!((Bottleneck::of(&[idle]), idle.busy_gbps), (Bottleneck::Sender, 0.0));
    }
}
