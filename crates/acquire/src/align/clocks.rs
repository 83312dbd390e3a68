//! The sources' clocks, and stamps brought to one of them.
//!
//! Every clock is compared twice. With the *receiver's*, by when an item arrived: good to the network's jitter, there from
//! the first item on, and needs no event to be put together. With the *reference*, the clock of the first source, by the
//! stamps of one event: good to the trigger's jitter, but only once events come together. So events are found by arrivals
//! first, and by the reference as soon as that can be relied on.
//!
//! While the first source is away its clock is carried on by the next one that is there.

use super::filter::{Filter, Pick};
use super::types::MAX_SOURCES;
use arrayvec::ArrayVec;
use serde::Serialize;

/// Arrivals that jitter by less are a lock.
const ARRIVAL_BOUND_NS: u64 = 500_000;
/// Events in a row that a source did not share with the reference: its clock is not what it was taken for.
const ASTRAY: u32 = 8;

/// A source's clock as it is known by now: against the reference, that of the first source against the receiver's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClockState {
    /// When, by the clock that it is compared with; 0 if nothing is known.
    pub at_ns: u64,
    /// It is ahead by so much, in ns.
    pub offset_ns: i64,
    /// It runs faster by so much, in parts per 10^9.
    pub drift_ppb: i64,
    /// Half of the samples are closer to the line than this, in ns.
    pub residual_ns: u64,
    /// The residual has been small for some time.
    pub locked: bool,
    /// Times that it jumped.
    pub jumps: u64,
}

/// The two comparisons of one clock.
#[derive(Clone, Debug)]
struct Compared {
    with_receiver: Filter,
    with_reference: Filter,
    apart: u32,
}

/// The clocks of all sources.
#[derive(Clone, Debug)]
pub(super) struct Clocks {
    sources: ArrayVec<Compared, MAX_SOURCES>,
    /// Keys are the reference's time less this: about the receiver's time of arrival. None before its first item.
    anchor_ns: Option<i64>,
}

impl Clocks {
    pub(super) fn new(sources: usize, lock_ns: u64) -> Self {
        let compared = || Compared {
            with_receiver: Filter::new(Pick::Largest, lock_ns.max(ARRIVAL_BOUND_NS)),
            with_reference: Filter::new(Pick::First, lock_ns),
            apart: 0,
        };
        Self { sources: (0..sources).map(|_| compared()).collect(), anchor_ns: None }
    }

    /// An item with this stamp has arrived.
    pub(super) fn arrived(&mut self, source: usize, stamp_ns: u64, arrived_ns: u64) {
        let ahead = ahead_ns(stamp_ns, arrived_ns);
        let before = self.lead_ns(arrived_ns);
        let jumped = self.sources[source].with_receiver.feed(arrived_ns, ahead);
        if source > 0 {
            if jumped {
                self.forget_reference(source);
            }
            return;
        }
        if jumped {
            // Forwards, keys have gone ahead with what came before the jump was seen; backwards they must not go back.
            self.lose_reference(ahead, before.max(self.lead_ns(arrived_ns)));
        }
        self.anchor_ns.get_or_insert(ahead);
    }

    /// The source has come back, perhaps with a clock that was set anew.
    pub(super) fn rejoined(&mut self, source: usize, stamp_ns: u64, arrived_ns: u64) {
        if source == 0 && stamp_ns > 0 && arrived_ns > 0 {
            self.lose_reference(ahead_ns(stamp_ns, arrived_ns), self.lead_ns(arrived_ns));
        }
        self.sources[source].with_receiver.reset();
        self.forget_reference(source);
    }

    fn forget_reference(&mut self, source: usize) {
        let compared = &mut self.sources[source];
        compared.with_reference.reset();
        compared.apart = 0;
    }

    /// The first source's clock reads something else from now on: the others are compared with it anew, and keys go on
    /// with this lead.
    fn lose_reference(&mut self, ahead_ns: i64, lead: i64) {
        self.anchor_ns = Some(ahead_ns.saturating_sub(lead));
        (1..self.sources.len()).for_each(|source| self.forget_reference(source));
    }

    /// How far keys are ahead of the receiver's clock: the drift of the reference since the beginning.
    fn lead_ns(&self, arrived_ns: u64) -> i64 {
        let reference = &self.sources[0].with_receiver;
        match self.anchor_ns {
            Some(anchor) if reference.is_begun() => reference.offset_ns(arrived_ns).saturating_sub(anchor),
            _ => 0,
        }
    }

    /// The time at which an item belongs; none of an item without both stamp and arrival.
    pub(super) fn key(&self, source: usize, stamp_ns: u64, arrived_ns: u64) -> Option<u64> {
        let compared = &self.sources[source];
        match (stamp_ns, arrived_ns) {
            (0, 0) => None,
            // When it arrived is all that is known.
            (0, arrived) => Some(arrived.saturating_add_signed(self.lead_ns(arrived))),
            (stamp, _) if source == 0 => Some(less(stamp, self.anchor_ns.unwrap_or(0))),
            (stamp, _) if compared.with_reference.is_reliable() => {
                Some(less(compared.with_reference.reference_ns(stamp), self.anchor_ns.unwrap_or(0)))
            }
            (stamp, 0) => Some(less(stamp, self.anchor_ns.unwrap_or(0))),
            (stamp, arrived) => {
                let ahead = compared.with_receiver.offset_ns(arrived);
                Some(less(stamp, ahead.saturating_sub(self.lead_ns(arrived))))
            }
        }
    }

    /// An event has the stamps of these sources, in their order. `by_stamp`: it was found by them; then a source that
    /// goes on missing the reference has lost its way. `reference_is_there`: the first source has not stopped.
    pub(super) fn event(&mut self, stamps: &[(usize, u64)], by_stamp: bool, reference_is_there: bool) {
        let Some((carrier, stamp)) = stamps.first().copied() else { return };
        if by_stamp && reference_is_there {
            self.count_apart(stamps, carrier);
        }
        let reference_ns = match carrier {
            0 => stamp,
            _ if self.sources[carrier].with_reference.is_reliable() => {
                self.sources[carrier].with_reference.reference_ns(stamp)
            }
            // Nobody here knows what time it is.
            _ => return,
        };
        for (source, stamp) in &stamps[1..] {
            self.sources[*source].with_reference.feed(reference_ns, ahead_ns(*stamp, reference_ns));
        }
    }

    fn count_apart(&mut self, stamps: &[(usize, u64)], carrier: usize) {
        for (source, _) in stamps.iter().filter(|(source, _)| *source > 0) {
            let compared = &mut self.sources[*source];
            compared.apart = if carrier == 0 { 0 } else { compared.apart + 1 };
            if compared.apart >= ASTRAY && compared.with_reference.is_begun() {
                self.forget_reference(*source);
            }
        }
    }

    /// A source's clock as it is known by now.
    pub(super) fn state(&self, source: usize) -> ClockState {
        let compared = &self.sources[source];
        let filter = if source == 0 { &compared.with_receiver } else { &compared.with_reference };
        let jumps = compared.with_receiver.jumps.max(compared.with_reference.jumps);
        if !filter.is_begun() {
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

fn ahead_ns(stamp_ns: u64, other_ns: u64) -> i64 {
    stamp_ns.wrapping_sub(other_ns) as i64
}

fn less(stamp_ns: u64, ahead_ns: i64) -> u64 {
    // Not below zero, and not beyond the end: stamps come from outside.
    (i128::from(stamp_ns) - i128::from(ahead_ns)).clamp(0, i128::from(u64::MAX)) as u64
}
