//! Pre-trigger capture: the last seconds of a stream are held in memory, and recorded only around a trigger.
//!
//! Events are held as they are, by reference to their buffers; nothing is copied. When a trigger comes, everything that
//! is held goes to the recorder, then all that follows, until nothing has triggered for a while. What no trigger asked
//! for is given back, with the cause `not_triggered`.
//!
//! Time is that of the shots: their stamps if they have any, else when they arrived.

use serde::{Deserialize, Serialize};
use shotline_store::shot::{Event, ShotMeta};
use std::collections::VecDeque;
use std::str::FromStr;

/// The bit of a shot's flags that says that a trigger began it.
const TRIGGERED: u8 = 1 << 1;

/// What counts as a trigger.
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
    /// Whether a signal counts.
    pub fn signal(self) -> bool {
        self != Self::Flag
    }
    fn flag(self) -> bool {
        self != Self::Signal
    }
}

/// How much is kept around a trigger.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Nanoseconds before it.
    pub before_ns: u64,
    /// Nanoseconds after it.
    pub after_ns: u64,
    /// Events that may be held at once: they keep their buffers.
    pub events: usize,
    /// What counts as a trigger.
    pub by: TriggerBy,
}

/// A trigger that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The shot that was triggered, or the newest one when a signal came.
    pub number: u64,
    /// Its time in TAI nanoseconds, 0 if unknown.
    pub tai_ns: u64,
    /// It was a signal.
    pub signal: bool,
}

/// What is to be done with an event.
#[derive(Debug)]
pub enum Due {
    /// It is recorded.
    Record(Box<Event>),
    /// It is given back: no trigger asked for it.
    Discard(Box<Event>),
}

/// Decides about events, one after the other in the order in which they came.
#[derive(Debug)]
pub struct PreTrigger {
    window: Window,
    held: VecDeque<(u64, Box<Event>)>,
    due: VecDeque<Due>,
    /// Events up to this time are recorded.
    open_until: Option<u64>,
    newest: Option<(u64, u64)>,
    /// A signal came before any shot.
    early: bool,
    /// The sender's clock less the receiver's, when both were known last.
    sender_ahead: Option<u64>,
    triggers: Vec<Trigger>,
    /// Triggers so far; only the first ones are kept.
    count: u64,
    /// The longest time that was held when something had to go for want of room.
    short_ns: Option<u64>,
}

/// Triggers that are noted one by one.
const NOTED: usize = 1000;

impl PreTrigger {
    /// Holds nothing yet.
    pub fn new(window: Window) -> Self {
        Self {
            window: Window { events: window.events.max(1), ..window },
            held: VecDeque::new(),
            due: VecDeque::new(),
            open_until: None,
            newest: None,
            early: false,
            sender_ahead: None,
            triggers: Vec::new(),
            count: 0,
            short_ns: None,
        }
    }

    /// When an event was by the sender's clock, of which a shot without its last packet says nothing: then by the
    /// receiver's, as far as the two were apart before.
    fn time_of(&mut self, event: &Event) -> Option<u64> {
        let stamp = known(event, |meta| meta.stamp_tai_ns);
        let received = known(event, |meta| meta.arrived_tai_ns).or_else(|| known(event, |meta| meta.completed_tai_ns));
        if let (Some(stamp), Some(received)) = (stamp, received) {
            self.sender_ahead = Some(stamp.wrapping_sub(received));
        }
        stamp.or_else(|| Some(received?.wrapping_add(self.sender_ahead.unwrap_or(0))))
    }

    /// Takes the next event. Call [`Self::pop`] until it has no more.
    pub fn push(&mut self, event: Box<Event>) {
        let now = self.time_of(&event).unwrap_or_else(|| self.newest.map_or(0, |(_, time)| time));
        let triggered = event.shots.iter().flatten().any(|shot| shot.meta.flags & TRIGGERED != 0);
        self.newest = Some((event.number, now));
        self.open_until = self.open_until.filter(|until| now <= *until);
        // What a trigger that comes now still asks for.
        while self.held.front().is_some_and(|(time, _)| now.saturating_sub(*time) > self.window.before_ns) {
            self.discard_oldest();
        }
        self.held.push_back((now, event));
        if triggered && self.window.by.flag() {
            self.trigger(false);
        }
        if std::mem::take(&mut self.early) {
            self.trigger(true);
        }
        if self.open_until.is_some() {
            self.release();
        }
        while self.held.len() > self.window.events {
            let held = self.held.front().map_or(0, |(time, _)| now.saturating_sub(*time));
            self.short_ns = Some(self.short_ns.map_or(held, |short| short.min(held)));
            self.discard_oldest();
        }
    }

    /// A signal came: whatever is held is recorded, and what follows. One that comes before any shot is for the first.
    pub fn signal(&mut self) {
        if !self.window.by.signal() {
            return;
        }
        if self.newest.is_none() {
            self.early = true;
            return;
        }
        self.trigger(true);
        self.release();
    }

