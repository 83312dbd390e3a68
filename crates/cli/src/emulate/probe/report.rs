//! What an emulated probe reports in the end.

use crate::Result;
use crate::output::CpuTime;
use serde::Serialize;
use shotline_instrument::probe::Stats;

/// The JSON object of an emulated probe.
#[derive(Serialize)]
struct Ended {
    #[serde(flatten)]
    stats: Stats,
    #[serde(flatten)]
    cpu: CpuTime,
}

/// Tells what was done.
pub(super) fn report(stats: Stats, json: bool) -> Result {
    if json {
        outln!("{}", serde_json::to_string(&Ended { stats, cpu: CpuTime::now() })?);
    } else {
        for (link, counts) in stats.links.iter().enumerate() {
            errln!("link {link}: {}", serde_json::to_string(counts)?);
        }
        if let Some(last) = &stats.failures.last {
            errln!("{} runs ended because a shot could not be sent: {last}", stats.failures.runs);
        }
    }
    Ok(())
}
