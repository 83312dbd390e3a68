//! Log-linear histogram of times, for percentiles.

use super::time::PICOSECOND;
use serde::Serialize;

/// Logarithm of the number of buckets per octave: the relative error of a percentile is at most 1/64.
const SUBBUCKET_BITS: u32 = 6;

/// Percentiles of a time, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Percentiles {
    pub mean_s: f64,
    pub p50_s: f64,
    pub p90_s: f64,
    pub p99_s: f64,
    pub p999_s: f64,
    pub max_s: f64,
}

/// Histogram of times in picoseconds.
#[derive(Debug)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { counts: vec![0; (65 - SUBBUCKET_BITS as usize) << SUBBUCKET_BITS], count: 0, sum: 0, max: 0 }
    }

    pub(super) fn add(&mut self, picoseconds: u64) {
        self.counts[bucket(picoseconds)] += 1;
        self.count += 1;
        self.sum += u128::from(picoseconds);
        self.max = self.max.max(picoseconds);
    }

    pub(super) fn percentiles(&self) -> Percentiles {
        if self.count == 0 {
            return Percentiles::default();
        }
        let at = |share: f64| {
            let rank = (share * self.count as f64).ceil() as u64;
            let mut seen = 0;
            let found = self.counts.iter().position(|count| {
                seen += count;
                seen >= rank
            });
            found.map_or(self.max, |index| upper_bound(index).min(self.max)) as f64 * PICOSECOND
        };
        Percentiles {
            mean_s: self.sum as f64 / self.count as f64 * PICOSECOND,
            p50_s: at(0.5),
            p90_s: at(0.9),
            p99_s: at(0.99),
            p999_s: at(0.999),
            max_s: self.max as f64 * PICOSECOND,
        }
    }
}

/// Returns the bucket of a value. Values below 2^SUBBUCKET_BITS have one bucket each; each octave above has
/// 2^SUBBUCKET_BITS buckets.
fn bucket(value: u64) -> usize {
    let octave = (u64::BITS - value.leading_zeros()).saturating_sub(SUBBUCKET_BITS + 1);
    ((octave as usize) << SUBBUCKET_BITS) + (value >> octave) as usize
}

/// Returns the largest value of a bucket.
fn upper_bound(bucket: usize) -> u64 {
    let octave = (bucket >> SUBBUCKET_BITS).saturating_sub(1) as u32;
    let part = (bucket - ((octave as usize) << SUBBUCKET_BITS)) as u64;
    // 128 bits, because the last bucket ends at `u64::MAX`.
    (((u128::from(part) + 1) << octave) - 1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_bound_their_values_closely() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1_u64 << shift) + 1, (1_u64 << shift) - 1, u64::MAX >> shift] {
                let top = upper_bound(bucket(value));
                assert!(top >= value && (top - value) as f64 <= value as f64 / 64.0, "{value}: {top}");
            }
        }
    }

    #[test]
    fn percentiles_match_the_values() {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|ns| histogram.add(ns * 1000));
        let found = histogram.percentiles();
        assert!((found.mean_s / 500.5e-9 - 1.0).abs() < 1e-9 && (found.max_s / 1e-6 - 1.0).abs() < 1e-9);
        assert!((found.p50_s / 500e-9 - 1.0).abs() < 0.02 && (found.p99_s / 990e-9 - 1.0).abs() < 0.02);
    }
}
