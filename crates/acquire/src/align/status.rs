//! Status of an alignment, for observers.

use super::{Aligner, ClockState, EventCounters, SourceCounters};
use arrayvec::ArrayVec;
use shotline_store::shot::MAX_LINKS;

/// Alignment status of the links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlignmentStatus {
    /// Counters of events.
    pub events: EventCounters,
    /// Maximum distance between the stamps of one event, in ns; 0 if aligned by number.
    pub window_ns: u64,
    /// Status of each link, in their order.
    pub links: ArrayVec<LinkStatus, MAX_LINKS>,
}

/// Alignment status of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatus {
    /// Counters of its shots.
    pub counters: SourceCounters,
    /// State of its clock.
    pub clock: ClockState,
    /// Set if nothing arrives from the link.
    pub stopped: bool,
}

impl AlignmentStatus {
    pub(crate) fn of<T>(aligner: &Aligner<T>, links: usize) -> Self {
        let link = |link| LinkStatus {
            counters: *aligner.source(link),
            clock: aligner.clock(link),
            stopped: aligner.is_stopped(link),
        };
        Self {
            events: *aligner.counters(),
            window_ns: aligner.window_ns(),
            links: (0..links.min(MAX_LINKS)).map(link).collect(),
        }
    }
}
