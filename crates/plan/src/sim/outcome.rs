//! Results of a simulation.

use super::histogram::Percentiles;
use serde::Serialize;

/// Result of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Simulated time in seconds.
    pub seconds: f64,
    /// Seed of all random times.
    pub seed: u64,
    /// Triggers of all instruments.
    pub triggers: u64,
    /// Triggers that arrived while an instrument was busy.
    pub missed: u64,
    /// Bursts of all streams.
    pub bursts: Bursts,
    /// Packets of all bursts.
    pub packets: Packets,
    /// Dropped packets, by stage and cause.
    pub drops: Vec<DropCount>,
    /// Counters of each stage.
    pub stages: Vec<StageOutcome>,
    /// Number of buffers in a receiver's pool.
    pub pool_slots: u64,
    /// Maximum number of buffers in use at once at any receiver.
    pub pool_high_water_slots: u64,
    /// Latency of packets from the end of sampling to the last packet stage.
    pub packet_latency: Percentiles,
    /// Latency of delivered bursts from the end of sampling to the end of the last stage.
    pub burst_latency: Percentiles,
    /// Delivered rate, over thousandths of the simulated time.
    pub rate: Rates,
}

/// Counters of bursts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bursts {
    /// Made.
    pub made: u64,
    /// Delivered completely.
    pub complete: u64,
    /// Delivered with packets missing.
    pub partial: u64,
    /// Dropped entirely: at the instrument, for lack of a buffer, or before a stage of bursts.
    pub dropped: u64,
    /// Bursts of which no packet arrived.
    pub lost: u64,
    /// In flight at the end.
    pub in_flight: u64,
}

/// Counters of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Packets {
    /// Made.
    pub made: u64,
    /// Delivered in a burst, complete or partial.
    pub delivered: u64,
    /// Dropped, at all stages.
    pub dropped: u64,
    /// In flight at the end, counted at their locations rather than by difference.
    pub in_flight: u64,
}

/// Packets dropped at one stage for one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DropCount {
    /// The stage.
    pub stage: String,
    /// Drop cause, as in recordings: `overrun` at the instrument, `wire_gap` in a queue of packets, `no_buffer`,
    /// `sink_busy`.
    pub cause: &'static str,
    /// Number of packets.
    pub packets: u64,
}

/// Counters of a stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageOutcome {
    /// Name.
    pub name: String,
    /// Packets that arrived.
    pub packets: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Mean share of the time without stalls for which its units were busy.
    pub busy_share: f64,
    /// Maximum bytes in one of its queues, including those in service.
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
