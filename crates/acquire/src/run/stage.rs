//! The receive thread's work.

use super::RunError;
use super::rest::{Idle, Rest};
use crate::clock::Clock;
use crate::event::{Joined, Joiner};
use crate::live::Live;
use crate::receiver::Receiver;
use crate::sink::Gate;
use crate::stages::Spent;
use crate::stream::Item;
use crate::watch::Watch;
use shotline_store::shot::Event;
use shotline_transport::PacketIo;
use shotline_wire::shot::DropCause;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Batches received between two looks at the clock.
const BATCHES: usize = 32;

/// How long to wait for packets that a sender says it has sent.
const STRAGGLERS: Duration = Duration::from_millis(250);
/// Time between two looks at how far the clock is ahead of the kernel's.
const CLOCK_EVERY: Duration = Duration::from_secs(1);
/// A pause of this thread is no silence of a link: between two looks at what came no more time than this passes for them.
const LONGEST_LOOK: Duration = Duration::from_millis(10);

/// Receives, joins and hands on.
pub(super) struct Stage<'a, P> {
    pub(super) receiver: &'a mut Receiver<P>,
    pub(super) joiner: Joiner,
    pub(super) gate: Option<Gate>,
    pub(super) wake: &'a dyn Fn(),
    pub(super) items: Vec<Item>,
    /// Items that were received, and not yet joined.
    pub(super) arriving: VecDeque<Item>,
    /// The time that has passed for links and shots: while packets were taken, in ns.
    pub(super) listened_ns: u64,
    /// Under the policy `block`: what the queue had no room for.
    pub(super) blocked: Option<Joined>,
    /// Rows that the sink still has room for.
    pub(super) rows_left: u64,
    pub(super) live: &'a Live,
    pub(super) busy_poll: bool,
    pub(super) clock: &'a Clock,
    /// Events after which a run without a probe ends.
    pub(super) most_events: u64,
    /// Silence after which it ends.
    pub(super) idle: Option<Duration>,
    /// Events so far.
    pub(super) events: u64,
    /// Receive nothing while the sink works: stages one after the other.
    pub(super) sequential: bool,
    /// Events that the sink has been given.
    pub(super) handed: u64,
    pub(super) rest: Rest,
}

