//! Limits of a down-converter, and the errors of settings beyond them.

/// Largest decimation.
pub const MAX_DECIMATION: u32 = 1 << 16;

/// Most taps of a filter.
pub const MAX_TAPS: usize = 1 << 17;

/// Why there is no such down-converter.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DdcError {
    /// No frequency.
    #[error("expected a finite frequency and a positive sample rate, found {frequency_hz} Hz at {sample_rate_hz} S/s")]
    Frequency {
        /// The frequency.
        frequency_hz: f64,
        /// The sample rate.
        sample_rate_hz: f64,
    },
    /// No decimation.
    #[error("decimation must be 1 to {MAX_DECIMATION}, found {0}")]
    Decimation(u32),
    /// No such windowed sinc.
    #[error(
        "expected a passband between 0 and 1 and an attenuation of 21 to 120 dB, found {passband} and {attenuation_db}"
    )]
    Sinc {
        /// Flat part of the output's band.
        passband: f64,
        /// Attenuation in the stopband.
        attenuation_db: f64,
    },
    /// No such integrator-comb filter.
    #[error("an integrator-comb filter has 1 to 8 stages, found {0}")]
    Stages(u32),
    /// Too few or too many taps.
    #[error("a filter has 1 to {MAX_TAPS} taps, found {0}")]
    Taps(usize),
    /// A filter that lets nothing through at its centre.
    #[error("taps must be finite and their sum must not vanish, found a sum of {0}")]
    NoGain(f64),
    /// No gain.
    #[error("gain must be 10^-6 to 10^6, found {0}")]
    Gain(f64),
}
