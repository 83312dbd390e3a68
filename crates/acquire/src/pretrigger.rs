//! Pre-trigger capture: the last seconds of a stream are buffered in memory, and recorded only around a trigger.
//!
//! Events are buffered by reference to their buffers; nothing is copied. At a trigger all buffered events go to the
//! recorder, then all following ones, until nothing has triggered for some time. Events that no trigger selected are
//! returned with the drop cause `not_triggered`.
//!
//! Time is that of the shots: their stamps if they have any, else their arrival times.

use serde::{Deserialize, Serialize};
use shotline_store::shot::{Event, ShotMeta};
use std::collections::VecDeque;
use std::str::FromStr;

/// Bit of a shot's flags: a trigger began the shot.
const TRIGGERED: u8 = 1 << 1;

/// Source of triggers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TriggerBy {
    /// The flag `triggered` of an end-of-shot record.
    Flag,
    /// The signal SIGUSR1 to the recording program.
    Signal,
    /// Either.
    #[default]
    Both,
}

impl FromStr for TriggerBy {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "flag" => Ok(Self::Flag),
            "signal" => Ok(Self::Signal),
            "both" => Ok(Self::Both),
            _ => Err(format!("expected flag, signal or both, found {name}")),
        }
    }
}

impl TriggerBy {
    /// Returns `true` if a signal counts as a trigger.
    pub fn accepts_signals(self) -> bool {
        self != Self::Flag
    }
    fn accepts_flags(self) -> bool {
        self != Self::Signal
    }
}

/// Times around a trigger, and limits.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Nanoseconds recorded before a trigger.
    pub before_ns: u64,
    /// Nanoseconds recorded after a trigger.
    pub after_ns: u64,
    /// Maximum number of buffered events; they keep their buffers.
    pub events: usize,
    /// Source of triggers.
    pub by: TriggerBy,
}

/// A trigger that occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The shot that was triggered, or the newest one when a signal arrived.
    pub number: u64,
    /// Time of that shot in TAI nanoseconds, 0 if unknown.
    pub tai_ns: u64,
    /// Set if the trigger was a signal.
    pub signal: bool,
}

/// Decision about an event.
#[derive(Debug)]
pub enum Decision {
    /// The event is recorded.
    Record(Box<Event>),
    /// The event is dropped: no trigger selected it.
    Discard(Box<Event>),
}

/// Selects events around triggers, one after the other in the order of their arrival.
#[derive(Debug)]
pub struct PreTrigger {
    window: Window,
    buffered: VecDeque<(u64, Box<Event>)>,
    decisions: VecDeque<Decision>,
    /// Events up to this time are recorded.
    record_until: Option<u64>,
    newest: Option<(u64, u64)>,
    /// Set if a signal arrived before any shot.
    signal_pending: bool,
    /// Lead of the sender's clock over the receiver's in ns, when both times were last known.
    sender_lead_ns: Option<u64>,
    triggers: Vec<Trigger>,
    /// Number of triggers; only the first ones are kept.
    count: u64,
    /// Shortest time span of the buffered events when one had to be dropped for lack of space, in ns.
    shortest_ns: Option<u64>,
}

/// Maximum number of triggers kept one by one.
const MAX_TRIGGERS: usize = 1000;

impl PreTrigger {
    /// Creates an empty capture.
    pub fn new(window: Window) -> Self {
        Self {
            window: Window { events: window.events.max(1), ..window },
            buffered: VecDeque::new(),
            decisions: VecDeque::new(),
            record_until: None,
            newest: None,
            signal_pending: false,
            sender_lead_ns: None,
            triggers: Vec::new(),
            count: 0,
            shortest_ns: None,
        }
    }

    /// Returns an event's time by the sender's clock. A shot without its last packet has no stamp; its time follows
    /// from the receiver's clock and the last known difference of the two.
    fn time_of(&mut self, event: &Event) -> Option<u64> {
        let stamp = first_known(event, |meta| meta.stamp_tai_ns);
        let received =
            first_known(event, |meta| meta.arrived_tai_ns).or_else(|| first_known(event, |meta| meta.completed_tai_ns));
        if let (Some(stamp), Some(received)) = (stamp, received) {
            self.sender_lead_ns = Some(stamp.wrapping_sub(received));
        }
        stamp.or_else(|| Some(received?.wrapping_add(self.sender_lead_ns.unwrap_or(0))))
    }

