//! Echoes at the elements of an array: their delays and amplitudes, and the samples of the wall.
//!
//! A plane wave of angle `a` passes the origin at time 0 and a scatterer at `(x sin a + z cos a) / c`; its echo reaches
//! an element after the distance between them. The wave exists only in front of the aperture that transmits it. Echoes
//! decrease with the square root of the distance, as those of wires do, and with the directivity of the element.

use super::pulse::Pulse;
use super::scene::Scatterer;
use shotline_compute::ultrasound::Array;
use std::f64::consts::PI;
use std::ops::Range;

/// Reflected amplitude of the wall. A wire's echoes add up over the whole aperture in an image, the wall's only over
/// part of it: the wall is then 21 dB brighter than speckle.
const WALL: f64 = 2.0;

/// Array, its plane waves and its samples.
#[derive(Debug)]
pub(super) struct Acquisition {
    array: Array,
    x_m: Vec<f64>,
    pulse: Pulse,
    samples: usize,
    rate_hz: f64,
    /// Distance at which a wire's echo has amplitude 1.
    reference_m: f64,
}

impl Acquisition {
    pub(super) fn new(array: &Array, elements: usize, samples: usize, rate_hz: f64, reference_m: f64) -> Self {
        let pulse = Pulse::new(array.centre_hz);
        Self { array: array.clone(), x_m: array.x_m(elements), pulse, samples, rate_hz, reference_m }
    }

    pub(super) fn array(&self) -> &Array {
        &self.array
    }
    pub(super) fn pulse(&self) -> &Pulse {
        &self.pulse
    }
    pub(super) fn rate_hz(&self) -> f64 {
        self.rate_hz
    }
    pub(super) fn elements(&self) -> usize {
        self.x_m.len()
    }
    pub(super) fn x_m(&self, element: usize) -> f64 {
        self.x_m[element]
    }
    /// Returns the samples of one element in a shot.
    pub(super) fn samples(&self) -> usize {
        self.samples
    }

    fn wavelength_m(&self) -> f64 {
        self.array.sound_speed_m_s / self.array.centre_hz
    }

    fn angle(&self, wave: usize) -> f64 {
        self.array.angles_rad.get(wave).copied().unwrap_or_default()
    }

    /// Returns the amplitude of a wave at a depth, whose part there left the array at `origin_m`: 1 in front of the
    /// aperture, falling to 0 over the width of the first Fresnel zone at its ends.
    fn insonification(&self, origin_m: f64, depth_m: f64) -> f64 {
        let half_aperture = self.x_m.len() as f64 * self.array.pitch_m / 2.0;
        let inside = (half_aperture - origin_m.abs()) / (self.wavelength_m() * depth_m.max(self.array.pitch_m)).sqrt();
        let ramp = (inside + 0.5).clamp(0.0, 1.0);
        ramp * ramp * (3.0 - 2.0 * ramp)
    }

    /// Returns the sensitivity of an element in the direction of a sine and cosine: a strip in a soft baffle.
    pub(super) fn directivity(&self, sine: f64, cosine: f64) -> f64 {
        let phase = PI * self.array.width_m / self.wavelength_m() * sine;
        let sinc = if phase.abs() < 1e-6 { 1.0 } else { phase.sin() / phase };
        sinc * cosine
    }

    pub(super) fn spreading(&self, distance_m: f64) -> f64 {
        (self.reference_m / distance_m.max(self.array.pitch_m)).sqrt()
    }

    /// Returns the time at which a wave reaches a scatterer, and its amplitude there.
    pub(super) fn transmit(&self, wave: usize, at: &Scatterer) -> (f64, f64) {
        let (sine, cosine) = self.angle(wave).sin_cos();
        let time_s = (at.x_m * sine + at.z_m * cosine) / self.array.sound_speed_m_s;
        (time_s, at.amplitude * self.insonification(at.x_m - at.z_m * sine / cosine, at.z_m))
    }

    /// Returns the time from a scatterer to an element, and the part of the amplitude that the element receives.
    pub(super) fn receive(&self, element: usize, from: &Scatterer) -> (f64, f64) {
        let x = from.x_m - self.x_m[element];
        let distance = x.hypot(from.z_m).max(f64::MIN_POSITIVE);
        let amplitude = self.directivity(x / distance, from.z_m / distance) * self.spreading(distance);
        (distance / self.array.sound_speed_m_s, amplitude)
    }

    /// Calls `add` with the sample, the element and the value of each contribution of the wall to a wave.
    ///
    /// The wall reflects the plane wave as a plane wave, which is in front of a part of the array.
    pub(super) fn wall(
        &self,
        wave: usize,
        depth_m: f64,
        elements: Range<usize>,
        mut add: impl FnMut(usize, usize, f32),
    ) {
        let (sine, cosine) = self.angle(wave).sin_cos();
        let received = WALL * self.directivity(sine, cosine);
        let half = self.pulse.half_duration_s();
        for element in elements {
            let x = self.x_m[element];
            let amplitude = received * self.insonification(x - 2.0 * depth_m * sine / cosine, depth_m);
            if amplitude == 0.0 {
                continue;
            }
            let time_s = (x * sine + 2.0 * depth_m * cosine) / self.array.sound_speed_m_s - self.array.initial_time_s;
            let first = ((time_s - half) * self.rate_hz).ceil().max(0.0) as usize;
            let end = (((time_s + half) * self.rate_hz).floor() + 1.0).max(0.0) as usize;
            for sample in first..end.min(self.samples) {
                let value = amplitude * self.pulse.at(sample as f64 / self.rate_hz - time_s);
                add(sample, element, value as f32);
            }
        }
    }
}
