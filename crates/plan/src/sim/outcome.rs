//! What a simulation showed.

use super::histogram::Percentiles;
use serde::Serialize;

/// What a simulation showed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Simulated time.
    pub seconds: f64,
    /// Seed of everything that varies.
    pub seed: u64,
    /// Triggers of all instruments.
    pub triggers: u64,
    /// Triggers that came while an instrument was busy.
    pub missed: u64,
    /// Every burst of every stream.
    pub bursts: Bursts,
    /// Every packet of those.
    pub packets: Packets,
    /// What was dropped, by stage and cause.
    pub drops: Vec<Drop>,
    /// Every stage.
    pub stages: Vec<StageOutcome>,
    /// Buffers of a receiver's pool.
    pub pool_slots: u64,
    /// Buffers that were in use at once, of the receiver that used most.
    pub pool_high_water_slots: u64,
    /// From the end of sampling to the last packet stage, for each packet.
    pub packet_latency: Percentiles,
    /// From the end of sampling to the end of the last stage, for each burst that was delivered.
    pub burst_latency: Percentiles,
    /// What was delivered in each thousandth of the time.
    pub rate: Rates,
}

/// Bursts by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bursts {
    /// Made.
    pub made: u64,
    /// Delivered whole.
    pub complete: u64,
    /// Delivered with packets missing.
    pub partial: u64,
    /// Dropped as a whole: at the instrument, for want of a buffer, before a stage of bursts.
    pub dropped: u64,
    /// Of which no packet came through.
    pub lost: u64,
    /// Under way at the end.
    pub in_flight: u64,
}

/// Packets by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Packets {
    /// Made.
    pub made: u64,
    /// Delivered in a burst, complete or partial.
    pub delivered: u64,
    /// Dropped, at all stages.
    pub dropped: u64,
    /// Counted one by one where they were at the end.
    pub in_flight: u64,
}

/// What was dropped at one stage for one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drop {
    /// The stage.
    pub stage: String,
    /// The cause, as in recordings: `overrun` at the instrument, `wire_gap` in a queue of packets, `no_buffer`,
    /// `sink_busy`.
    pub cause: &'static str,
    /// Packets.
    pub packets: u64,
}

/// What a stage has seen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageOutcome {
    /// Its name.
    pub name: String,
    /// Packets that came.
    pub packets: u64,
    /// Packets that it dropped.
    pub dropped: u64,
    /// Share of the time without stalls for which its units worked, on the average.
    pub busy_share: f64,
    /// Most bytes that were in one of its queues at once, with those being served.
    pub high_water_bytes: u64,
}

/// Delivered payload, in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Rates {
    pub mean_bits_per_s: f64,
    pub p1_bits_per_s: f64,
    pub p50_bits_per_s: f64,
    pub p99_bits_per_s: f64,
}
