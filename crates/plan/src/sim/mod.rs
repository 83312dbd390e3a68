//! Discrete-event simulation of a plan, packet by packet.
//!
//! Instruments send bursts at the pace of their first link. Each stage of packets is a set of FIFO servers with a
//! finite buffer; a packet that does not fit is dropped. A receiver allocates a buffer of its pool for the first packet
//! of each burst and closes the burst with its last packet or the first packet of the next burst. Stages of whole
//! bursts follow, with queues, policies and seeded service times. If all times are constant, the outcome matches the
//! formulas; coinciding bursts and stalling drives show effects that the formulas do not cover.
//!
//! Simplifications: the buffer before a blocking stage (`policy = "block"`) is unbounded instead of applying
//! backpressure; packets of a stream never overtake each other; no data are corrupted.
//!
//! Every packet is accounted for: generated = delivered + dropped by stage and cause + in flight at the end.

mod engine;
mod histogram;
mod outcome;
pub(crate) mod random;
mod sink;
mod time;
mod unit;

pub use histogram::Percentiles;
pub use outcome::{Bursts, DropCount, Outcome, Packets, Rates, StageOutcome};
pub use unit::DEFAULT_BUFFER_BYTES;

use crate::plan::{Kind, Per, Plan, Policy, Stage};
use time::MAX_SECONDS;

/// Reason why a simulation cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    /// The simulated time is out of range.
    #[error("expected a simulated time above 0 and up to 1e6 s, found {found} s")]
    Duration {
        /// Requested time in seconds.
        found: f64,
    },
}

/// Simulates a plan for `seconds` of simulated time. Calls `progress` periodically with the completed share.
///
/// # Errors
/// If the time is not above 0 or is longer than 1e6 s.
pub fn simulate(plan: &Plan, seconds: f64, seed: u64, progress: &mut dyn FnMut(f64)) -> Result<Outcome, SimError> {
    if !(seconds > 0.0 && seconds <= MAX_SECONDS) {
        return Err(SimError::Duration { found: seconds });
    }
    let plan = merge_sequential(plan);
    Ok(engine::Engine::new(&plan, seconds, seed).run(progress))
}

/// Returns the plan to simulate: stages without pipelining are merged into one.
fn merge_sequential(plan: &Plan) -> Plan {
    if plan.pipelined {
        return plan.clone();
    }
    let stage = Stage {
        name: "all stages in sequence".into(),
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
