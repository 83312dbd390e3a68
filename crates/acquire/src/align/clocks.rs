//! Clocks of the sources, and conversion of stamps to one of them.
//!
//! Every clock is compared twice. With the *receiver's* clock, by the arrival time of items: accurate to the network's
//! jitter, available from the first item on, and independent of events. With the *reference*, the clock of the first
//! source, by the stamps of one event: accurate to the trigger's jitter, but only once events are aligned. Events are
//! therefore found by arrivals first, and by the reference as soon as it is reliable.
//!
//! In an event without the first source, the next source that is present replaces it: its stamp, converted to the
//! reference's clock, is what the others are compared with.

use super::filter::{Filter, Pick};
use super::types::MAX_SOURCES;
use arrayvec::ArrayVec;
use serde::Serialize;

/// Maximum residual of a locked clock that is compared by arrivals.
const ARRIVAL_LOCK_NS: u64 = 500_000;
/// Consecutive events without the reference after which a source's comparison with it is discarded.
const MAX_MISSED_REFERENCES: u32 = 8;

/// State of a source's clock against the reference; for the first source, against the receiver's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClockState {
    /// Time of this state by the clock that it is compared with; 0 if nothing is known.
    pub at_ns: u64,
    /// Lead over the other clock, in ns.
    pub offset_ns: i64,
    /// Drift in parts per 10^9; positive if the clock runs fast.
    pub drift_ppb: i64,
    /// Median residual of the samples, in ns.
    pub residual_ns: u64,
    /// Set if the residual has been small for some time.
    pub locked: bool,
    /// Number of jumps.
    pub jumps: u64,
}

/// Both comparisons of one clock.
#[derive(Clone, Debug)]
struct ClockPair {
    with_receiver: Filter,
    with_reference: Filter,
    missed_references: u32,
}

/// Clocks of all sources.
#[derive(Clone, Debug)]
pub(super) struct Clocks {
    sources: ArrayVec<ClockPair, MAX_SOURCES>,
    /// Offset subtracted from the reference's time to get keys, so that keys are close to the receiver's time. None
    /// before the first item of the reference.
    anchor_ns: Option<i64>,
}

impl Clocks {
    pub(super) fn new(sources: usize, lock_ns: u64) -> Self {
        let pair = || ClockPair {
            with_receiver: Filter::new(Pick::Largest, lock_ns.max(ARRIVAL_LOCK_NS)),
            with_reference: Filter::new(Pick::First, lock_ns),
            missed_references: 0,
        };
        Self { sources: (0..sources).map(|_| pair()).collect(), anchor_ns: None }
    }

    /// Adds a sample of an item's stamp and arrival time.
    pub(super) fn add_arrival(&mut self, source: usize, stamp_ns: u64, arrived_ns: u64) {
        let ahead = ahead_ns(stamp_ns, arrived_ns);
        let before = self.lead_ns(arrived_ns);
        let jumped = self.sources[source].with_receiver.add_sample(arrived_ns, ahead);
        if source > 0 {
            if jumped {
                self.forget_reference(source);
            }
            return;
        }
        if jumped {
            // After a forward jump, keys have already advanced with the items before its detection; after a backward
            // jump they must not go back.
            self.lose_reference(ahead, before.max(self.lead_ns(arrived_ns)));
        }
        self.anchor_ns.get_or_insert(ahead);
    }

    /// Notes that a source has come back, perhaps with a different clock setting.
    pub(super) fn rejoin(&mut self, source: usize, stamp_ns: u64, arrived_ns: u64) {
        if source == 0 && stamp_ns > 0 && arrived_ns > 0 {
            self.lose_reference(ahead_ns(stamp_ns, arrived_ns), self.lead_ns(arrived_ns));
        }
        self.sources[source].with_receiver.reset();
        self.forget_reference(source);
    }

    fn forget_reference(&mut self, source: usize) {
        let pair = &mut self.sources[source];
        pair.with_reference.reset();
        pair.missed_references = 0;
    }

    /// Handles a step of the first source's clock: the comparisons of the others with it are reset, and keys continue
    /// with this lead.
    fn lose_reference(&mut self, ahead_ns: i64, lead: i64) {
        self.anchor_ns = Some(ahead_ns.saturating_sub(lead));
        (1..self.sources.len()).for_each(|source| self.forget_reference(source));
    }

