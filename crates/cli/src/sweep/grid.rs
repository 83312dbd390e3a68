//! Default trigger frequencies of a sweep.

use shotline_plan::formula::shot::{DEAD_TIME_S, busy_s};

/// Default points, relative to the device's highest shot rate: evenly spaced up to it, close to it, and above it, where
/// every second trigger is missed.
const PARTS: [f64; 13] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98, 1.05, 1.25];

/// Returns the device's highest shot rate in Hz. A shot occupies it for `samples / sample rate + 1.85 us`.
pub fn highest_hz(samples: u32, sample_rate_hz: u32) -> f64 {
    1.0 / busy_s(samples, sample_rate_hz.into(), DEAD_TIME_S)
}

/// Returns frequencies in Hz with three digits, up to a quarter above the device's highest shot rate.
pub fn frequencies(samples: u32, sample_rate_hz: u32) -> Vec<f64> {
    let highest = highest_hz(samples, sample_rate_hz);
    PARTS.iter().map(|part| three_digits(part * highest)).collect()
}

fn three_digits(value: f64) -> f64 {
    let digit = 10_f64.powf((value.log10() - 2.0).floor());
    (value / digit).round() * digit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_rates_match_the_paper() {
        for (samples, khz) in [(500, 69.68), (1000, 37.24), (2000, 19.28), (4000, 9.82)] {
            let found = highest_hz(samples, 40_000_000) / 1e3;
            assert!((found / khz - 1.0).abs() < 0.003, "{samples} samples: {found} kHz, the paper has {khz}");
        }
    }

    #[test]
    fn frequencies_ascend_around_the_highest_rate() {
        for samples in [8, 500, 2000, 4000] {
            let found = frequencies(samples, 40_000_000);
            assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "{found:?}");
            let highest = highest_hz(samples, 40_000_000);
            assert!(found.iter().filter(|hz| **hz > highest).count() == 2, "{found:?}");
        }
        assert_eq!(frequencies(2000, 40_000_000)[1], 1930.0);
        assert!(frequencies(2000, 0).iter().all(|hz| hz.is_finite()));
    }
}