    fn trigger(&mut self, signal: bool) {
        let (number, now) = self.newest.unwrap_or_default();
        self.open_until = Some(now.saturating_add(self.window.after_ns));
        self.count += 1;
        if self.triggers.len() < NOTED {
            self.triggers.push(Trigger { number, tai_ns: now, signal });
        }
    }

    fn release(&mut self) {
        self.due.extend(self.held.drain(..).map(|(_, event)| Due::Record(event)));
    }

    fn discard_oldest(&mut self) {
        self.due.extend(self.held.pop_front().map(|(_, event)| Due::Discard(event)));
    }

    /// No event follows: what is still held no trigger asked for.
    pub fn finish(&mut self) {
        while !self.held.is_empty() {
            self.discard_oldest();
        }
    }

    /// The next event that is decided.
    pub fn pop(&mut self) -> Option<Due> {
        self.due.pop_front()
    }
    /// Whether no decided event waits.
    pub fn is_idle(&self) -> bool {
        self.due.is_empty()
    }
    /// The first triggers.
    pub fn triggers(&self) -> &[Trigger] {
        &self.triggers
    }
    /// All triggers.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// If there was no room for the time that was asked for: the shortest time that was held instead.
    pub fn short_ns(&self) -> Option<u64> {
        self.short_ns
    }
}

/// The first of an event's shots that knows a time.
fn known(event: &Event, time: fn(&ShotMeta) -> u64) -> Option<u64> {
    event.shots.iter().flatten().map(|shot| time(&shot.meta)).find(|time| *time > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::{Pool, Registrar};
    use shotline_store::shot::Shot;
    use shotline_wire::shot::{Drops, Presence};
    use std::sync::Arc;

    /// Shots are 10 ns apart: 30 ns before a trigger and 20 ns after it are wanted.
    const WINDOW: Window = Window { before_ns: 30, after_ns: 20, events: 100, by: TriggerBy::Both };

    struct Bench {
        pool: Arc<Pool>,
        capture: PreTrigger,
        /// Shots that came without their last packet, which has the stamp.
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
                    drops: Drops::default(),
                };
                let shot = Shot { meta, buffer: self.pool.take().unwrap() };
                self.capture.push(Box::new(Event { number, shots: [Some(shot)].into_iter().collect() }));
                self.take();
            }
        }

        fn take(&mut self) {
            while let Some(due) = self.capture.pop() {
                match due {
                    Due::Record(event) => self.recorded.push(event.number),
                    Due::Discard(event) => self.discarded.push(event.number),
                }
            }
        }

        fn finish(mut self) -> (Vec<u64>, Vec<u64>) {
            self.capture.finish();
            self.take();
            assert_eq!(self.pool.available(), 64, "every buffer is back");
            (self.recorded, self.discarded)
        }
    }

    #[test]
    fn a_trigger_records_what_was_before_it_and_what_follows() {
        let mut bench = Bench::new(WINDOW);
        bench.shots(0..20, &[10]);
        assert_eq!(bench.capture.triggers(), [Trigger { number: 10, tai_ns: 1100, signal: false }]);
        let (recorded, discarded) = bench.finish();
        assert_eq!(recorded, (7..=12).collect::<Vec<_>>());
        assert_eq!(discarded, (0..7).chain(13..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_shot_without_a_stamp_does_not_end_what_is_held_or_open() {
        let mut bench = Bench::new(WINDOW);
        bench.unstamped = vec![9, 11];
        bench.shots(0..20, &[10]);
        assert_eq!(bench.finish().0, (7..=12).collect::<Vec<_>>());
    }

    #[test]
    fn triggers_that_overlap_record_one_run_and_nothing_twice() {
        let mut bench = Bench::new(WINDOW);
        bench.shots(0..30, &[10, 11, 14]);
        let (recorded, _) = bench.finish();
        assert_eq!(recorded, (7..=16).collect::<Vec<_>>());
    }

    #[test]
    fn a_signal_records_what_is_held_and_what_follows() {
        let mut bench = Bench::new(WINDOW);
        bench.shots(0..10, &[]);
        bench.capture.signal();
        bench.take();
        bench.shots(10..20, &[]);
        let (recorded, _) = bench.finish();
        assert_eq!(recorded, (6..=11).collect::<Vec<_>>());
    }

    #[test]
    fn a_trigger_of_the_other_kind_is_none() {
        let mut bench = Bench::new(Window { by: TriggerBy::Signal, ..WINDOW });
        bench.shots(0..10, &[5]);
        assert!(bench.finish().0.is_empty());
        let mut bench = Bench::new(Window { by: TriggerBy::Flag, ..WINDOW });
        bench.shots(0..5, &[]);
        bench.capture.signal();
        assert!(bench.finish().0.is_empty());
    }

    #[test]
    fn without_room_the_oldest_go_and_the_time_that_was_held_is_told() {
        let mut bench = Bench::new(Window { events: 2, ..WINDOW });
        bench.shots(0..11, &[10]);
        assert_eq!(bench.capture.short_ns(), Some(20));
        assert_eq!(bench.finish().0, [8, 9, 10]);
    }
}
