//! Requests to a probe.

use crate::error::Failure;
use pyo3::prelude::*;
use shotline_acquire::config::peer;
use shotline_library::Probe as Handle;
use shotline_wire::setup::Report;

/// A probe that takes set-up.
#[pyclass(frozen, module = "shotline._native")]
pub struct Probe(Handle);

/// Returns a link's report with the names of the Python class `ProbeStatus`.
fn status(report: &Report) -> serde_json::Value {
    serde_json::json!({
        "link": report.link,
        "running": report.running,
        "owned_by_other": report.is_owned_by_other,
        "next_shot": report.next_shot,
        "shots_sent": report.shots_sent,
        "packets_sent": report.packets_sent,
        "triggers_missed": report.triggers_missed,
        "lost": report.lost,
        "duplicated": report.duplicated,
        "reordered": report.reordered,
        "corrupted": report.corrupted,
    })
}

#[pymethods]
impl Probe {
    #[new]
    fn open(py: Python<'_>, address: &str, take_over: bool) -> Result<Self, Failure> {
        // Waits for the resolver, if it is a name.
        py.detach(|| {
            let address = peer(address).map_err(Failure::Value)?;
            Ok(Self(Handle::open(address, take_over)?))
        })
    }

    #[getter]
    fn address(&self) -> String {
        self.0.address().to_string()
    }

    /// Returns the properties of the probe, as JSON.
    fn describe(&self, py: Python<'_>) -> Result<String, Failure> {
        let describe = py.detach(|| self.0.describe())?;
        let about = serde_json::json!({
            "model": describe.model.as_str(),
            "links": describe.links,
            "channels": describe.channels,
            "bits": describe.bits,
            "packing": describe.packing.name(),
            "sample_rate_hz": describe.sample_rate_hz,
            "max_samples": describe.max_samples,
        });
        Ok(about.to_string())
    }

    /// Returns the state and the counters of a link, as JSON.
    fn status(&self, py: Python<'_>, link: u8) -> Result<String, Failure> {
        Ok(status(&py.detach(|| self.0.status(link))?).to_string())
    }

    /// Stops sending. Returns the reports of all links, as JSON.
    fn stop(&self, py: Python<'_>) -> Result<String, Failure> {
        let reports = py.detach(|| self.0.stop())?;
        Ok(serde_json::Value::from_iter(reports.iter().map(status)).to_string())
    }

    /// Sends a trigger command, and returns the number of its shot.
    fn trigger(&self, py: Python<'_>, command_only: bool) -> Result<u64, Failure> {
        Ok(py.detach(|| self.0.trigger(command_only))?)
    }
}