    /// Adds the next event. Call [`Self::pop`] until it returns none after each call.
    pub fn push(&mut self, event: Box<Event>) {
        let now = self.time_of(&event).unwrap_or_else(|| self.newest.map_or(0, |(_, time)| time));
        let triggered = event.shots.iter().flatten().any(|shot| shot.meta.flags & TRIGGERED != 0);
        self.newest = Some((event.number, now));
        self.record_until = self.record_until.filter(|until| now <= *until);
        // Drop events that a trigger at this time would no longer select.
        while self.buffered.front().is_some_and(|(time, _)| now.saturating_sub(*time) > self.window.before_ns) {
            self.discard_oldest();
        }
        self.buffered.push_back((now, event));
        if triggered && self.window.by.accepts_flags() {
            self.trigger(false);
        }
        if std::mem::take(&mut self.signal_pending) {
            self.trigger(true);
        }
        if self.record_until.is_some() {
            self.release();
        }
        while self.buffered.len() > self.window.events {
            let buffered = self.buffered.front().map_or(0, |(time, _)| now.saturating_sub(*time));
            self.shortest_ns = Some(self.shortest_ns.map_or(buffered, |short| short.min(buffered)));
            self.discard_oldest();
        }
    }

    /// Handles a signal: records all buffered events and those that follow. A signal before any shot triggers at the
    /// first one.
    pub fn handle_signal(&mut self) {
        if !self.window.by.accepts_signals() {
            return;
        }
        if self.newest.is_none() {
            self.signal_pending = true;
            return;
        }
        self.trigger(true);
        self.release();
    }

    fn trigger(&mut self, signal: bool) {
        let (number, now) = self.newest.unwrap_or_default();
        self.record_until = Some(now.saturating_add(self.window.after_ns));
        self.count += 1;
        if self.triggers.len() < MAX_TRIGGERS {
            self.triggers.push(Trigger { number, tai_ns: now, signal });
        }
    }

    fn release(&mut self) {
        self.decisions.extend(self.buffered.drain(..).map(|(_, event)| Decision::Record(event)));
    }

    fn discard_oldest(&mut self) {
        self.decisions.extend(self.buffered.pop_front().map(|(_, event)| Decision::Discard(event)));
    }

    /// Drops all buffered events, which no trigger selected: for the end of a run.
    pub fn finish(&mut self) {
        while !self.buffered.is_empty() {
            self.discard_oldest();
        }
    }

    /// Returns the next decision.
    pub fn pop(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }
    /// Returns `true` if no decision is pending.
    pub fn is_idle(&self) -> bool {
        self.decisions.is_empty()
    }
    /// Returns the first 1000 triggers.
    pub fn triggers(&self) -> &[Trigger] {
        &self.triggers
    }
    /// Returns the number of all triggers.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Returns the shortest time span that was buffered, in ns; none if the configured time always fitted.
    pub fn shortest_ns(&self) -> Option<u64> {
        self.shortest_ns
    }
}

