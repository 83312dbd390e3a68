//! The receive thread's work.

use super::cause::Cause;
use super::end::Asked;
use super::error::RunError;
use super::prepare::Prepared;
use super::rest::{Idle, Rest};
use super::watch::{Watch, after_last};
use crate::books::Books;
use crate::clock::Clock;
use crate::event::{Joined, Joiner};
use crate::live::Live;
use crate::receiver::Receiver;
use crate::sink::Gate;
use crate::stages::Spent;
use crate::stream::Item;
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

/// Where the receive thread hands its events.
pub(super) struct Output<'a> {
    /// The queue to the sink; none: shots are discarded.
    pub(super) gate: Option<Gate>,
    /// Wakes the sink.
    pub(super) wake: &'a dyn Fn(),
    /// Rows that the sink still has room for.
    pub(super) rows_left: u64,
    pub(super) live: &'a Live,
}

/// Receives, joins and hands on.
pub(super) struct Stage<'a, P> {
    receiver: &'a mut Receiver<P>,
    joiner: Joiner,
    output: Output<'a>,
    items: Vec<Item>,
    /// Items that were received, and not yet joined.
    arriving: VecDeque<Item>,
    /// The time that has passed for links and shots: while packets were taken, in ns.
    listened_ns: u64,
    /// Under the policy `block`: what the queue had no room for.
    blocked: Option<Joined>,
    busy_poll: bool,
    clock: &'a Clock,
    /// Where the run is to end.
    asked: Asked,
    /// Silence after which it ends.
    idle: Option<Duration>,
    /// Events so far.
    events: u64,
    /// Receive nothing while the sink works: stages one after the other.
    sequential: bool,
    /// Events that the sink has been given.
    handed: u64,
    rest: Rest,
}

/// What the receive thread did.
pub(super) struct Ran {
    /// Why it ended; with an error, what failed.
    pub(super) ended: Result<Cause, (Cause, RunError)>,
    /// How long it ran.
    pub(super) elapsed: Duration,
    /// From the first packet to the last, in seconds.
    pub(super) seconds: f64,
}

/// What the receive thread remembers from turn to turn.
struct Turns {
    begun: Instant,
    /// When the first packets came, and the last.
    first: Option<Instant>,
    last: Instant,
    /// When counts were last shown, time was last taken for links, and the clock was last refreshed.
    shown: Instant,
    looked: Instant,
    timed: Instant,
    /// What the last turn was, when it began, and how long turns of each kind have been since they were last entered.
    turn: Spent,
    turned: Instant,
    spent: [Duration; 3],
    /// Packets placed, and when that count last changed: what only passes by (strangers, stragglers) must not keep a run
    /// from ending.
    placed: u64,
    settled_ns: u64,
    /// Why the run is to end, since it has been so.
    end: Option<Cause>,
}

impl Turns {
    fn new(begun: Instant) -> Self {
        Self {
            begun,
            first: None,
            last: begun,
            shown: begun,
            looked: begun,
            timed: begun,
            turn: Spent::Starved,
            turned: begun,
            spent: [Duration::ZERO; 3],
            placed: 0,
            settled_ns: 0,
            end: None,
        }
    }
}

impl<'a, P: PacketIo> Stage<'a, P> {
    /// A stage that has received nothing yet. `receive_buffer`: what the kernel granted, in bytes.
    pub(super) fn new(
        prepared: &Prepared<'_>,
        receiver: &'a mut Receiver<P>,
        output: Output<'a>,
        clock: &'a Clock,
        receive_buffer: usize,
    ) -> Self {
        let settings = prepared.resolved.settings;
        let streams: Vec<u32> = prepared.configs.iter().map(|config| config.stream).collect();
        Self {
            receiver,
            joiner: Joiner::new(&streams, prepared.alignment()),
            output,
            items: Vec::with_capacity(64),
            arriving: VecDeque::with_capacity(64),
            listened_ns: 0,
            blocked: None,
            busy_poll: settings.busy_poll.unwrap_or(false),
            clock,
            asked: Asked::of(settings),
            idle: settings.idle_s.map(Duration::from_secs_f64),
            events: 0,
            sequential: settings.sequential.unwrap_or(false),
            handed: 0,
            rest: Rest::new(receive_buffer, prepared.geometry.cut().rest, Instant::now()),
        }
    }

