//! The shortest usual time between the items of a source.

/// Intervals after which a source's oldest ones count no more: between this many and twice as many count.
const MEMORY: u32 = 32;

/// Intervals from which on one of them may be an outlier.
const ENOUGH: u32 = 3;

/// Remembers the two shortest of the newest intervals. The second shortest is the usual one: a single pair of close
/// stamps (a trigger that bounced, a damaged stamp) is an outlier.
#[derive(Debug)]
pub(super) struct Intervals {
    /// Of the present block and of the one before it, shortest first.
    shortest: [[u64; 2]; 2],
    /// Intervals in the present block.
    count: u32,
}

impl Intervals {
    pub(super) fn new() -> Self {
        Self { shortest: [[u64::MAX; 2]; 2], count: 0 }
    }

    pub(super) fn add(&mut self, interval: u64) {
        if self.count == MEMORY {
            self.shortest = [[u64::MAX; 2], self.shortest[0]];
            self.count = 0;
        }
        self.count += 1;
        let [first, second] = &mut self.shortest[0];
        *second = (*second).min(interval.max(*first));
        *first = (*first).min(interval);
    }

    /// The second shortest, of too few the shortest; none before there is any.
    pub(super) fn usual(&self) -> Option<u64> {
        let [[a, b], [c, d]] = self.shortest;
        let is_first_block = c == u64::MAX;
        match self.count {
            0 => None,
            1..ENOUGH if is_first_block => Some(a),
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
        fn the_usual_interval_is_the_second_shortest_of_those_that_count(all in prop::collection::vec(1..1000_u64, 1..200)) {
            let mut intervals = Intervals::new();
            prop_assert_eq!(intervals.usual(), None);
            for (index, &interval) in all.iter().enumerate() {
                intervals.add(interval);
                let block = index / MEMORY as usize;
                let mut counted = all[block.saturating_sub(1) * MEMORY as usize..=index].to_vec();
                counted.sort_unstable();
                prop_assert_eq!(intervals.usual(), Some(counted[usize::from(counted.len() >= ENOUGH as usize)]));
            }
        }
    }
}
