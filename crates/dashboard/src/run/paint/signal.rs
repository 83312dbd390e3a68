//! A digitizer's samples as signals, and their spectra.

use super::part::Samples;
use crate::pictures::Axis;
use shotline_compute::spectrum::{MIN_FFT, Spectrum, SpectrumConfig};
use shotline_store::shot::Shot;
use shotline_wire::shot::Geometry;

/// Level in dBFS that stands for no power at all.
const SILENCE_DBFS: f32 = -200.0;

/// Returns `true` if the two channels are I and Q, as they are in the file.
pub(super) fn is_iq(geometry: &Geometry) -> bool {
    geometry.trailer().has_description() && geometry.channels() == 2
}

/// Returns the sample rate in Hz; 1 if it is unknown, so that frequencies are in cycles per sample.
pub(super) fn rate(geometry: &Geometry) -> f64 {
    f64::from(geometry.sample_rate_hz().max(1))
}

/// Returns the axis between two frequencies in Hz.
pub(super) fn frequency_axis(geometry: &Geometry, [from, to]: [f64; 2]) -> Axis {
    match geometry.sample_rate_hz() {
        0 => Axis { label: "frequency", unit: "cycles per sample", from, to },
        _ => Axis { label: "frequency", unit: "MHz", from: from / 1e6, to: to / 1e6 },
    }
}

/// One signal: a real channel, or a pair of I and Q.
#[derive(Clone, Copy)]
pub(super) enum Block<'a> {
    Real(&'a [i16]),
    Iq(&'a [[i16; 2]]),
}

/// The signals of the first part of a shot, scaled to a full scale of 16 bits.
#[derive(Default)]
pub(super) struct Signals {
    samples: Samples,
    values: Vec<i16>,
    channels: usize,
    iq: bool,
    real: Vec<i16>,
    pairs: Vec<[i16; 2]>,
}

impl Signals {
    /// Takes the first samples of a shot, at most this many of each channel.
    pub(super) fn take(&mut self, geometry: &Geometry, shot: &Shot, samples: usize) {
        // Samples that exceed the bits they should have are clipped.
        let shift = 16 - geometry.bits().clamp(1, 16);
        let scaled = |value: &i16| (i32::from(*value) << shift).clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        self.values.clear();
        self.values.extend(self.samples.first(geometry, shot, samples).iter().map(scaled));
        (self.channels, self.iq) = (usize::from(geometry.channels()), is_iq(geometry));
    }

    /// Returns the number of signals.
    pub(super) fn count(&self) -> usize {
        if self.iq { self.channels / 2 } else { self.channels }
    }

    /// Returns the number of samples of each signal.
    pub(super) fn samples(&self) -> usize {
        self.values.len() / self.channels.max(1)
    }

    /// Returns a signal.
    pub(super) fn get(&mut self, index: usize) -> Block<'_> {
        let instants = self.values.chunks_exact(self.channels.max(1));
        if self.iq {
            self.pairs.clear();
            self.pairs.extend(instants.filter_map(|instant| instant.as_chunks::<2>().0.get(index)));
            Block::Iq(&self.pairs)
        } else {
            self.real.clear();
            self.real.extend(instants.filter_map(|instant| instant.get(index)));
            Block::Real(&self.real)
        }
    }
}

/// Spectrum analyser of one kind of signal.
pub(super) enum Analyser {
    Real(Spectrum<i16>, usize),
    Iq(Spectrum<[i16; 2]>, usize),
}

impl Analyser {
    /// Creates an analyser with the longest transform up to `longest` points, a power of two, for signals of this many
    /// samples; none if they are too short.
    pub(super) fn new(geometry: &Geometry, samples: usize, longest: usize) -> Option<Self> {
        let fft = 1 << samples.min(longest).checked_ilog2()?;
        if fft < MIN_FFT {
            return None;
        }
        // Overlapping segments recover what the window attenuates.
        let config = SpectrumConfig { hop: fft / 2, ..SpectrumConfig::new(fft, rate(geometry)) };
        Some(if is_iq(geometry) {
            Self::Iq(Spectrum::new(&config).ok()?, fft)
        } else {
            Self::Real(Spectrum::new(&config).ok()?, fft)
        })
    }

    /// Returns the frequencies of the first and the last of `bins` bins, in Hz.
    pub(super) fn band(&self, geometry: &Geometry, bins: usize) -> [f64; 2] {
        let (first, fft) = match self {
            Self::Real(_, fft) => (0.0, *fft),
            Self::Iq(_, fft) => (-(*fft as f64) / 2.0, *fft),
        };
        [first, first + bins.saturating_sub(1) as f64].map(|bin| bin * rate(geometry) / fft as f64)
    }

    /// Returns the averaged power spectrum in dBFS, frequencies ascending; none if the signal is too short.
    pub(super) fn decibels(&mut self, block: Block<'_>) -> Option<Vec<f32>> {
        let level = |power: f64| ((10.0 * power.log10()) as f32).max(SILENCE_DBFS);
        match (self, block) {
            (Self::Real(spectrum, _), Block::Real(samples)) => {
                let power = spectrum.average(samples)?;
                let last = power.len() - 1;
                // The two outer bins have no mirror image that shares their power.
                let mirrored = |(bin, power): (usize, &f64)| power * if bin == 0 || bin == last { 0.25 } else { 1.0 };
                Some(power.iter().enumerate().map(mirrored).map(level).collect())
            }
            (Self::Iq(spectrum, fft), Block::Iq(samples)) => {
                // Negative frequencies are last.
                let (positive, negative) = spectrum.average(samples)?.split_at(*fft / 2);
                Some(negative.iter().chain(positive).copied().map(level).collect())
            }
            _ => None,
        }
    }

    /// Returns the frequency of the strongest tone in Hz; none if there is none or the signal is too short.
    pub(super) fn strongest_hz(&mut self, block: Block<'_>) -> Option<f64> {
        let summary = match (self, block) {
            (Self::Real(spectrum, _), Block::Real(samples)) => spectrum.analyse(samples),
            (Self::Iq(spectrum, _), Block::Iq(samples)) => spectrum.analyse(samples),
            _ => None,
        };
        Some(summary?.peaks().first()?.frequency_hz)
    }
}
