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
mod outcome;
pub(crate) mod random;
mod sink;
mod time;
mod unit;

pub use histogram::Percentiles;
pub use outcome::{Bursts, Drop, Outcome, Packets, Rates, StageOutcome};
pub use unit::DEFAULT_BUFFER_BYTES;

use crate::plan::{Kind, Per, Plan, Policy, Stage};
use time::LONGEST_S;

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
