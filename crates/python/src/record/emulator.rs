//! An emulated probe in this process.

use super::parse;
use crate::error::Failure;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use shotline_instrument::probe::{Config, GivenShots};
use shotline_library::Emulator as Handle;
use std::net::SocketAddr;
use std::sync::Arc;

/// An emulated probe on a thread of its own.
#[pyclass(frozen, module = "shotline._native")]
pub struct Emulator(Handle);

#[pymethods]
impl Emulator {
    /// Starts a probe. `given` are samples in the order shot, sample, channel, with these numbers of each.
    #[new]
    fn start(
        py: Python<'_>,
        config: &str,
        listen: &str,
        given: Option<(PyReadonlyArray1<'_, i16>, (u32, u32, usize))>,
    ) -> Result<Self, Failure> {
        let mut config: Config = parse(config)?;
        let listen: SocketAddr = listen
            .parse()
            .map_err(|_| Failure::Value(format!("expected an address and a port such as [::1]:0, found {listen}")))?;
        if let Some((samples, shape)) = given {
            let given = GivenShots::new(samples.as_slice()?.to_vec(), shape, config.bits, config.packing);
            config.given = Some(Arc::new(given.map_err(|error| Failure::Value(error.to_string()))?));
        }
        Ok(Self(py.detach(|| Handle::start(config, listen))?))
    }

    #[getter]
    fn address(&self) -> String {
        self.0.address().to_string()
    }

    #[getter]
    fn serving(&self) -> bool {
        self.0.is_serving()
    }

    /// Returns the counters of the probe so far, as JSON.
    fn counters(&self) -> Result<String, Failure> {
        serde_json::to_string(&self.0.state()?.counters).map_err(|error| Failure::Value(error.to_string()))
    }

    /// Ends the probe. Returns its counters, as JSON.
    fn close(&self, py: Python<'_>) -> Result<String, Failure> {
        let counters = py.detach(|| self.0.close())?;
        serde_json::to_string(&counters).map_err(|error| Failure::Value(error.to_string()))
    }
}
