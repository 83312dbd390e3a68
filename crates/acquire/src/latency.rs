//! How long shots took, as counts in bins: constant memory, whatever comes.

use shotline_store::shot::ShotMeta;

/// Bins of an octave: a percentile is told within an eighth of itself.
const BINS: u32 = 8;
/// Octaves: up to 2^40 ns, 18 minutes.
const OCTAVES: u32 = 40;

/// Durations in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latency {
    bins: Box<[u64]>,
    count: u64,
    least: u64,
    most: u64,
    /// Shots that seem to have ended before they began: the two clocks disagree.
    pub negative: u64,
}

impl Default for Latency {
    fn default() -> Self {
        let bins = vec![0; (BINS * (OCTAVES + 1)) as usize].into();
        Self { bins, count: 0, least: u64::MAX, most: 0, negative: 0 }
    }
}

impl Latency {
    /// Enters one duration, from its beginning and its end by clocks that should agree.
    pub fn enter(&mut self, begun_ns: u64, ended_ns: u64) {
        let Some(ns) = ended_ns.checked_sub(begun_ns) else {
            self.negative += 1;
            return;
        };
        self.count += 1;
        self.least = self.least.min(ns);
        self.most = self.most.max(ns);
        let bin = bin(ns).min(self.bins.len() - 1);
        self.bins[bin] += 1;
    }

    /// Durations entered.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// The shortest, 0 if there is none.
    pub fn least_ns(&self) -> u64 {
        if self.count == 0 { 0 } else { self.least }
    }
    /// The longest.
    pub fn most_ns(&self) -> u64 {
        self.most
    }

    /// What this share of the durations (0 to 1) does not exceed, rounded up to its bin's end; 0 if there is none.
    pub fn percentile_ns(&self, share: f64) -> u64 {
        let wanted = ((self.count as f64 * share.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut below = 0;
        for (index, count) in self.bins.iter().enumerate() {
            below += count;
            if below >= wanted {
                // The last bin has no end: it holds all that is longer.
                return if index + 1 == self.bins.len() { self.most } else { end_of(index).min(self.most) };
            }
        }
        0
    }

    /// Adds the durations of another.
    pub fn merge(&mut self, other: &Self) {
        self.bins.iter_mut().zip(&other.bins).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
        self.negative += other.negative;
    }
}

/// How long shots took.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// From the sender's stamp to completion.
    pub from_sender: Latency,
    /// From the kernel's receipt of the first packet to completion.
    pub from_kernel: Latency,
}

impl Times {
    /// Enters a complete shot; times that are unknown are left out.
    pub fn enter(&mut self, shot: &ShotMeta) {
        for (begun_ns, latency) in
            [(shot.stamp_tai_ns, &mut self.from_sender), (shot.arrived_tai_ns, &mut self.from_kernel)]
        {
            if begun_ns > 0 {
                latency.enter(begun_ns, shot.completed_tai_ns);
            }
        }
    }
}

/// Below 8 ns each has its bin; above, an octave has eight.
fn bin(ns: u64) -> usize {
    let octave = ns.max(1).ilog2().saturating_sub(BINS.ilog2());
    ((octave * BINS) as u64 + (ns >> octave)) as usize
}

/// The largest duration of a bin.
fn end_of(bin: usize) -> u64 {
    let (octave, within) = (bin as u32 / BINS, bin as u64 % u64::from(BINS));
    match octave {
        0 => within,
        _ => ((u64::from(BINS) + within + 1) << (octave - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn percentiles_are_right_to_an_eighth(mut all in prop::collection::vec(0_u64..1 << 40, 1..300), share in 0.0..=1.0_f64) {
            let mut latency = Latency::default();
            all.iter().for_each(|ns| latency.enter(1 << 50, (1 << 50) + ns));
            all.sort_unstable();
            let rank = ((all.len() as f64 * share).ceil() as usize).max(1) - 1;
            let (exact, told) = (all[rank], latency.percentile_ns(share));
            prop_assert!(told >= exact && told <= exact + exact / 8 + 1, "{told} for {exact}");
            prop_assert_eq!((latency.least_ns(), latency.most_ns()), (all[0], all[all.len() - 1]));
        }
    }

    #[test]
    fn clocks_that_disagree_are_counted_and_not_averaged() {
        let mut latency = Latency::default();
        latency.enter(10, 9);
        assert_eq!((latency.count(), latency.negative, latency.percentile_ns(0.5)), (0, 1, 0));
        latency.enter(0, u64::MAX);
        assert_eq!(latency.percentile_ns(1.0), u64::MAX, "the last bin holds all that is longer");
    }
}
