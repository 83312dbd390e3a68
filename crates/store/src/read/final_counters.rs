//! Final counters of a run.

use crate::recorder::WHOLE_RUN;
use crate::rows::{self, COUNTER_BYTES};
use crate::shot::{RunCounters, StreamRunCounters};
use std::collections::BTreeMap;

/// Counters written when the run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinalCounters {
    /// Counters per stream.
    pub counters: RunCounters,
    /// Counters of the whole run, by name.
    pub totals: BTreeMap<String, u64>,
}

/// Parses the rows of `/counters`; `None` if there are none.
pub(super) fn parse_counters(entries: &[u8]) -> Option<FinalCounters> {
    let (mut streams, mut totals) = (BTreeMap::<u32, StreamRunCounters>::new(), BTreeMap::new());
    for (stream, name, value) in entries.chunks_exact(COUNTER_BYTES).filter_map(rows::parse_counter) {
        if stream == WHOLE_RUN {
            totals.insert(name, value);
        } else {
            let counters =
                streams.entry(stream).or_insert_with(|| StreamRunCounters { stream, ..StreamRunCounters::default() });
            counters.add(&name, value);
        }
    }
    let counters = RunCounters { streams: streams.into_values().collect() };
    (!entries.is_empty()).then_some(FinalCounters { counters, totals })
}