impl<P: PacketIo> Stage<'_, P> {
    /// Receives until the run is over. Returns the seconds from the first packet to the last.
    pub(super) fn run(&mut self, stop: &AtomicBool, deadline: Option<Instant>, watch: &Watch) -> Result<f64, RunError> {
        let begun = Instant::now();
        let mut first = None;
        let mut last = begun;
        let mut shown = begun;
        let mut looked = begun;
        let mut timed = begun;
        // What the last turn was, and how long turns like it have been since they were last entered.
        let (mut turn, mut turned, mut spent) = (Spent::Starved, begun, [Duration::ZERO; 3]);
        // What only passes by (strangers, stragglers) must not keep a run from ending.
        let (mut placed, mut settled_ns) = (0, 0);
        loop {
            let now = Instant::now();
            spent[turn as usize] += now - turned;
            turned = now;
            let waits = self.blocked.is_some() || self.sequential && self.live.stored() < self.handed;
            // Nobody is late or silent while nobody listens.
            if !waits {
                self.listened_ns += (now - looked).min(LONGEST_LOOK).as_nanos() as u64;
            }
            looked = now;
            let packets = if waits { 0 } else { self.receiver.poll(self.listened_ns, BATCHES, &mut self.items)? };
            if packets > 0 {
                first.get_or_insert(now);
                last = now;
                self.rest.took(packets);
            }
            self.hand_on(false);
            turn = match packets {
                _ if waits => Spent::Stalled,
                0 => Spent::Starved,
                _ => Spent::Busy,
            };
            if now - shown > Duration::from_millis(20) {
                shown = now;
                if now - timed > CLOCK_EVERY {
                    timed = now;
                    self.clock.refresh();
                }
                let total = self.receiver.total();
                if total.placed != placed || waits || self.blocked.is_some() {
                    (placed, settled_ns) = (total.placed, self.listened_ns);
                }
                let silence = Duration::from_nanos(self.listened_ns - settled_ns);
                let lost = self.receiver.io().device().lost();
                self.live.update(&total, lost);
                if first.is_some() {
                    self.enter(&mut spent);
                } else {
                    // Before the first packet the pipeline does not run.
                    spent = [Duration::ZERO; 3];
                }
                self.live.set_step(self.joiner.step());
                if stop.load(Ordering::Relaxed)
                    || deadline.is_some_and(|deadline| now > deadline)
                    || self.live.is_full()
                {
                    watch.stop();
                }
                if !watch.has_probe() && (watch.is_stopping() || self.is_over(silence, first.is_some())) {
                    break;
                }
                if watch.gone() && silence > Duration::from_secs(2) {
                    break;
                }
                // The probe has said where it stopped: wait for the stragglers.
                if let Some(ends) = watch.ends() {
                    let all_in = (0..ends.len()).all(|stream| self.receiver.next(stream) >= Some(ends[stream]));
                    if all_in || silence > STRAGGLERS {
                        break;
                    }
                }
            }
            if packets == 0 && !self.busy_poll {
                match self.rest.idle(now, now - last) {
                    Idle::Look => {}
                    Idle::Rest(time) => std::thread::sleep(time),
                    Idle::Sleep => self.receiver.io().wait(Duration::from_millis(1))?,
                }
            }
        }
        let lost = self.receiver.io().device().lost();
        self.live.update(&self.receiver.total(), lost);
        self.enter(&mut spent);
        self.live.set_step(self.joiner.step());
        Ok(first.map_or(0.0, |first| (last - first).as_secs_f64()))
    }

    /// Enters how the time since the last call was spent.
    fn enter(&self, spent: &mut [Duration; 3]) {
        for how in [Spent::Busy, Spent::Starved, Spent::Stalled] {
            self.live.receive.spend(how, std::mem::take(&mut spent[how as usize]), 0.0);
        }
    }

    /// Whether a sender without set-up has ended, or enough of it has come.
    fn is_over(&self, silence: Duration, begun: bool) -> bool {
        self.events >= self.most_events
            || self.receiver.has_stopped() && silence > STRAGGLERS
            || self.receiver.has_changed()
            || begun && self.idle.is_some_and(|idle| silence > idle)
    }

    /// Closes all shots and hands on the rest.
    pub(super) fn finish(&mut self, watch: &Watch) -> Result<(), RunError> {
        let ends: Vec<Option<u64>> = watch.ends().unwrap_or_default().iter().copied().map(Some).collect();
        self.receiver.finish(&ends, &mut self.items);
        self.hand_on(true);
        while self.blocked.is_some() {
            (self.wake)();
            std::thread::sleep(Duration::from_millis(1));
            self.hand_on(true);
        }
        self.live.set_step(self.joiner.step());
        Ok(())
    }

    /// Joins what was received, and hands on what is decided; with `all` everything.
    fn hand_on(&mut self, all: bool) {
        self.arriving.extend(self.items.drain(..));
        let mut handed = false;
        loop {
            handed |= self.hand_on_decided(all && self.arriving.is_empty());
            if self.blocked.is_some() {
                break;
            }
            let Some(item) = self.arriving.pop_front() else { break };
            self.joiner.push(self.listened_ns, item);
        }
        if handed {
            (self.wake)();
        }
    }

    /// Whether there was anything.
    fn hand_on_decided(&mut self, all: bool) -> bool {
        let mut handed = false;
        loop {
            self.account_for_left();
            let next = match self.blocked.take() {
                Some(joined) => Some(joined),
                None => self.joiner.pop(self.listened_ns).or_else(|| if all { self.joiner.flush() } else { None }),
            };
            let Some(joined) = next else { break };
            self.events += u64::from(matches!(joined, Joined::Event(_)));
            // Without a gate shots are discarded here, and their buffers are free again.
            let Some(gate) = &self.gate else { continue };
            handed = true;
            let is_event = matches!(joined, Joined::Event(_));
            if is_event && self.rows_left == 0 {
                self.live.set_full();
            }
            let receiver = &mut *self.receiver;
            let mut given_up = 0;
            let mut give_up = |event: &Event, cause: DropCause| {
                given_up += 1;
                for (stream, shot) in event.shots.iter().enumerate() {
                    if let Some(shot) = shot {
                        receiver.books_mut(stream).give_up(shot.meta.is_complete(), cause);
                    }
                }
            };
            if let Err(event) = gate.put(joined, self.rows_left > 0, &mut give_up) {
                self.blocked = Some(Joined::Event(event));
                break;
            }
            self.handed = (self.handed + u64::from(is_event)).saturating_sub(given_up);
            self.rows_left = self.rows_left + given_up - u64::from(is_event);
        }
        self.account_for_left();
        handed
    }

    /// Enters the shots that are in no event.
    fn account_for_left(&mut self) {
        while let Some(left) = self.joiner.pop_left() {
            self.receiver.books_mut(left.link).give_up(left.shot.meta.is_complete(), left.cause);
            if let Some(gate) = &self.gate {
                gate.lose(left.loss());
            }
        }
    }
}
