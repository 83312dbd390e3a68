//! Targets in this process.

use super::error::Failed;
use super::memory::{Region, memory_of};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use shotline_library::endpoint::{ServedRegion, ServedTarget, TargetOptions, rights};

/// The native part of a target in this process.
#[pyclass(frozen, module = "shotline._native")]
pub struct Served(ServedTarget);

#[pymethods]
impl Served {
    /// `regions`: name, length or region, rights. `addresses`: of the memory's traffic, and of control connections.
    #[new]
    fn new(
        py: Python<'_>,
        regions: Vec<(String, Bound<'_, PyAny>, String)>,
        transport: String,
        addresses: (Option<String>, Option<String>),
        token: Option<String>,
        strict_ib: bool,
        initiators: usize,
    ) -> PyResult<Self> {
        let mut served = Vec::with_capacity(regions.len());
        for (name, what, letters) in &regions {
            let memory = memory_of(py, what, "heap")?;
            let rights = rights(letters).map_err(Failed::from)?;
            served.push(ServedRegion { name: name.clone(), memory, rights });
        }
        let (bind, listen) = addresses;
        let options = TargetOptions { transport, bind, listen, token, strict_ib, initiators };
        Ok(Self(py.detach(|| ServedTarget::serve(served, &options)).map_err(Failed::from)?))
    }

    #[getter]
    fn address(&self) -> String {
        self.0.address().to_string()
    }

    #[getter]
    fn token(&self) -> String {
        self.0.token().to_string()
    }

    fn regions(&self) -> Vec<(String, Region)> {
        let region = |served: &ServedRegion| (served.name.clone(), Region::unregistered(served.memory.clone()));
        self.0.regions().iter().map(region).collect()
    }

    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = py.detach(|| self.0.state()).map_err(Failed::from)?;
        let dict = PyDict::new(py);
        dict.set_item("initiators", state.initiators)?;
        dict.set_item("welcomed", state.welcomed)?;
        dict.set_item("wrong_token", state.wrong_token)?;
        for (served, usage) in self.0.regions().iter().zip(state.usage.into_iter().flatten()) {
            let counts = PyDict::new(py);
            counts.set_item("writes", usage.writes)?;
            counts.set_item("bytes_in", usage.bytes_in)?;
            counts.set_item("reads", usage.reads)?;
            counts.set_item("bytes_out", usage.bytes_out)?;
            counts.set_item("atomics", usage.atomics)?;
            dict.set_item(format!("region {}", served.name), counts)?;
        }
        Ok(dict)
    }

    fn close(&self, py: Python<'_>) -> Result<(), Failed> {
        Ok(py.detach(|| self.0.close())?)
    }
}
