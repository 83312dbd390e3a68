//! Phantom of the emulated probe: the echoes of known objects, which other programs can turn into images.
//!
//! Tissue (speckle) with wires, a cyst and a moving wall is insonified by the plane waves of an array. Shot `n` is wave
//! `n % waves`, and the wall moves to its next phase after each frame of all waves.

mod echoes;
mod pulse;
mod scene;
#[cfg(test)]
mod tests;
mod tissue;

use super::array::ArrayFields;
use super::config::Phantom;
use super::error::SampleError;
use echoes::Acquisition;
use pulse::Pulse;
pub use scene::{Cyst, Scene, Speckle, Wall, Wire};
use serde::Serialize;
use shotline_compute::ultrasound::Array;
use shotline_memory::{Pages, check_capacity};
use shotline_random::SplitMix64;
use shotline_wire::shot::Geometry;
use std::ops::Range;

/// Standard deviation of the noise relative to the largest sample: -60 dB.
const NOISE: f64 = 1e-3;
/// Bits that a sample's noise is the sum of; their standard deviation is 2.
const NOISE_BITS: u32 = 16;

/// Contents of the phantom and its array, for reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhantomReport {
    /// Array that acquires it.
    #[serde(with = "ArrayFields")]
    pub array: Array,
    /// Elements of the array: the channels of all links.
    pub elements: usize,
    /// Seed of the speckle and the noise.
    pub seed: u64,
    /// True positions.
    #[serde(flatten)]
    pub scene: Scene,
}

/// Echoes of the phantom.
#[derive(Debug)]
pub(super) struct Echoes {
    report: PhantomReport,
    acquisition: Acquisition,
    /// Samples of what does not move, for each wave, in time-major order.
    tissue: Vec<Vec<f32>>,
    /// Factor from amplitudes to samples.
    scale: f32,
    /// Sample value per bit of noise.
    noise: f32,
    max: i16,
}

impl Echoes {
    /// Computes the echoes for an array of `elements` elements, whose shots have the samples of `geometry`. `then`
    /// returns the bytes that the caller will allocate for a number of distinct shots: the echoes are computed only if
    /// these fit in memory, too.
    pub(super) fn new(
        array: &Array,
        phantom: &Phantom,
        elements: usize,
        geometry: &Geometry,
        then: impl Fn(u32) -> u64,
    ) -> Result<Self, SampleError> {
        let Phantom { phases, seed } = *phantom;
        let rate_hz = f64::from(geometry.sample_rate_hz());
        let lowest_hz = Pulse::new(array.centre_hz).lowest_rate_hz();
        if rate_hz < lowest_hz {
            return Err(SampleError::SlowSampling { centre_hz: array.centre_hz, lowest_hz, found_hz: rate_hz });
        }
        let end_s = array.initial_time_s + f64::from(geometry.samples()) / rate_hz;
        if end_s <= 0.0 {
            return Err(SampleError::EarlyEnd { end_s });
        }
        let depth_m = |time_s: f64| time_s.max(0.0) * array.sound_speed_m_s / 2.0;
        let depths = depth_m(array.initial_time_s)..depth_m(end_s);
        let scene = Scene::new(array, elements, &depths, phases.max(1));
        let wavelength_m = array.sound_speed_m_s / array.centre_hz;
        let (waves, samples) = (array.waves(), geometry.samples());
        // The scatterers are dropped before the shots are prepared.
        let then = then(period(array, &scene)).max(tissue::speckle_bytes(waves, scene.scatterers(wavelength_m)));
        let echoes = tissue::bytes(waves, elements, samples);
        check_capacity([(Pages::Small, echoes), (Pages::Transparent, then)])
            .map_err(|source| SampleError::PhantomMemory { waves, phases, samples, source })?;
        let reference_m = (depths.start + depths.end) / 2.0;
        let acquisition = Acquisition::new(array, elements, geometry.samples() as usize, rate_hz, reference_m);
        let speckle = scene.speckle(wavelength_m, seed);
        let tissue = tissue::tissue(&acquisition, &scene.wires(), &speckle);
        let max = ((1_i32 << (geometry.bits() - 1)) - 1) as i16;
        let noise = (f64::from(max) * NOISE / f64::from(NOISE_BITS).sqrt() * 2.0) as f32;
        let report = PhantomReport { array: array.clone(), elements, seed, scene };
        let mut echoes = Self { report, acquisition, tissue, scale: 0.0, noise, max };
        // Full scale is the largest echo plus the largest noise, so that no sample is clipped.
        let noise_peak = noise * NOISE_BITS as f32 / 2.0;
        let peak = echoes.peak();
        echoes.scale = if peak > 0.0 { (f32::from(max) - noise_peak - 0.5) / peak } else { 0.0 };
        Ok(echoes)
    }

    /// Returns the number of distinct shots.
    pub(super) fn period(&self) -> u32 {
        period(&self.report.array, &self.report.scene)
    }

    pub(super) fn report(&self) -> &PhantomReport {
        &self.report
    }

    /// Returns the wave of a distinct shot, and the depth of the wall in its frame.
    fn transmission(&self, shot: u32) -> (usize, f64) {
        let waves = self.tissue.len() as u32;
        ((shot % waves) as usize, self.report.scene.wall.depth_m(shot / waves))
    }

    /// Returns the largest amplitude of all distinct shots.
    fn peak(&self) -> f32 {
        let elements = self.acquisition.elements();
        let mut peak = self.tissue.iter().flatten().fold(0.0_f32, |peak, value| peak.max(value.abs()));
        for shot in 0..self.period() {
            let (wave, depth_m) = self.transmission(shot);
            let tissue = &self.tissue[wave];
            self.acquisition.wall(wave, depth_m, 0..elements, |sample, element, value| {
                peak = peak.max((tissue[sample * elements + element] + value).abs());
            });
        }
        peak
    }

    /// Returns some elements of a distinct shot in time-major order: all elements of sample 0 first.
    pub(super) fn time_major(&self, shot: u32, elements: Range<usize>, samples: usize) -> Vec<i16> {
        let (wave, depth_m) = self.transmission(shot);
        let all = self.acquisition.elements();
        let rows = self.tissue[wave].chunks_exact(all).take(samples);
        let mut values: Vec<f32> = rows.flat_map(|row| &row[elements.clone()]).copied().collect();
        let (first, width) = (elements.start, elements.len());
        self.acquisition.wall(wave, depth_m, elements, |sample, element, value| {
            if let Some(at) = values.get_mut(sample * width + element - first) {
                *at += value;
            }
        });
        let mut random = SplitMix64::new(self.report.seed);
        random = SplitMix64::new(random.next_u64() ^ u64::from(shot) << 32 ^ first as u64);
        let (max, mut bits) = (f32::from(self.max), 0);
        let sample = |(at, value): (usize, &f32)| {
            bits = if at % 4 == 0 { random.next_u64() } else { bits >> NOISE_BITS };
            let ones = (bits & ((1 << NOISE_BITS) - 1)).count_ones() as f32;
            let noise = self.noise * (ones - NOISE_BITS as f32 / 2.0);
            (value * self.scale + noise).round().clamp(-max, max) as i16
        };
        values.iter().enumerate().map(sample).collect()
    }
}

/// Returns the number of distinct shots: the waves of a frame for each phase of the wall.
fn period(array: &Array, scene: &Scene) -> u32 {
    u32::try_from(array.waves()).unwrap_or(u32::MAX).saturating_mul(scene.wall.phases)
}

#[cfg(test)]
impl Echoes {
    fn scene(&self) -> &Scene {
        &self.report.scene
    }
}
