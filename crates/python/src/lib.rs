//! The native part of the Python package `shotline`.
//!
//! It opens recordings, returns their tables as columns, and reads and unpacks slots with several threads directly into
//! numpy's memory, with the interpreter's lock released. Names, slices and the rest of the public interface are in
//! `python/shotline/`; `python/shotline/_native.pyi` declares the interface between the two.

mod dsp;
mod error;
mod record;
mod recording;
mod verbs;

use pyo3::prelude::*;

/// The native part of the package.
#[pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::dsp::{DownConverter, Spectrum};
    use crate::error::Failure;
    #[pymodule_export]
    use crate::error::RunError;
    #[pymodule_export]
    use crate::record::{Emulator, Event, Probe, Recorder, Slot};
    #[pymodule_export]
    use crate::recording::Recording;
    #[pymodule_export]
    use crate::verbs::{
        Completion, Completions, Connection, Element, Pair, Receive, Region, RemoteAddress, RemoteRegion, Request,
        Served, read_token,
    };
    use numpy::{PyReadonlyArray1, PyReadwriteArray1};
    use pyo3::prelude::*;
    use shotline_compute::pack12 as kernels;
    use shotline_wire::shot::DropCause;

    /// Returns the names of the drop causes, by number.
    #[pyfunction]
    fn causes() -> Vec<&'static str> {
        DropCause::ALL.map(DropCause::name).to_vec()
    }

    /// Unpacks 12-bit samples, on this thread.
    #[pyfunction]
    fn unpack12(
        py: Python<'_>,
        bytes: PyReadonlyArray1<'_, u8>,
        mut out: PyReadwriteArray1<'_, i16>,
    ) -> Result<(), Failure> {
        let (bytes, out) = (bytes.as_slice()?, out.as_slice_mut()?);
        check_lengths(out.len(), bytes.len())?;
        py.detach(|| kernels::unpack(bytes, out));
        Ok(())
    }

    /// Packs the low 12 bits of samples, on this thread.
    #[pyfunction]
    fn pack12(
        py: Python<'_>,
        samples: PyReadonlyArray1<'_, i16>,
        mut out: PyReadwriteArray1<'_, u8>,
    ) -> Result<(), Failure> {
        let (samples, out) = (samples.as_slice()?, out.as_slice_mut()?);
        check_lengths(samples.len(), out.len())?;
        py.detach(|| kernels::pack(samples, out));
        Ok(())
    }

    fn check_lengths(samples: usize, bytes: usize) -> Result<(), Failure> {
        if samples % 2 == 1 || samples / 2 * 3 != bytes {
            return Err(Failure::Value(format!(
                "expected an even number of samples and 3 bytes for every 2, found {samples} samples and {bytes} bytes"
            )));
        }
        Ok(())
    }
}
