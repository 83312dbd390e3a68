//! Pulse of the transducer: a Gaussian envelope on a carrier, in time and in frequency.

use std::f64::consts::{LN_2, PI, TAU};

/// Bandwidth at half of the largest amplitude (-6 dB), relative to the centre frequency.
const FRACTIONAL_BANDWIDTH: f64 = 0.6;
/// Half of the duration in standard deviations of the envelope, which is then at -88 dB.
const HALF_DURATION: f64 = 4.5;

/// Pulse after transmission and reception, with its maximum 1 at time 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pulse {
    centre_hz: f64,
    /// Standard deviation of the envelope, in seconds.
    sigma_s: f64,
}

impl Pulse {
    pub(super) fn new(centre_hz: f64) -> Self {
        Self { centre_hz, sigma_s: (2.0 * LN_2).sqrt() / (PI * FRACTIONAL_BANDWIDTH * centre_hz) }
    }

    /// Returns the time from the centre to the end, in seconds.
    pub(super) fn half_duration_s(&self) -> f64 {
        HALF_DURATION * self.sigma_s
    }

    /// Returns the lowest sample rate for this pulse in Hz: twice the frequency at which its spectrum is at -24 dB.
    pub(super) fn lowest_rate_hz(&self) -> f64 {
        2.0 * (1.0 + FRACTIONAL_BANDWIDTH) * self.centre_hz
    }

    /// Returns the value at a time in seconds.
    pub(super) fn at(&self, time_s: f64) -> f64 {
        let deviations = time_s / self.sigma_s;
        (-0.5 * deviations * deviations).exp() * (TAU * self.centre_hz * time_s).cos()
    }

    /// Returns the Fourier transform at a positive frequency in Hz; it is real because the pulse is symmetric.
    pub(super) fn spectrum(&self, frequency_hz: f64) -> f64 {
        let deviations = TAU * (frequency_hz - self.centre_hz) * self.sigma_s;
        0.5 * TAU.sqrt() * self.sigma_s * (-0.5 * deviations * deviations).exp()
    }
}
