//! Shortest usual time between the items of a source.

/// Number of intervals in a block: the newest `BLOCK` to `2 * BLOCK` intervals count, older ones are forgotten.
const BLOCK: u32 = 32;

/// Minimum number of intervals for discarding the shortest as an outlier.
const MIN_INTERVALS: u32 = 3;

/// Two shortest of the newest intervals. The second shortest is the usual one: a single pair of close stamps (a trigger
/// that bounced, a damaged stamp) is an outlier.
#[derive(Debug)]
pub(super) struct Intervals {
    /// The two shortest intervals of the current block and of the block before it, shortest first.
    shortest: [[u64; 2]; 2],
    /// Number of intervals in the current block.
    count: u32,
}

impl Intervals {
    pub(super) fn new() -> Self {
        Self { shortest: [[u64::MAX; 2]; 2], count: 0 }
    }

    pub(super) fn add(&mut self, interval: u64) {
        if self.count == BLOCK {
            self.shortest = [[u64::MAX; 2], self.shortest[0]];
            self.count = 0;
        }
        self.count += 1;
        let [first, second] = &mut self.shortest[0];
        *second = (*second).min(interval.max(*first));
        *first = (*first).min(interval);
    }

    /// Returns the second shortest interval (the shortest while there are too few); none before the first.
    pub(super) fn usual(&self) -> Option<u64> {
        let [[a, b], [c, d]] = self.shortest;
        let is_first_block = c == u64::MAX;
        match self.count {
            0 => None,
            1..MIN_INTERVALS if is_first_block => Some(a),
            _ => Some(b.min(d).min(a.max(c))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_usual_interval_is_the_second_shortest_recent_one(all in prop::collection::vec(1..1000_u64, 1..200)) {
            let mut intervals = Intervals::new();
            prop_assert_eq!(intervals.usual(), None);
            for (index, &interval) in all.iter().enumerate() {
                intervals.add(interval);
                let block = index / BLOCK as usize;
                let mut counted = all[block.saturating_sub(1) * BLOCK as usize..=index].to_vec();
                counted.sort_unstable();
                prop_assert_eq!(intervals.usual(), Some(counted[usize::from(counted.len() >= MIN_INTERVALS as usize)]));
            }
        }
    }
}
