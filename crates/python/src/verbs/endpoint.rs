//! Endpoints that are connected to a target.

use super::error::Failed;
use super::memory::{Region, memory_of};
use super::queues::{Completions, Pair, seconds};
use super::remote::RemoteRegion;
use crate::error::Failure;
use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rustix::fd::AsRawFd as _;
use shotline_library::endpoint::{EndpointError, Initiator, QueuePairOptions, rights};
use shotline_verbs::api::{Mtu, QpType};
use shotline_verbs::cm::Token;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The native part of a connected endpoint.
#[pyclass(frozen, module = "shotline._native")]
pub struct Connection(Initiator);

#[pymethods]
impl Connection {
    #[new]
    fn new(py: Python<'_>, to: &str, token: &str, transport: &str, bind: Option<&str>) -> Result<Self, Failed> {
        Ok(Self(py.detach(|| Initiator::connect(to, token, transport, bind))?))
    }

    #[getter]
    fn to(&self) -> &str {
        self.0.to()
    }

    #[getter]
    fn transport(&self) -> String {
        self.0.transport().to_string()
    }

    #[getter]
    fn address(&self) -> Option<String> {
        self.0.address().map(|address| address.to_string())
    }

    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    #[getter]
    fn max_operation(&self) -> u64 {
        self.0.welcome().max_operation
    }

    fn is_connected(&self, py: Python<'_>) -> Result<bool, Failed> {
        Ok(py.detach(|| self.0.is_connected())?)
    }

    fn regions(&self, py: Python<'_>) -> Result<Vec<RemoteRegion>, Failed> {
        Ok(py.detach(|| self.0.regions())?.iter().map(RemoteRegion::new).collect())
    }

    fn register(&self, py: Python<'_>, what: &Bound<'_, PyAny>, rights: &str, kind: &str) -> PyResult<Region> {
        let memory = memory_of(py, what, kind)?;
        let access = self::rights(rights).map_err(Failed::from)?;
        let registered = py.detach(|| self.0.register(memory, access)).map_err(Failed::from)?;
        Ok(Region::registered(registered))
    }

    fn create_cq(&self, py: Python<'_>, depth: u32) -> Result<Completions, Failed> {
        Ok(Completions(py.detach(|| self.0.create_cq(depth))?))
    }

    /// `depths`: of the send and the receive queue; `limits`: elements and inline bytes of a request; `receives`: number,
    /// bytes and echo; `retries`: the timeout in seconds and the number of retransmissions.
    #[allow(clippy::too_many_arguments)] // one call of `_verbs.py`, which names them
    fn create_qp(
        &self,
        py: Python<'_>,
        cqs: (Bound<'_, Completions>, Bound<'_, Completions>),
        service: &str,
        depths: (u32, u32),
        limits: (u32, u32),
        receives: (u16, u32, bool),
        retries: (f64, u8),
        service_level: u8,
        mtu: Option<u32>,
    ) -> PyResult<Pair> {
        let service = match service {
            "rc" => QpType::Rc,
            "uc" => QpType::Uc,
            _ => return Err(PyValueError::new_err(format!("expected a service of rc or uc, found {service}"))),
        };
        let expected = |found| PyValueError::new_err(format!("expected a path MTU of 256 to 32768, found {found}"));
        let options = QueuePairOptions {
            service,
            max_send_wr: depths.0,
            max_recv_wr: depths.1,
            max_sge: limits.0,
            max_inline: limits.1,
            receives: (receives.0, receives.1),
            echo: receives.2,
            timeout: seconds(retries.0)?,
            retry_cnt: retries.1,
            service_level,
            mtu: mtu.map_or(Ok(Mtu::MAX), |bytes| Mtu::from_bytes(bytes).ok_or_else(|| expected(bytes)))?,
        };
        let (send, recv) = (&cqs.0.get().0, &cqs.1.get().0);
        Ok(Pair(py.detach(|| self.0.create_qp(send, recv, &options)).map_err(Failed::from)?))
    }

    fn read(
        &self,
        py: Python<'_>,
        region: &Bound<'_, RemoteRegion>,
        offset: u64,
        mut out: PyReadwriteArray1<'_, u8>,
    ) -> PyResult<()> {
        let (region, out) = (region.get().region(), out.as_slice_mut().map_err(Failure::from)?);
        interruptible(py, |interrupted| self.0.read(region, offset, out, interrupted))
    }

    fn write(
        &self,
        py: Python<'_>,
        region: &Bound<'_, RemoteRegion>,
        offset: u64,
        data: PyReadonlyArray1<'_, u8>,
    ) -> PyResult<()> {
        let (region, data) = (region.get().region(), data.as_slice().map_err(Failure::from)?);
        interruptible(py, |interrupted| self.0.write(region, offset, data, interrupted))
    }

    fn fileno(&self) -> Result<i32, Failed> {
        Ok(self.0.fd()?.as_raw_fd())
    }

    fn drive(&self, py: Python<'_>) -> Result<(), Failed> {
        Ok(py.detach(|| self.0.drive())?)
    }

    fn count_loop(&self, begins: bool) {
        self.0.count_loop(begins);
    }

    fn counters(&self, py: Python<'_>) -> Result<BTreeMap<String, u64>, Failed> {
        let counters = py.detach(|| self.0.counters())?;
        let named = [
            ("packets_in", counters.packets_in),
            ("packets_out", counters.packets_out),
            ("retransmitted", counters.retransmitted),
            ("timeouts", counters.timeouts),
            ("packets_copied", counters.packets_copied),
        ];
        let drops = counters.drops.iter().map(|(cause, count)| (format!("drops.{cause}"), *count));
        Ok(named.into_iter().map(|(name, count)| (name.to_owned(), count)).chain(drops).collect())
    }

    fn statistics(&self, py: Python<'_>) -> Result<BTreeMap<&'static str, f64>, Failed> {
        let found = py.detach(|| self.0.statistics())?;
        Ok(BTreeMap::from([
            ("cpu_s", found.cpu_s),
            ("packets_in", found.packets_in as f64),
            ("packets_out", found.packets_out as f64),
            ("retransmitted", found.retransmitted as f64),
            ("timeouts", found.timeouts as f64),
            ("refused", found.refused as f64),
        ]))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}

/// Runs a transfer without the interpreter's lock, which signals of the process interrupt.
fn interruptible(
    py: Python<'_>,
    transfer: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<(), EndpointError> + Send,
) -> PyResult<()> {
    let mut raised = None;
    let done = py.detach(|| {
        transfer(&mut || {
            raised = Python::attach(|py| py.check_signals().err());
            raised.is_some()
        })
    });
    match raised {
        Some(error) => Err(error),
        None => Ok(done.map_err(Failed::from)?),
    }
}

/// Returns the token in a file that only its owner can read.
#[pyfunction]
pub fn read_token(path: PathBuf) -> Result<String, Failed> {
    Ok(Token::read(&path)?.to_string())
}
