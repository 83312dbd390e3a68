//! Histogram of the times of any number of operations, in constant memory.

use crate::trigger::stats::Quantiles;
use std::time::Duration;

/// Number of buckets for each power of two. The error of a quantile is less than one bucket, 0.8 %.
const STEPS: usize = 128;

/// Histogram of times in nanoseconds. Below 256 ns every value has its own bucket.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Histogram {
    /// Creates an empty histogram.
    pub fn new() -> Self {
        Self { counts: vec![0; bucket(u64::MAX) + 1].into(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    /// Records one time.
    pub fn record(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(ns)] += 1;
        self.count += 1;
        self.sum += u128::from(ns);
        (self.min, self.max) = (self.min.min(ns), self.max.max(ns));
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        (self.count, self.sum) = (self.count + other.count, self.sum + other.sum);
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
    }

    /// Returns the sum of all times in nanoseconds.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Returns the number of times below a power of two of at least 128, in nanoseconds.
    pub fn below(&self, power_of_two: u64) -> u64 {
        self.counts[..bucket(power_of_two)].iter().sum()
    }

    /// Returns the quantiles, or `None` if the histogram is empty.
    pub fn quantiles(&self) -> Option<Quantiles> {
        if self.count == 0 {
            return None;
        }
        let us = |ns: u64| ns as f64 / 1e3;
        let nearest = |q: f64| {
            let (rank, mut seen) = ((q * self.count as f64).ceil() as u64, 0);
            let reaches = |count: &u64| {
                seen += count;
                seen >= rank.max(1)
            };
            us(self.counts.iter().position(reaches).map_or(self.max, longest).clamp(self.min, self.max))
        };
        Some(Quantiles {
            count: self.count as usize,
            min: us(self.min),
            p50: nearest(0.5),
            p90: nearest(0.9),
            p99: nearest(0.99),
            p999: nearest(0.999),
            max: us(self.max),
            mean: us((self.sum / u128::from(self.count)) as u64),
        })
    }
}

/// Returns the index of the bucket of a time.
fn bucket(ns: u64) -> usize {
    let shift = (ns | 1).ilog2().saturating_sub(STEPS.ilog2());
    shift as usize * STEPS + (ns >> shift) as usize
}

/// Returns the longest time of a bucket, in nanoseconds.
fn longest(index: usize) -> u64 {
    let shift = (index / STEPS).saturating_sub(1);
    let steps = (index - shift * STEPS) as u64;
    (steps << shift) | ((1_u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_to_one_bucket() {
        let mut times = Histogram::new();
        assert_eq!(times.quantiles(), None);
        (1..=100_000).for_each(|us| times.record(Duration::from_micros(us)));
        let mut more = Histogram::new();
        more.record(Duration::from_secs(30));
        times.merge(&more);
        let q = times.quantiles().unwrap();
        assert_eq!((q.count, q.min, q.max), (100_001, 1.0, 30e6));
        for (found, exact) in [(q.p50, 50e3), (q.p90, 90e3), (q.p99, 99e3), (q.p999, 99.9e3)] {
            assert!((found / exact - 1.0).abs() < 0.008, "{found} for {exact}");
        }
    }

    #[test]
    fn times_below_a_power_of_two_are_counted_exactly() {
        let mut times = Histogram::new();
        [1_023, 1_024, 1_025, 2_047, 2_048].into_iter().for_each(|ns| times.record(Duration::from_nanos(ns)));
        assert_eq!([512, 1024, 2048, 4096].map(|end| times.below(end)), [0, 1, 4, 5]);
        assert_eq!(times.sum(), 7_167);
    }

    #[test]
    fn every_time_falls_into_its_bucket() {
        for ns in (0..70)
            .flat_map(|bit| [1_u64.wrapping_shl(bit.min(63)), (1_u64 << bit.min(63)) - 1, u64::MAX - u64::from(bit)])
        {
            let at = bucket(ns);
            assert!(longest(at) >= ns && (at == 0 || longest(at - 1) < ns), "{ns} at {at}");
        }
    }
}
