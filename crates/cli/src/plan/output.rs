//! What the command prints.

use serde::Serialize;
use shotline_plan::Report;
use shotline_plan::papers::Check;
use shotline_plan::sim::Outcome;

/// All that the command tells.
#[derive(Serialize)]
pub struct Told {
    /// Number of the paper whose figures it is compared with.
    #[serde(skip)]
    pub paper: Option<u8>,
    #[serde(flatten)]
    pub report: Report,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulation: Option<Simulation>,
}

/// A simulation and what it took.
#[derive(Serialize)]
pub struct Simulation {
    #[serde(flatten)]
    pub outcome: Outcome,
    pub wall_s: f64,
    pub packets_per_wall_s: f64,
}