/// Returns the first nonzero time among an event's shots.
fn first_known(event: &Event, time: fn(&ShotMeta) -> u64) -> Option<u64> {
    event.shots.iter().flatten().map(|shot| time(&shot.meta)).find(|time| *time > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::{Pool, Registrar};
    use shotline_store::shot::Shot;
    use shotline_wire::shot::{DropCounters, Presence};
    use std::sync::Arc;

    /// Shots are 10 ns apart: 30 ns before a trigger and 20 ns after it are recorded.
    const WINDOW: Window = Window { before_ns: 30, after_ns: 20, events: 100, by: TriggerBy::Both };

    struct Bench {
        pool: Arc<Pool>,
        capture: PreTrigger,
        /// Shots without their last packet, which has the stamp.
        unstamped: Vec<u64>,
        recorded: Vec<u64>,
        discarded: Vec<u64>,
    }

    impl Bench {
        fn new(window: Window) -> Self {
            let pool = Pool::new(&mut Registrar::new(), 64, 64).unwrap();
            let (capture, unstamped) = (PreTrigger::new(window), Vec::new());
            Self { pool, capture, unstamped, recorded: Vec::new(), discarded: Vec::new() }
        }

        fn shots(&mut self, numbers: std::ops::Range<u64>, triggered: &[u64]) {
            for number in numbers {
                let flags = if triggered.contains(&number) { TRIGGERED } else { 0 };
                let meta = ShotMeta {
                    stream: 0,
                    number,
                    // The sender counts from its start, the receiver from 1970.
                    stamp_tai_ns: if self.unstamped.contains(&number) { 0 } else { 1000 + 10 * number },
                    arrived_tai_ns: 1_700_000_000_000_000_000 + 10 * number,
                    completed_tai_ns: 0,
                    flags,
                    record_good: true,
                    valid_bytes: 0,
                    presence: Arc::new(Presence::empty(1)),
                    drops: DropCounters::default(),
                };
                let shot = Shot { meta, buffer: self.pool.take().unwrap() };
                self.capture.push(Box::new(Event { number, shots: [Some(shot)].into_iter().collect() }));
                self.drain();
            }
        }

        fn drain(&mut self) {
            while let Some(decision) = self.capture.pop() {
                match decision {
                    Decision::Record(event) => self.recorded.push(event.number),
                    Decision::Discard(event) => self.discarded.push(event.number),
                }
            }
        }

        fn finish(mut self) -> (Vec<u64>, Vec<u64>) {
            self.capture.finish();
            self.drain();
            assert_eq!(self.pool.available(), 64, "every buffer is back");
            (self.recorded, self.discarded)
        }
    }

    #[test]
    fn a_trigger_records_events_before_and_after_it() {
        let mut bench = Bench::new(WINDOW);
        bench.shots(0..20, &[10]);
        assert_eq!(bench.capture.triggers(), [Trigger { number: 10, tai_ns: 1100, signal: false }]);
        let (recorded, discarded) = bench.finish();
        assert_eq!(recorded, (7..=12).collect::<Vec<_>>());
        assert_eq!(discarded, (0..7).chain(13..20).collect::<Vec<_>>());
    }

    #[test]
    fn an_unstamped_shot_does_not_end_a_trigger_window() {
        let mut bench = Bench::new(WINDOW);
        bench.unstamped = vec![9, 11];
        bench.shots(0..20, &[10]);
        assert_eq!(bench.finish().0, (7..=12).collect::<Vec<_>>());
    }

    #[test]
    fn overlapping_triggers_record_each_event_once() {
        let mut bench = Bench::new(WINDOW);
        bench.shots(0..30, &[10, 11, 14]);
        let (recorded, _) = bench.finish();
        assert_eq!(recorded, (7..=16).collect::<Vec<_>>());
    }

    #[test]
    fn a_signal_records_buffered_and_following_events() {
        let mut bench = Bench::new(WINDOW);
        bench.shots(0..10, &[]);
        bench.capture.handle_signal();
        bench.drain();
        bench.shots(10..20, &[]);
        let (recorded, _) = bench.finish();
        assert_eq!(recorded, (6..=11).collect::<Vec<_>>());
    }

    #[test]
    fn a_trigger_of_the_other_kind_is_ignored() {
        let mut bench = Bench::new(Window { by: TriggerBy::Signal, ..WINDOW });
        bench.shots(0..10, &[5]);
        assert!(bench.finish().0.is_empty());
        let mut bench = Bench::new(Window { by: TriggerBy::Flag, ..WINDOW });
        bench.shots(0..5, &[]);
        bench.capture.handle_signal();
        assert!(bench.finish().0.is_empty());
    }

    #[test]
    fn without_space_the_oldest_are_dropped_and_the_time_reported() {
        let mut bench = Bench::new(Window { events: 2, ..WINDOW });
        bench.shots(0..11, &[10]);
        assert_eq!(bench.capture.shortest_ns(), Some(20));
        assert_eq!(bench.finish().0, [8, 9, 10]);
    }
}
