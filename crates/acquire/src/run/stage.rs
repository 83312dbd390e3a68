//! The receive thread's work.

use super::RunError;
use super::rest::{Idle, Rest};
use crate::clock::Clock;
use crate::event::{Joined, Joiner};
use crate::live::Live;
use crate::receiver::Receiver;
use crate::sink::Gate;
use crate::stream::Item;
use crate::watch::Watch;
use shotline_store::shot::Event;
use shotline_transport::PacketIo;
use shotline_wire::shot::DropCause;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Batches received between two looks at the clock.
const BATCHES: usize = 32;

/// How long to wait for packets that a sender says it has sent.
const STRAGGLERS: Duration = Duration::from_millis(250);
/// Time between two looks at how far the clock is ahead of the kernel's.
const CLOCK_EVERY: Duration = Duration::from_secs(1);

/// Receives, joins and hands on.
pub(super) struct Stage<'a, P> {
    pub(super) receiver: &'a mut Receiver<P>,
    pub(super) joiner: Joiner,
    pub(super) gate: Option<Gate>,
    pub(super) wake: &'a dyn Fn(),
    pub(super) items: Vec<Item>,
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
    pub(super) rest: Rest,
}

impl<P: PacketIo> Stage<'_, P> {
    /// Receives until the run is over. Returns the seconds from the first packet to the last.
    pub(super) fn run(&mut self, stop: &AtomicBool, deadline: Option<Instant>, watch: &Watch) -> Result<f64, RunError> {
        let begun = Instant::now();
        let mut first = None;
        let mut last = begun;
        let mut shown = begun;
        let mut timed = begun;
        // What only passes by (strangers, stragglers) must not keep a run from ending.
        let (mut placed, mut settled) = (0, begun);
        loop {
            let now = Instant::now();
            let packets = if self.blocked.is_none() {
                self.receiver.poll((now - begun).as_nanos() as u64, BATCHES, &mut self.items)?
            } else {
                0
            };
            if packets > 0 {
                first.get_or_insert(now);
                last = now;
                self.rest.took(packets);
            }
            self.hand_on(false);
            if now - shown > Duration::from_millis(20) {
                shown = now;
                if now - timed > CLOCK_EVERY {
                    timed = now;
                    self.clock.refresh();
                }
                let total = self.receiver.total();
                if total.placed != placed || self.blocked.is_some() {
                    (placed, settled) = (total.placed, now);
                }
                let silence = now - settled;
                self.live.update(&total);
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
        self.live.update(&self.receiver.total());
        Ok(first.map_or(0.0, |first| (last - first).as_secs_f64()))
    }

    /// Whether a sender without set-up has ended, or enough of it has come.
    fn is_over(&self, silence: Duration, begun: bool) -> bool {
        self.events >= self.most_events
            || self.receiver.has_stopped() && silence > STRAGGLERS
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
        Ok(())
    }

    fn hand_on(&mut self, all: bool) {
        for item in self.items.drain(..) {
            self.joiner.push(item);
        }
        let mut handed = false;
        loop {
            let next = match self.blocked.take() {
                Some(joined) => Some(joined),
                None => self.joiner.pop().or_else(|| if all { self.joiner.flush() } else { None }),
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
            self.rows_left = self.rows_left + given_up - u64::from(is_event);
        }
        if handed {
            (self.wake)();
        }
    }
}
