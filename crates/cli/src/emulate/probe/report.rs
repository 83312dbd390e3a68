//! Final report of an emulated probe.

use crate::Result;
use crate::output::{CpuTime, Report, print_report};
use serde::Serialize;
use shotline_instrument::probe::ProbeCounters;

/// The JSON object of an emulated probe.
#[derive(Serialize)]
struct ProbeReport {
    #[serde(flatten)]
    stats: ProbeCounters,
    #[serde(flatten)]
    cpu: CpuTime,
}

impl Report for ProbeReport {
    fn print(&self) -> Result {
        for (link, counts) in self.stats.links.iter().enumerate() {
            errln!("link {link}: {}", serde_json::to_string(counts)?);
        }
        if let Some(last) = &self.stats.failures.last_error {
            errln!("{} runs ended because a shot could not be sent: {last}", self.stats.failures.runs);
        }
        Ok(())
    }
}

/// Prints the final report.
pub(super) fn report(stats: ProbeCounters, json: bool) -> Result {
    print_report(json, &ProbeReport { stats, cpu: CpuTime::now() })
}
