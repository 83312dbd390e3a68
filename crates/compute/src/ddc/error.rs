//! Limits and configuration errors of a down-converter.

/// Maximum decimation factor.
pub const MAX_DECIMATION: u32 = 1 << 16;

/// Maximum number of filter taps.
pub const MAX_TAPS: usize = 1 << 17;

/// An invalid down-converter configuration.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DdcError {
    /// The frequency is not finite, or the sample rate is not positive and finite.
    #[error("expected a finite frequency and a positive sample rate, found {frequency_hz} Hz at {sample_rate_hz} S/s")]
    Frequency {
        /// The frequency, in Hz.
        frequency_hz: f64,
        /// The sample rate, in S/s.
        sample_rate_hz: f64,
    },
    /// The decimation factor is outside 1 to [`MAX_DECIMATION`].
    #[error("decimation must be 1 to {MAX_DECIMATION}, found {0}")]
    Decimation(u32),
    /// The passband or the attenuation of a windowed sinc is out of range.
    #[error(
        "expected a passband between 0 and 1 and an attenuation of 21 to 120 dB, found {passband} and {attenuation_db}"
    )]
    Sinc {
        /// Flat part of the output's band, 0 to 1.
        passband: f64,
        /// Stopband attenuation, in dB.
        attenuation_db: f64,
    },
    /// The number of stages of a CIC filter is out of range.
    #[error("expected a CIC filter of 1 to 8 stages, found {0}")]
    Stages(u32),
    /// The number of taps is outside 1 to [`MAX_TAPS`].
    #[error("expected a filter of 1 to {MAX_TAPS} taps, found {0}")]
    Taps(usize),
    /// The gain at the centre of the passband is zero or not finite.
    #[error("taps must be finite and their sum must not be zero, found a sum of {0}")]
    NoGain(f64),
    /// The gain is out of range.
    #[error("gain must be 10^-6 to 10^6, found {0}")]
    Gain(f64),
}
