//! Time counters of pipeline stages.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of one stage, updated by its thread once per block and readable from any thread.
#[derive(Debug, Default)]
pub struct AtomicCounters {
    blocks: AtomicU64,
    bytes: AtomicU64,
    busy_ns: AtomicU64,
    starved_ns: AtomicU64,
    stalled_ns: AtomicU64,
    paced_ns: AtomicU64,
    waiting: AtomicU64,
}

/// Times of one block in a stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockTimes {
    /// Bytes of samples.
    pub bytes: u64,
    /// Working time in ns.
    pub busy_ns: u64,
    /// Time waiting for a block in ns.
    pub starved_ns: u64,
    /// Time waiting for the next stage in ns.
    pub stalled_ns: u64,
    /// Time waiting for the pacing limit in ns.
    pub paced_ns: u64,
    /// Blocks queued after this one when it was taken.
    pub waiting: u64,
}

impl AtomicCounters {
    /// Adds the times of a finished block.
    pub fn add(&self, block: &BlockTimes) {
        for (count, more) in [
            (&self.blocks, 1),
            (&self.bytes, block.bytes),
            (&self.busy_ns, block.busy_ns),
            (&self.starved_ns, block.starved_ns),
            (&self.stalled_ns, block.stalled_ns),
            (&self.paced_ns, block.paced_ns),
            (&self.waiting, block.waiting),
        ] {
            count.fetch_add(more, Relaxed);
        }
    }

    /// Returns the counters so far.
    pub fn stage(&self, name: &'static str) -> StageCounters {
        let read = |count: &AtomicU64| count.load(Relaxed);
        let seconds = |count: &AtomicU64| read(count) as f64 * 1e-9;
        StageCounters {
            name,
            blocks: read(&self.blocks),
            bytes: read(&self.bytes),
            busy_s: seconds(&self.busy_ns),
            starved_s: seconds(&self.starved_ns),
            stalled_s: seconds(&self.stalled_ns),
            paced_s: seconds(&self.paced_ns),
            queue_length_sum: read(&self.waiting),
        }
    }
}

/// Counters of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StageCounters {
    /// Name of the stage.
    pub name: &'static str,
    /// Blocks processed.
    pub blocks: u64,
    /// Bytes of samples in these blocks.
    pub bytes: u64,
    /// Working time in seconds.
    pub busy_s: f64,
    /// Time waiting for a block from the previous stage, in seconds.
    pub starved_s: f64,
    /// Time waiting for the next stage, in seconds.
    pub stalled_s: f64,
    /// Time waiting for the pacing limit, in seconds.
    pub paced_s: f64,
    /// Queue length before the stage, summed over all blocks taken; divided by [`Self::blocks`], the mean occupancy.
    pub queue_length_sum: u64,
}

impl StageCounters {
    /// Returns the difference to `before`, an earlier reading of the same stage.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            name: self.name,
            blocks: self.blocks - before.blocks,
            bytes: self.bytes - before.bytes,
            busy_s: self.busy_s - before.busy_s,
            starved_s: self.starved_s - before.starved_s,
            stalled_s: self.stalled_s - before.stalled_s,
            paced_s: self.paced_s - before.paced_s,
            queue_length_sum: self.queue_length_sum - before.queue_length_sum,
        }
    }

    /// Returns the sample throughput during working time in Gbit/s, which is the stage's limit without waits.
    pub fn busy_gbit_s(&self) -> f64 {
        if self.busy_s > 0.0 { self.bytes as f64 * 8e-9 / self.busy_s } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_report_their_working_rate_and_differences() {
        let counters = AtomicCounters::default();
        assert_eq!(counters.stage("send").busy_gbit_s(), 0.0);
        let block = BlockTimes {
            bytes: 1_000_000,
            busy_ns: 1_000_000,
            starved_ns: 3_000_000,
            waiting: 2,
            ..BlockTimes::default()
        };
        counters.add(&block);
        let before = counters.stage("send");
        counters.add(&block);
        let after = counters.stage("send");
        assert!((after.busy_gbit_s() - 8.0).abs() < 1e-9);
        let since = after.since(&before);
        assert_eq!((since.blocks, since.bytes, since.queue_length_sum), (1, 1_000_000, 2));
        assert!((since.starved_s - 0.003).abs() < 1e-12);
    }
}
