//! Shot rates and data rates of instruments.

/// Time from the last sample of a shot to the first of the next on the probe of Cossettini et al., in seconds.
///
/// This value is not published: with it, `1 / (N_s / 40 MHz + 1.85 us)` matches all four frame rates of the paper's
/// Table I to within 0.1 %.
pub const DEAD_TIME_S: f64 = 1.85e-6;

/// Returns the time in seconds for which a shot occupies the instrument: sampling plus dead time. An unknown sample
/// rate (0) counts as no sampling time.
pub fn busy_s(samples: u32, sample_rate_hz: f64, dead_time_s: f64) -> f64 {
    let sampling = if sample_rate_hz > 0.0 { f64::from(samples) / sample_rate_hz } else { 0.0 };
    sampling + dead_time_s
}

/// Returns the shots per second of an instrument driven by a periodic trigger of `trigger_hz`.
///
/// A trigger that arrives while the instrument is busy is missed. One of every `k` triggers therefore starts a shot,
/// where `k` is the smallest number of periods that cover the busy time; just above the maximum rate the shot rate
/// halves (Cossettini et al., Fig. 6: "one trigger event every two is missed").
pub fn triggered_hz(trigger_hz: f64, busy_s: f64) -> f64 {
    // An excess of up to one millionth above a whole number is rounding, not a missed trigger.
    trigger_hz / (trigger_hz * busy_s * (1.0 - 1e-6)).ceil().max(1.0)
}

/// Returns the shots per second for Poisson triggers with a mean rate of `trigger_hz`. An accepted trigger blocks the
/// instrument for the busy time; missed triggers do not extend it.
pub fn randomly_triggered_hz(trigger_hz: f64, busy_s: f64) -> f64 {
    trigger_hz / (1.0 + trigger_hz * busy_s)
}

/// Returns the data rate of continuously sampling converters in bits per second (Cossettini et al., I: 32 channels x
/// 12 bit x 40 MS/s = 15.36 Gbit/s).
pub fn raw_bits_per_s(channels: u32, bits: u32, sample_rate_hz: f64) -> f64 {
    f64::from(channels) * f64::from(bits) * sample_rate_hz
}

/// Returns the period in seconds at which shots of `bytes` have a rate of `bits_per_s`.
pub fn period_s(bytes: f64, bits_per_s: f64) -> f64 {
    bytes * 8.0 / bits_per_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shot_rate_halves_just_above_the_highest_trigger_rate() {
        let busy = busy_s(2000, 40e6, DEAD_TIME_S);
        let highest = 1.0 / busy;
        assert!((triggered_hz(highest, busy) - highest).abs() < 1e-6);
        assert!((triggered_hz(highest * 1.001, busy) / highest - 0.5005).abs() < 1e-6);
        assert_eq!(triggered_hz(1000.0, busy), 1000.0);
        assert_eq!(triggered_hz(1e6, 0.0), 1e6);
    }

    #[test]
    fn an_unknown_sample_rate_takes_no_time() {
        assert_eq!(busy_s(2000, 0.0, DEAD_TIME_S), DEAD_TIME_S);
    }
}
