//! Histograms of durations, in constant memory.

use shotline_store::shot::ShotMeta;

/// Bins per octave: a percentile is accurate to one eighth of its value.
const BINS_PER_OCTAVE: u32 = 8;
/// Number of octaves above 8 ns: up to 2^43 ns, 2.4 hours.
const OCTAVES: u32 = 40;

/// Histogram of durations in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latency {
    bins: Box<[u64]>,
    count: u64,
    min: u64,
    max: u64,
    sum: u64,
    /// Number of durations whose end is before their beginning: the two clocks disagree.
    pub negative: u64,
}

impl Default for Latency {
    fn default() -> Self {
        let bins = vec![0; (BINS_PER_OCTAVE * (OCTAVES + 1)) as usize].into();
        Self { bins, count: 0, min: u64::MAX, max: 0, sum: 0, negative: 0 }
    }
}

impl Latency {
    /// Adds the duration from `start_ns` to `end_ns`, by clocks that should agree.
    pub fn add(&mut self, start_ns: u64, end_ns: u64) {
        let Some(ns) = end_ns.checked_sub(start_ns) else {
            self.negative += 1;
            return;
        };
        self.count += 1;
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        self.sum = self.sum.saturating_add(ns);
        let bin = bin(ns).min(self.bins.len() - 1);
        self.bins[bin] += 1;
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Returns the shortest duration, 0 if there is none.
    pub fn min_ns(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }
    /// Returns the longest duration, 0 if there is none.
    pub fn max_ns(&self) -> u64 {
        self.max
    }

    /// Returns the sum of all durations.
    pub fn sum_ns(&self) -> u64 {
        self.sum
    }
    /// Returns, for each octave, the largest duration in it and the number of durations up to there. The last octave has
    /// no end.
    pub fn octaves(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut below = 0;
        self.bins.chunks(BINS_PER_OCTAVE as usize).enumerate().map(move |(octave, bins)| {
            below += bins.iter().sum::<u64>();
            let end = if octave == OCTAVES as usize { u64::MAX } else { end_of((octave + 1) * bins.len() - 1) };
            (end, below)
        })
    }

    /// Returns the duration that this fraction of all (0 to 1) does not exceed, rounded up to the end of its bin; 0 if
    /// there is none.
    pub fn percentile_ns(&self, fraction: f64) -> u64 {
        let rank = ((self.count as f64 * fraction.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut below = 0;
        for (index, count) in self.bins.iter().enumerate() {
            below += count;
            if below >= rank {
                // The last bin has no end: it counts all longer durations.
                return if index + 1 == self.bins.len() { self.max } else { end_of(index).min(self.max) };
            }
        }
        0
    }

    /// Adds the durations of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.bins.iter_mut().zip(&other.bins).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.negative += other.negative;
    }
}

/// Latencies of shots.
#[derive(Clone, Debug, Default)]
pub struct ShotLatencies {
    /// From the sender's stamp to completion.
    pub from_sender: Latency,
    /// From the kernel's receipt of the first packet to completion.
    pub from_kernel: Latency,
}

impl ShotLatencies {
    /// Adds a complete shot; unknown times are skipped.
    pub fn add(&mut self, shot: &ShotMeta) {
        for (start_ns, latency) in
            [(shot.stamp_tai_ns, &mut self.from_sender), (shot.arrived_tai_ns, &mut self.from_kernel)]
        {
            if start_ns > 0 {
                latency.add(start_ns, shot.completed_tai_ns);
            }
        }
    }
}

/// Returns the bin of a duration. Below 8 ns each value has its bin; above, an octave has eight.
fn bin(ns: u64) -> usize {
    let octave = ns.max(1).ilog2().saturating_sub(BINS_PER_OCTAVE.ilog2());
    ((octave * BINS_PER_OCTAVE) as u64 + (ns >> octave)) as usize
}

/// Returns the largest duration of a bin.
fn end_of(bin: usize) -> u64 {
    let (octave, within) = (bin as u32 / BINS_PER_OCTAVE, bin as u64 % u64::from(BINS_PER_OCTAVE));
    match octave {
        0 => within,
        _ => ((u64::from(BINS_PER_OCTAVE) + within + 1) << (octave - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn percentiles_are_accurate_to_an_eighth(
            mut all in prop::collection::vec(0_u64..1 << 40, 1..300),
            fraction in 0.0..=1.0_f64,
        ) {
            let mut latency = Latency::default();
            all.iter().for_each(|ns| latency.add(1 << 50, (1 << 50) + ns));
            all.sort_unstable();
            let rank = ((all.len() as f64 * fraction).ceil() as usize).max(1) - 1;
            let (exact, estimate) = (all[rank], latency.percentile_ns(fraction));
            prop_assert!(estimate >= exact && estimate <= exact + exact / 8 + 1, "{estimate} for {exact}");
            prop_assert_eq!((latency.min_ns(), latency.max_ns()), (all[0], all[all.len() - 1]));
        }
    }

    #[test]
    fn negative_durations_are_counted_but_not_included() {
        let mut latency = Latency::default();
        latency.add(10, 9);
        assert_eq!((latency.count(), latency.negative, latency.percentile_ns(0.5)), (0, 1, 0));
        latency.add(0, u64::MAX);
        assert_eq!(latency.percentile_ns(1.0), u64::MAX, "the last bin holds all that is longer");
    }

    #[test]
    fn octaves_count_all_durations_up_to_their_end() {
        let mut latency = Latency::default();
        for ns in [3, 7, 8, 15, 16, 1000, u64::MAX] {
            latency.add(0, ns);
        }
        let octaves: Vec<_> = latency.octaves().collect();
        assert_eq!((octaves[0], octaves[1], octaves[2]), ((7, 2), (15, 4), (31, 5)));
        assert_eq!((octaves[7], octaves.last().copied()), ((1023, 6), Some((u64::MAX, 7))));
        assert_eq!(latency.sum_ns(), u64::MAX, "saturated");
    }
}
