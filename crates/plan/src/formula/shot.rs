//! How often an instrument can measure, and how much data that makes.

/// Time from the last sample of a shot to the first of the next on the probe of paper 0, in seconds.
///
/// Not published: with it `1 / (N_s / 40 MHz + 1.85 us)` meets all four frame rates of the paper's Table I to
/// within 0.1 %.
pub const DEAD_TIME_S: f64 = 1.85e-6;

/// Seconds for which one shot occupies the instrument: sampling, then the dead time. A sample rate of 0 (unknown)
/// samples in no time.
pub fn busy_s(samples: u32, sample_rate_hz: f64, dead_time_s: f64) -> f64 {
    let sampling = if sample_rate_hz > 0.0 { f64::from(samples) / sample_rate_hz } else { 0.0 };
    sampling + dead_time_s
}

/// Shots per second of an instrument that a periodic trigger of `trigger_hz` drives.
///
/// A trigger that comes while the instrument is busy is missed. So of every `k` triggers one makes a shot, `k` the
/// smallest number of periods that cover the busy time; just above the highest rate the shot rate halves (paper
/// 0, Fig. 6: "one trigger event every two is missed").
pub fn triggered_hz(trigger_hz: f64, busy_s: f64) -> f64 {
    // What is within a millionth above a whole number is rounding, not a missed trigger.
    trigger_hz / (trigger_hz * busy_s * (1.0 - 1e-6)).ceil().max(1.0)
}

/// The same for triggers that come at random, `trigger_hz` of them per second on the average (Poisson): each that is
/// taken makes the instrument deaf for the busy time, no other prolongs it.
pub fn randomly_triggered_hz(trigger_hz: f64, busy_s: f64) -> f64 {
    trigger_hz / (1.0 + trigger_hz * busy_s)
}

/// Bits per second that converters make while they sample without pause (paper 0, I: 32 channels x 12 bit x 40
/// MS/s = 15.36 Gbit/s).
pub fn raw_bits_per_s(channels: u32, bits: u32, sample_rate_hz: f64) -> f64 {
    f64::from(channels) * f64::from(bits) * sample_rate_hz
}

/// Seconds from one shot to the next if shots of `bytes` are to make `bits_per_s`.
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
    fn an_unknown_sample_rate_costs_no_time() {
        assert_eq!(busy_s(2000, 0.0, DEAD_TIME_S), DEAD_TIME_S);
    }
}
