//! The same plan, packet by packet: a discrete-event simulation.
//!
//! Instruments send bursts at the pace of their first link. Each stage of packets is a set of first-in-first-out
//! servers with a buffer; a packet that finds no room is dropped there. A receiver takes a buffer of its pool for the
//! first packet of each burst, and has a burst when its last packet or the next burst's first has come. Stages of whole
//! bursts follow, with queues, policies and service times that vary by seed. Where every time is fixed the outcome is
//! that of the formulas; where bursts meet or a drive stops it shows what they cannot.
//!
//! Simplified: a buffer before a stage that blocks (`policy = "block"`) has no end, instead of stopping what is before
//! it; one stream's packets never overtake each other; nothing is damaged.
//!
//! Every packet is accounted for: made = delivered + dropped by stage and cause + under way at the end.

mod engine;
mod histogram;
mod random;
mod sink;
mod unit;

pub use histogram::Percentiles;

use crate::plan::{Kind, Per, Plan, Policy, Stage};
use serde::Serialize;

/// Picoseconds, in seconds.
const PICOSECOND: f64 = 1e-12;
/// Bytes that may wait before a unit of a stage of packets if the plan does not say.
pub const DEFAULT_BUFFER_BYTES: f64 = 67_108_864.0;
/// Longest time that is simulated, in seconds: eleven days.
const LONGEST_S: f64 = 1e6;

/// Picoseconds since the beginning.
type Time = u64;

/// What is longer than ten times the longest run is as long as that, so that sums of a few do not overflow.
fn picoseconds(seconds: f64) -> Time {
    (seconds.min(10.0 * LONGEST_S) / PICOSECOND).round() as Time
}

/// One packet.
#[derive(Clone, Copy, Debug)]
struct Packet {
    /// When its instrument had it.
    made: Time,
    /// The number of its burst in its stream.
    number: u64,
    stream: u32,
    bytes: u32,
    /// Whether it is the last of its burst.
    last: bool,
}

/// Why a simulation cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    /// No time, or too much of it.
    #[error("expected a time to simulate above 0 and up to 1e6 s, found {found} s")]
    Duration {
        /// In seconds.
        found: f64,
    },
}

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

/// Simulates a plan for `seconds` of its own time. `progress` gets the share that is done now and then.
pub fn simulate(plan: &Plan, seconds: f64, seed: u64, progress: &mut dyn FnMut(f64)) -> Result<Outcome, SimError> {
    if !(seconds > 0.0 && seconds <= LONGEST_S) {
        return Err(SimError::Duration { found: seconds });
    }
    let plan = in_sequence(plan);
    Ok(engine::Engine::new(&plan, seconds, seed).run(progress))
}

/// The plan as it is run: stages that do not overlap are one.
fn in_sequence(plan: &Plan) -> Plan {
    if plan.pipelined {
        return plan.clone();
    }
    let stage = Stage {
        name: "in sequence".into(),
        kind: Kind::Accelerator { bits_per_s: plan.sequential_bits_per_s() },
        per: Per::Receiver,
        count: plan.streams_per_receiver(),
        measured_bits_per_s: None,
        buffer_bytes: None,
        policy: Policy::DropNewest,
        stall: None,
        spread: 0.0,
    };
    Plan { stages: vec![stage], pipelined: true, ..plan.clone() }
}
