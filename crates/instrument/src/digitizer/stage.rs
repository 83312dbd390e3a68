//! What each stage of a pipeline does with its time.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of one stage, written by its thread once a block and read by anyone.
#[derive(Debug, Default)]
pub struct Meter {
    blocks: AtomicU64,
    bytes: AtomicU64,
    busy_ns: AtomicU64,
    starved_ns: AtomicU64,
    stalled_ns: AtomicU64,
    paced_ns: AtomicU64,
    waiting: AtomicU64,
}

/// What one block took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    /// Bytes of samples.
    pub bytes: u64,
    /// At work.
    pub busy_ns: u64,
    /// Waiting for a block.
    pub starved_ns: u64,
    /// Waiting for room behind it.
    pub stalled_ns: u64,
    /// Held back on purpose, so as not to send faster than the link.
    pub paced_ns: u64,
    /// Blocks that waited behind this one when it was taken.
    pub waiting: u64,
}

impl Meter {
    /// A block is done.
    pub fn add(&self, turn: &Turn) {
        for (count, more) in [
            (&self.blocks, 1),
            (&self.bytes, turn.bytes),
            (&self.busy_ns, turn.busy_ns),
            (&self.starved_ns, turn.starved_ns),
            (&self.stalled_ns, turn.stalled_ns),
            (&self.paced_ns, turn.paced_ns),
            (&self.waiting, turn.waiting),
        ] {
            count.fetch_add(more, Relaxed);
        }
    }

    /// So far.
    pub fn stage(&self, name: &'static str) -> Stage {
        let read = |count: &AtomicU64| count.load(Relaxed);
        let seconds = |count: &AtomicU64| read(count) as f64 * 1e-9;
        Stage {
            name,
            blocks: read(&self.blocks),
            bytes: read(&self.bytes),
            busy_s: seconds(&self.busy_ns),
            starved_s: seconds(&self.starved_ns),
            stalled_s: seconds(&self.stalled_ns),
            paced_s: seconds(&self.paced_ns),
            waiting: read(&self.waiting),
        }
    }
}

/// What a stage has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Stage {
    /// Which.
    pub name: &'static str,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of samples in them.
    pub bytes: u64,
    /// Seconds at work.
    pub busy_s: f64,
    /// Seconds of waiting for a block from the stage before.
    pub starved_s: f64,
    /// Seconds of waiting for room in the stage behind.
    pub stalled_s: f64,
    /// Seconds of being held back on purpose, so as not to send faster than the link.
    pub paced_s: f64,
    /// Blocks that waited before it, summed over the times when it took one: over [`Self::blocks`] the mean occupancy.
    #[serde(rename = "waiting_blocks")]
    pub waiting: u64,
}

impl Stage {
    /// What it did after `before`, which is an earlier count of the same stage.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            name: self.name,
            blocks: self.blocks - before.blocks,
            bytes: self.bytes - before.bytes,
            busy_s: self.busy_s - before.busy_s,
            starved_s: self.starved_s - before.starved_s,
            stalled_s: self.stalled_s - before.stalled_s,
            paced_s: self.paced_s - before.paced_s,
            waiting: self.waiting - before.waiting,
        }
    }

    /// Gbit/s of samples while it was at work: what it could do if nothing held it up.
    pub fn at_work_gbit_s(&self) -> f64 {
        if self.busy_s > 0.0 { self.bytes as f64 * 8e-9 / self.busy_s } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_tells_its_rate_at_work_and_what_it_did_since() {
        let meter = Meter::default();
        assert_eq!(meter.stage("send").at_work_gbit_s(), 0.0);
        let turn = Turn { bytes: 1_000_000, busy_ns: 1_000_000, starved_ns: 3_000_000, waiting: 2, ..Turn::default() };
        meter.add(&turn);
        let before = meter.stage("send");
        meter.add(&turn);
        let after = meter.stage("send");
        assert!((after.at_work_gbit_s() - 8.0).abs() < 1e-9);
        let since = after.since(&before);
        assert_eq!((since.blocks, since.bytes, since.waiting), (1, 1_000_000, 2));
        assert!((since.starved_s - 0.003).abs() < 1e-12);
    }
}
