//! Final report of an emulated probe.

use crate::Result;
use crate::output::{CpuTime, Report, print_report};
use serde::Serialize;
use shotline_instrument::probe::ProbeCounters;

/// The JSON object of an emulated probe.
#[derive(Serialize)]
struct ProbeReport {
    #[serde(flatten)]
    counters: ProbeCounters,
    #[serde(flatten)]
    cpu: CpuTime,
}

impl Report for ProbeReport {
    fn print(&self) -> Result {
        for (index, link) in self.counters.links.iter().enumerate() {
            errln!("link {index}: {}", serde_json::to_string(link)?);
        }
        if let Some(last) = &self.counters.failures.last_error {
            errln!("{} runs ended because a shot could not be sent: {last}", self.counters.failures.runs);
        }
        Ok(())
    }
}

/// Prints the final report.
pub(super) fn report(counters: ProbeCounters, json: bool) -> Result {
    print_report(json, &ProbeReport { counters, cpu: CpuTime::now() })
}