    /// Receives until the run is over.
    pub(super) fn run(&mut self, stop: &AtomicBool, watch: &Watch) -> Ran {
        let mut turns = Turns::new(Instant::now());
        let ended = loop {
            match self.turn(&mut turns, stop, watch) {
                Ok(None) => {}
                Ok(Some(cause)) => break Ok(cause),
                Err(error) => break Err((Cause::TransportFailed, error)),
            }
        };
        self.show(&self.receiver.total());
        self.enter(&mut turns.spent);
        let seconds = turns.first.map_or(0.0, |first| (turns.last - first).as_secs_f64());
        Ran { ended, elapsed: turns.begun.elapsed(), seconds }
    }

    /// Takes what has come and hands it on. Returns why the run is over, once it is.
    fn turn(&mut self, turns: &mut Turns, stop: &AtomicBool, watch: &Watch) -> Result<Option<Cause>, RunError> {
        let now = Instant::now();
        turns.spent[turns.turn as usize] += now - turns.turned;
        turns.turned = now;
        let waits = self.blocked.is_some() || self.sequential && self.output.live.stored() < self.handed;
        // Nobody is late or silent while nobody listens.
        if !waits {
            self.listened_ns += (now - turns.looked).min(LONGEST_LOOK).as_nanos() as u64;
        }
        turns.looked = now;
        let packets = if waits { 0 } else { self.receiver.poll(self.listened_ns, BATCHES, &mut self.items)? };
        if packets > 0 {
            turns.first.get_or_insert(now);
            turns.last = now;
            self.rest.took(packets);
        }
        self.hand_on(false);
        turns.turn = match packets {
            _ if waits => Spent::Stalled,
            0 => Spent::Starved,
            _ => Spent::Busy,
        };
        if now - turns.shown > Duration::from_millis(20) {
            turns.shown = now;
            if let Some(cause) = self.look(turns, waits, stop, watch) {
                return Ok(Some(cause));
            }
        }
        if packets == 0 && !self.busy_poll {
            match self.rest.idle(now, now - turns.last) {
                Idle::Look => {}
                Idle::Rest(time) => std::thread::sleep(time),
                Idle::Sleep => self.receiver.io().wait(Duration::from_millis(1))?,
            }
        }
        Ok(None)
    }

    /// Shows how far the run is, and returns why it is over, once it is.
    fn look(&mut self, turns: &mut Turns, waits: bool, stop: &AtomicBool, watch: &Watch) -> Option<Cause> {
        let now = turns.shown;
        if now - turns.timed > CLOCK_EVERY {
            turns.timed = now;
            self.clock.refresh();
        }
        let total = self.receiver.total();
        if total.placed != turns.placed || waits || self.blocked.is_some() {
            (turns.placed, turns.settled_ns) = (total.placed, self.listened_ns);
        }
        let silence = Duration::from_nanos(self.listened_ns - turns.settled_ns);
        self.show(&total);
        if turns.first.is_some() {
            self.enter(&mut turns.spent);
        } else {
            // Before the first packet the pipeline does not run.
            turns.spent = [Duration::ZERO; 3];
        }
        turns.end = turns.end.or_else(|| self.is_to_end(stop, now - turns.begun));
        if turns.end.is_some() {
            watch.stop();
        }
        let over = if watch.has_probe() {
            // A probe that is gone does not say where it stopped.
            self.probe_is_over(watch, silence).or(turns.end.filter(|_| watch.gone().is_some()))
        } else {
            turns.end.or_else(|| self.sender_is_over(silence))
        };
        over.map(|cause| turns.end.unwrap_or(cause))
    }

    /// Lets others see the counts.
    fn show(&mut self, total: &Books) {
        self.output.live.update(total, self.receiver.io().device().lost());
        self.output.live.set_step(self.joiner.step());
    }

    /// Enters how the time since the last call was spent.
    fn enter(&self, spent: &mut [Duration; 3]) {
        for how in [Spent::Busy, Spent::Starved, Spent::Stalled] {
            self.output.live.receive.spend(how, std::mem::take(&mut spent[how as usize]), 0.0);
        }
    }

