//! Times of any number of operations, in memory that does not grow with them.

use crate::trigger::stats::Quantiles;
use std::time::Duration;

/// Steps to which a power of two is divided: a quantile is wrong by less than one of them, 0.8 %.
const STEPS: usize = 128;

/// How many times of each length there were, in nanoseconds. Below 256 ns every length has its own count.
#[derive(Clone, Debug)]
pub struct Times {
    counts: Box<[u64]>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Times {
    /// None yet.
    pub fn new() -> Self {
        Self { counts: vec![0; place(u64::MAX) + 1].into(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    /// Enters one.
    pub fn enter(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counts[place(ns)] += 1;
        self.count += 1;
        self.sum += u128::from(ns);
        (self.min, self.max) = (self.min.min(ns), self.max.max(ns));
    }

    /// Enters all of another's.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        (self.count, self.sum) = (self.count + other.count, self.sum + other.sum);
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
    }

    /// Quantiles of all of them; none of none.
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

/// Where a time is counted.
fn place(ns: u64) -> usize {
    let shift = (ns | 1).ilog2().saturating_sub(STEPS.ilog2());
    shift as usize * STEPS + (ns >> shift) as usize
}

/// The longest time that is counted there.
fn longest(place: usize) -> u64 {
    let shift = (place / STEPS).saturating_sub(1);
    let steps = (place - shift * STEPS) as u64;
    (steps << shift) | ((1_u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_all_times_to_within_a_step() {
        let mut times = Times::new();
        assert_eq!(times.quantiles(), None);
        (1..=100_000).for_each(|us| times.enter(Duration::from_micros(us)));
        let mut more = Times::new();
        more.enter(Duration::from_secs(30));
        times.add(&more);
        let of = times.quantiles().unwrap();
        assert_eq!((of.count, of.min, of.max), (100_001, 1.0, 30e6));
        for (found, exact) in [(of.p50, 50e3), (of.p90, 90e3), (of.p99, 99e3), (of.p999, 99.9e3)] {
            assert!((found / exact - 1.0).abs() < 0.008, "{found} for {exact}");
        }
    }

    #[test]
    fn every_time_has_a_place_that_holds_it() {
        for ns in (0..70)
            .flat_map(|bit| [1_u64.wrapping_shl(bit.min(63)), (1_u64 << bit.min(63)) - 1, u64::MAX - u64::from(bit)])
        {
            let at = place(ns);
            assert!(longest(at) >= ns && (at == 0 || longest(at - 1) < ns), "{ns} at {at}");
        }
    }
}
