//! Output of `shotline plan`.

use serde::Serialize;
use shotline_plan::Report;
use shotline_plan::papers::Check;
use shotline_plan::sim::Outcome;

/// Output of the command.
#[derive(Serialize)]
pub struct PlanOutput {
    /// Number of the paper whose figures are compared.
    #[serde(skip)]
    pub paper: Option<u8>,
    #[serde(flatten)]
    pub report: Report,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulation: Option<Simulation>,
}

/// A simulation, with its run time.
#[derive(Serialize)]
pub struct Simulation {
    #[serde(flatten)]
    pub outcome: Outcome,
    pub wall_s: f64,
    pub packets_per_wall_s: f64,
}