    /// Why the run is to end whatever the sender does.
    fn is_to_end(&self, stop: &AtomicBool, elapsed: Duration) -> Option<Cause> {
        // A file that is full because all shots are in it is no early end.
        let full = if self.lacks_room() { Cause::Full } else { Cause::Shots };
        let is_full = self.output.live.is_full().then_some(full);
        is_full
            .or_else(|| stop.load(Ordering::Relaxed).then_some(Cause::Signal))
            .or_else(|| (!self.asked.lasts(elapsed)).then_some(Cause::Time))
            .or_else(|| self.numbers_are_over().then_some(Cause::NumbersOver))
    }

    /// Whether a link's shots have used up their numbers. A probe has room for those that it was asked for.
    fn numbers_are_over(&self) -> bool {
        self.asked.shots.is_none() && self.receiver.numbers_are_over()
    }

    /// Why a sender without set-up sends no more, or enough of it has come.
    fn sender_is_over(&self, silence: Duration) -> Option<Cause> {
        let enough = self.asked.shots.is_some_and(|shots| self.events >= shots);
        let silent = self.idle.is_some_and(|idle| silence > idle);
        let stopped = self.receiver.has_stopped() && silence > STRAGGLERS;
        let all = if self.asked.wants_more(self.events) { Cause::SenderStopped } else { Cause::Shots };
        (enough || stopped)
            .then_some(all)
            .or_else(|| self.receiver.ended().map(Cause::from))
            .or_else(|| silent.then_some(Cause::Silence))
    }

    /// Why nothing more comes from a probe.
    fn probe_is_over(&self, watch: &Watch, silence: Duration) -> Option<Cause> {
        if silence > Duration::from_secs(2) && watch.gone().is_some() {
            return watch.gone();
        }
        // The probe has said where it stopped: wait for the stragglers.
        let reports = watch.reports()?;
        let all_in =
            reports.iter().enumerate().all(|(link, report)| self.receiver.next(link) >= Some(after_last(report)));
        if !all_in && silence <= STRAGGLERS {
            return None;
        }
        let sent = reports.iter().map(|report| report.shots_sent).min();
        Some(if self.asked.wants_more(sent.unwrap_or(0)) { Cause::ProbeStopped } else { Cause::Shots })
    }

    /// Closes all shots and hands on the rest.
    pub(super) fn finish(&mut self, watch: &Watch) {
        let ends: Vec<Option<u64>> =
            watch.reports().unwrap_or_default().iter().map(|report| Some(after_last(report))).collect();
        self.receiver.finish(&ends, &mut self.items);
        self.hand_on(true);
        while self.blocked.is_some() {
            (self.output.wake)();
            std::thread::sleep(Duration::from_millis(1));
            self.hand_on(true);
        }
        self.output.live.set_step(self.joiner.step());
    }

    /// Events received so far.
    pub(super) fn received(&self) -> u64 {
        self.events
    }

    /// Whether a shot that was asked for has found no room.
    pub(super) fn lacks_room(&self) -> bool {
        self.output.live.is_full() && self.asked.shots.is_none_or(|shots| self.handed < shots)
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
            (self.output.wake)();
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
            let Some(gate) = &self.output.gate else { continue };
            handed = true;
            let is_event = matches!(joined, Joined::Event(_));
            if is_event && self.output.rows_left == 0 {
                self.output.live.set_full();
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
            if let Err(event) = gate.put(joined, self.output.rows_left > 0, &mut give_up) {
                self.blocked = Some(Joined::Event(event));
                break;
            }
            self.handed = (self.handed + u64::from(is_event)).saturating_sub(given_up);
            self.output.rows_left = self.output.rows_left + given_up - u64::from(is_event);
        }
        self.account_for_left();
        handed
    }

    /// Enters the shots that are in no event.
    fn account_for_left(&mut self) {
        while let Some(left) = self.joiner.pop_left() {
            self.receiver.books_mut(left.link).give_up(left.shot.meta.is_complete(), left.cause);
            if let Some(gate) = &self.output.gate {
                gate.lose(left.loss());
            }
        }
    }
}
