//! Echoes at the elements of an array: delays and amplitudes, and the samples that they give.
//!
//! A plane wave of angle `a` passes the origin at time 0 and a scatterer at `(x sin a + z cos a) / c`; its echo reaches
//! an element after the distance between them. The wave exists only in front of the aperture that transmits it. Echoes
//! decrease with the square root of the distance, as those of wires do, and with the directivity of the element.

use super::pulse::Pulse;
use super::scene::Scatterer;
use realfft::RealFftPlanner;
use shotline_compute::ultrasound::Array;
use std::f64::consts::PI;
use std::ops::Range;

/// Reflected amplitude of the wall. A wire's echoes add up over the whole aperture in an image, the wall's only over
/// part of it.
const WALL: f64 = 0.7;
/// Points per period of the centre frequency in the time grid of impulses: linear interpolation between them then
/// changes the amplitude by less than 0.5 %.
const GRID_PER_PERIOD: f64 = 32.0;

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

    pub(super) fn elements(&self) -> usize {
        self.x_m.len()
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
    fn directivity(&self, sine: f64, cosine: f64) -> f64 {
        let phase = PI * self.array.width_m / self.wavelength_m() * sine;
        let sinc = if phase.abs() < 1e-6 { 1.0 } else { phase.sin() / phase };
        sinc * cosine
    }

    fn spreading(&self, distance_m: f64) -> f64 {
        (self.reference_m / distance_m.max(self.array.pitch_m)).sqrt()
    }

    /// Returns the time at which a wave reaches a scatterer, and its amplitude there.
    fn transmit(&self, wave: usize, at: &Scatterer) -> (f64, f64) {
        let (sine, cosine) = self.angle(wave).sin_cos();
        let time_s = (at.x_m * sine + at.z_m * cosine) / self.array.sound_speed_m_s;
        (time_s, at.amplitude * self.insonification(at.x_m - at.z_m * sine / cosine, at.z_m))
    }

    /// Returns the time from a scatterer to an element, and the part of the amplitude that the element receives.
    fn receive(&self, element: usize, from: &Scatterer) -> (f64, f64) {
        let x = from.x_m - self.x_m[element];
        let distance = x.hypot(from.z_m).max(f64::MIN_POSITIVE);
        let amplitude = self.directivity(x / distance, from.z_m / distance) * self.spreading(distance);
        (distance / self.array.sound_speed_m_s, amplitude)
    }

    /// Returns the samples of scatterers for every wave, each in time-major order.
    pub(super) fn tissue(&self, scatterers: &[Scatterer]) -> Vec<Vec<f32>> {
        let waves = self.array.waves();
        // Impulses outside the recorded time still contribute half of a pulse.
        let guard = (self.pulse.half_duration_s() * self.rate_hz).ceil();
        let points = (self.samples + 2 * guard as usize).next_power_of_two();
        let factor = (GRID_PER_PERIOD * self.array.centre_hz / self.rate_hz).ceil().max(1.0) as usize;
        let mut planner = RealFftPlanner::<f32>::new();
        let (forward, inverse) = (planner.plan_fft_forward(points * factor), planner.plan_fft_inverse(points));
        let response: Vec<f32> = (0..points / 2)
            .map(|bin| self.rate_hz / points as f64 * self.pulse.spectrum(bin as f64 * self.rate_hz / points as f64))
            .map(|value| value as f32)
            .collect();
        let grid_hz = self.rate_hz * factor as f64;
        let start_s = self.array.initial_time_s - guard / self.rate_hz;

        let transmitted: Vec<_> =
            scatterers.iter().flat_map(|at| (0..waves).map(|wave| self.transmit(wave, at))).collect();
        let mut out = vec![vec![0.0; self.samples * self.elements()]; waves];
        let mut grids = vec![forward.make_input_vec(); waves];
        let (mut spectrum, mut bins, mut trace) =
            (forward.make_output_vec(), inverse.make_input_vec(), inverse.make_output_vec());
        for element in 0..self.elements() {
            for (scatterer, transmitted) in scatterers.iter().zip(transmitted.chunks(waves)) {
                let (time_s, received) = self.receive(element, scatterer);
                for (grid, (sent_s, amplitude)) in grids.iter_mut().zip(transmitted) {
                    add_impulse(grid, (sent_s + time_s - start_s) * grid_hz, received * amplitude);
                }
            }
            for (grid, out) in grids.iter_mut().zip(&mut out) {
                // The lengths are those of the plans, and the bins at 0 and at half of the rate are real.
                let _ = forward.process(grid, &mut spectrum);
                bins.fill(Default::default());
                for (bin, (value, response)) in bins.iter_mut().zip(spectrum.iter().zip(&response)).skip(1) {
                    *bin = value * response;
                }
                let _ = inverse.process(&mut bins, &mut trace);
                let recorded = &trace[guard as usize..];
                let column = out[element..].iter_mut().step_by(self.x_m.len());
                column.zip(recorded).for_each(|(to, from)| *to = *from);
                grid.fill(0.0);
            }
        }
        out
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

/// Adds an impulse to a grid, between two points in proportion to its distance from them.
fn add_impulse(grid: &mut [f32], at: f64, weight: f64) {
    let before = at.floor();
    let fraction = at - before;
    if before >= 0.0
        && let Some([first, second]) = grid.get_mut(before as usize..before as usize + 2)
    {
        *first += (weight * (1.0 - fraction)) as f32;
        *second += (weight * fraction) as f32;
    }
}