    /// Returns the lead of keys over the receiver's clock: the drift of the reference since the start.
    fn lead_ns(&self, arrived_ns: u64) -> i64 {
        let reference = &self.sources[0].with_receiver;
        match self.anchor_ns {
            Some(anchor) if reference.has_samples() => reference.offset_ns(arrived_ns).saturating_sub(anchor),
            _ => 0,
        }
    }

    /// Returns the key of an item; none for an item with neither stamp nor arrival time.
    pub(super) fn key(&self, source: usize, stamp_ns: u64, arrived_ns: u64) -> Option<u64> {
        let pair = &self.sources[source];
        match (stamp_ns, arrived_ns) {
            (0, 0) => None,
            // Only the arrival time is known.
            (0, arrived_ns) => Some(arrived_ns.saturating_add_signed(self.lead_ns(arrived_ns))),
            (stamp, _) if source == 0 => Some(subtract(stamp, self.anchor_ns.unwrap_or(0))),
            (stamp, _) if pair.with_reference.is_reliable() => {
                Some(subtract(pair.with_reference.reference_ns(stamp), self.anchor_ns.unwrap_or(0)))
            }
            (stamp, 0) => Some(subtract(stamp, self.anchor_ns.unwrap_or(0))),
            (stamp, arrived_ns) => {
                let ahead = pair.with_receiver.offset_ns(arrived_ns);
                Some(subtract(stamp, ahead.saturating_sub(self.lead_ns(arrived_ns))))
            }
        }
    }

    /// Adds an event with the stamps of these sources, in their order. `by_stamp`: the event was found by stamps, so a
    /// source that keeps missing the reference has a wrong clock estimate. `reference_present`: the first source has
    /// not stopped.
    pub(super) fn add_event(&mut self, stamps: &[(usize, u64)], by_stamp: bool, reference_present: bool) {
        let Some((carrier, stamp)) = stamps.first().copied() else { return };
        if by_stamp && reference_present {
            self.count_missed_references(stamps, carrier);
        }
        let reference_ns = match carrier {
            0 => stamp,
            _ if self.sources[carrier].with_reference.is_reliable() => {
                self.sources[carrier].with_reference.reference_ns(stamp)
            }
            // No source of this event gives the reference's time.
            _ => return,
        };
        for (source, stamp) in &stamps[1..] {
            self.sources[*source].with_reference.add_sample(reference_ns, ahead_ns(*stamp, reference_ns));
        }
    }

    fn count_missed_references(&mut self, stamps: &[(usize, u64)], carrier: usize) {
        for (source, _) in stamps.iter().filter(|(source, _)| *source > 0) {
            let pair = &mut self.sources[*source];
            pair.missed_references = if carrier == 0 { 0 } else { pair.missed_references + 1 };
            if pair.missed_references >= MAX_MISSED_REFERENCES && pair.with_reference.has_samples() {
                self.forget_reference(*source);
            }
        }
    }

    /// Returns the state of a source's clock.
    pub(super) fn state(&self, source: usize) -> ClockState {
        let pair = &self.sources[source];
        let filter = if source == 0 { &pair.with_receiver } else { &pair.with_reference };
        let jumps = pair.with_receiver.jumps.max(pair.with_reference.jumps);
        if !filter.has_samples() {
            return ClockState { jumps, ..ClockState::default() };
        }
        ClockState {
            at_ns: filter.at_ns(),
            offset_ns: filter.offset_ns(filter.at_ns()),
            drift_ppb: filter.drift_ppb(),
            residual_ns: filter.residual_ns(),
            locked: filter.is_locked(),
            jumps,
        }
    }
}

/// Returns the lead of a stamp over another clock's time, in ns.
fn ahead_ns(stamp_ns: u64, other_ns: u64) -> i64 {
    stamp_ns.wrapping_sub(other_ns) as i64
}

fn subtract(stamp_ns: u64, ahead_ns: i64) -> u64 {
    // Stamps are untrusted: clamped to the range of `u64`.
    (i128::from(stamp_ns) - i128::from(ahead_ns)).clamp(0, i128::from(u64::MAX)) as u64
}
