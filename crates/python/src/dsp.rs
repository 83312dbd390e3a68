//! Down-conversion and spectra of numpy arrays, on the caller's thread, with the interpreter's lock released.

use crate::error::Failure;
use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;
use shotline_compute::ddc::{Ddc, DdcConfig, DdcError, Filter, Tuning};
use shotline_compute::spectrum::{Spectrum as Kernel, SpectrumConfig, SpectrumError, Window};

impl From<DdcError> for Failure {
    fn from(error: DdcError) -> Self {
        Self::Value(error.to_string())
    }
}

impl From<SpectrumError> for Failure {
    fn from(error: SpectrumError) -> Self {
        Self::Value(error.to_string())
    }
}

/// A kernel for real samples, or for pairs of I and Q.
enum RealOrIq<R, C> {
    Real(R),
    Iq(C),
}

/// Converts consecutive 16-bit words to pairs.
fn pairs(words: &[i16]) -> Result<&[[i16; 2]], Failure> {
    let (pairs, odd) = words.as_chunks();
    if odd.is_empty() {
        Ok(pairs)
    } else {
        Err(Failure::Value("expected pairs of I and Q, found an odd number".into()))
    }
}

/// A down-converter of one stream.
#[pyclass(module = "shotline._native")]
pub struct DownConverter(RealOrIq<Ddc<i16>, Ddc<[i16; 2]>>);

#[pymethods]
impl DownConverter {
    /// Creates a down-converter. `frequency` is the frequency mixed to zero and the sample rate, in Hz; `design` the
    /// passband and the attenuation in dB of a windowed sinc, which is used if neither taps nor CIC stages are given.
    #[new]
    fn new(
        frequency: (f64, f64),
        decimation: u32,
        design: (f64, f64),
        cic: Option<u32>,
        taps: Option<Vec<f64>>,
        gain: f64,
        iq: bool,
    ) -> Result<Self, Failure> {
        let filter = match (taps, cic) {
            (Some(taps), _) => Filter::Taps(taps),
            (None, Some(stages)) => Filter::Cic { stages },
            (None, None) => Filter::Sinc { passband: design.0, attenuation_db: design.1 },
        };
        let config = DdcConfig { tuning: Tuning::hz(frequency.0, frequency.1)?, decimation, filter, gain };
        Ok(Self(if iq { RealOrIq::Iq(Ddc::new(&config)?) } else { RealOrIq::Real(Ddc::new(&config)?) }))
    }

    /// Returns the number of output samples for the next block of `samples` input samples.
    fn outputs(&self, samples: usize) -> usize {
        match &self.0 {
            RealOrIq::Real(ddc) => ddc.output_len(samples),
            RealOrIq::Iq(ddc) => ddc.output_len(samples),
        }
    }

    /// Down-converts a block. `out` has exactly two elements, I and Q, per output sample.
    fn run(
        &mut self,
        py: Python<'_>,
        words: PyReadonlyArray1<'_, i16>,
        mut out: PyReadwriteArray1<'_, i16>,
    ) -> Result<(), Failure> {
        let (words, out) = (words.as_slice()?, out.as_slice_mut()?);
        let samples = if matches!(self.0, RealOrIq::Real(_)) { words.len() } else { pairs(words)?.len() };
        let needed = 2 * self.outputs(samples);
        if out.len() != needed {
            return Err(Failure::Value(format!("expected space for {needed} numbers, found {}", out.len())));
        }
        let out = out.as_chunks_mut().0;
        py.detach(|| match &mut self.0 {
            RealOrIq::Real(ddc) => ddc.process(words, out),
            RealOrIq::Iq(ddc) => ddc.process(words.as_chunks().0, out),
        });
        Ok(())
    }

    /// Delay of the output, in input samples.
    #[getter]
    fn delay(&self) -> f64 {
        match &self.0 {
            RealOrIq::Real(ddc) => ddc.delay(),
            RealOrIq::Iq(ddc) => ddc.delay(),
        }
    }

    /// Number of real and imaginary parts so far that were clipped to 16 bits.
    #[getter]
    fn clipped(&self) -> u64 {
        match &self.0 {
            RealOrIq::Real(ddc) => ddc.clipped(),
            RealOrIq::Iq(ddc) => ddc.clipped(),
        }
    }
}

/// Peaks as frequency in Hz and power in dBFS; SINAD, SNR in dB; noise in dBFS.
type Summary = (Vec<(f64, f64)>, f64, f64, f64);

/// Averaged spectra.
#[pyclass(module = "shotline._native")]
pub struct Spectrum(RealOrIq<Kernel<i16>, Kernel<[i16; 2]>>);

#[pymethods]
impl Spectrum {
    #[new]
    fn new(
        fft: usize,
        hop: usize,
        window: &str,
        sample_rate_hz: f64,
        threshold_db: f64,
        iq: bool,
    ) -> Result<Self, Failure> {
        let Some(window) = Window::by_name(window) else {
            let names = Window::ALL.map(Window::name).join(", ");
            return Err(Failure::Value(format!("expected a window of {names}, found {window}")));
        };
        let config = SpectrumConfig { fft, hop, window, sample_rate_hz, threshold_db };
        Ok(Self(if iq { RealOrIq::Iq(Kernel::new(&config)?) } else { RealOrIq::Real(Kernel::new(&config)?) }))
    }

    /// Returns the peaks and ratios of a block's spectrum, or None if the block is shorter than a segment.
    fn analyse(&mut self, py: Python<'_>, words: PyReadonlyArray1<'_, i16>) -> Result<Option<Summary>, Failure> {
        let words = words.as_slice()?;
        let iq = pairs(words);
        let summary = match &mut self.0 {
            RealOrIq::Real(spectrum) => py.detach(|| spectrum.analyse(words)),
            RealOrIq::Iq(spectrum) => iq.map(|iq| py.detach(|| spectrum.analyse(iq)))?,
        };
        Ok(summary.map(|summary| {
            let peaks = summary.peaks().iter().map(|peak| (peak.frequency_hz, peak.power_dbfs)).collect();
            (peaks, summary.sinad_db, summary.snr_db, summary.noise_dbfs)
        }))
    }

    /// Returns the power in each bin, or None if the block is shorter than a segment.
    fn average(&mut self, py: Python<'_>, words: PyReadonlyArray1<'_, i16>) -> Result<Option<Vec<f64>>, Failure> {
        let words = words.as_slice()?;
        let iq = pairs(words);
        let power = match &mut self.0 {
            RealOrIq::Real(spectrum) => py.detach(|| spectrum.average(words)),
            RealOrIq::Iq(spectrum) => iq.map(|iq| py.detach(|| spectrum.average(iq)))?,
        };
        Ok(power.map(<[f64]>::to_vec))
    }
}
