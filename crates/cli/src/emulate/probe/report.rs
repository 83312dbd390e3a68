//! Final report of an emulated probe.

use crate::Result;
use crate::output::{CpuTime, Report, print_report};
use serde::Serialize;
use shotline_instrument::probe::ProbeCounters;
use shotline_instrument::probe::phantom::PhantomReport;

/// The JSON object of an emulated probe.
#[derive(Serialize)]
struct ProbeReport<'a> {
    #[serde(flatten)]
    counters: &'a ProbeCounters,
    #[serde(flatten)]
    cpu: CpuTime,
}

impl Report for ProbeReport<'_> {
    fn print(&self) -> Result {
        for (index, link) in self.counters.links.iter().enumerate() {
            errln!("link {index}: {}", serde_json::to_string(link)?);
        }
        if let Some(phantom) = &self.counters.source.phantom {
            print_phantom(phantom);
        }
        if let Some(last) = &self.counters.failures.last_error {
            errln!("{} runs ended because a shot could not be sent: {last}", self.counters.failures.runs);
        }
        Ok(())
    }
}

/// Prints the final report.
pub(super) fn report(counters: &ProbeCounters, json: bool) -> Result {
    print_report(json, &ProbeReport { counters, cpu: CpuTime::now() })
}

/// Prints where the contents of a phantom are.
fn print_phantom(phantom: &PhantomReport) {
    let scene = &phantom.scene;
    for wire in &scene.wires {
        errln!("wire at x {:.2} mm, z {:.2} mm", wire.x_m * 1e3, wire.z_m * 1e3);
    }
    let (x, z, radius) = (scene.cyst.x_m * 1e3, scene.cyst.z_m * 1e3, scene.cyst.radius_m * 1e3);
    errln!("cyst at x {x:.2} mm, z {z:.2} mm, radius {radius:.2} mm");
    let (z, amplitude, phases) = (scene.wall.z_m * 1e3, scene.wall.amplitude_m * 1e3, scene.wall.phases);
    errln!("wall at z {z:.2} mm, moving by {amplitude:.3} mm in {phases} frames");
}
