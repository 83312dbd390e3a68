//! Receive thread of a run.

use super::cause::Cause;
use super::end::RequestedEnd;
use super::error::RunError;
use super::idle::{Idle, IdlePolicy};
use super::prepare::PreparedRun;
use super::stored::stored_counters;
use super::watch::{Watch, after_last};
use crate::clock::{Clock, Health};
use crate::config::Sink;
use crate::consumer::Consumer;
use crate::counters::StreamCounters;
use crate::event::{JoinedItem, Joiner};
use crate::live::{Details, Live};
use crate::receiver::Receiver;
use crate::sink::Producer;
use crate::stages::StageState;
use crate::stream::{Item, StreamConfig};
use crate::tap::TapServer;
use shotline_memory::Pool;
use shotline_store::set::UnrecordedShots;
use shotline_store::shot::Event;
use shotline_transport::PacketIo;
use shotline_wire::shot::DropCause;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Batches received between two readings of the clock.
const BATCHES: usize = 32;
/// Maximum wait for packets that a sender reports as sent.
const STRAGGLER_TIMEOUT: Duration = Duration::from_millis(250);
/// Interval of measuring the clock's lead over the kernel's.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of publishing all counters to an observer.
const DETAILS_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time that passes for links between two polls: a pause of this thread does not count as silence of a link.
const MAX_POLL_GAP: Duration = Duration::from_millis(10);

/// Destination of the receive thread's events.
pub(super) struct Output<'a> {
    /// Producer of the queue to the sink; none: shots are discarded.
    pub(super) producer: Option<Producer>,
    /// Producer of the queue to a program beside the sink.
    pub(super) beside: Option<Beside<'a>>,
    /// Wakes the sink.
    pub(super) wake: &'a dyn Fn(),
    /// Number of rows that the sink still has space for.
    pub(super) rows_remaining: u64,
    pub(super) live: &'a Live,
}

/// A program that takes the events of a run that has a file.
pub(super) struct Beside<'a> {
    pub(super) producer: Producer,
    pub(super) consumer: &'a Consumer,
}

impl Beside<'_> {
    /// Hands on references to the buffers of an event, if there is a place for it.
    fn show(&self, event: &Event) {
        let mut missed = 0;
        let copied = JoinedItem::Event(Box::new(event.clone()));
        // Its policy never returns an event.
        let _ = self.producer.put(copied, true, &mut |_, _| missed += 1);
        self.consumer.miss(missed);
    }
}

/// Stage that receives packets, joins shots and hands events on.
pub(super) struct ReceiveStage<'a, P> {
    receiver: &'a mut Receiver<P>,
    joiner: Joiner,
    output: Output<'a>,
    items: Vec<Item>,
    /// Items that were received, but not joined yet.
    arriving: VecDeque<Item>,
    /// Time that has passed for links and shots, in ns: only while packets are received.
    elapsed_ns: u64,
    /// Under the policy `block`: the item that did not fit the queue.
    blocked: Option<JoinedItem>,
    busy_poll: bool,
    clock: &'a Clock,
    /// Requested end of the run.
    requested: RequestedEnd,
    /// Silence after which the run ends.
    idle: Option<Duration>,
    /// Number of events so far.
    events: u64,
    /// Set if nothing is received while the sink works: stages one after the other.
    sequential: bool,
    /// Number of events handed to the sink.
    handed: u64,
    idle_policy: IdlePolicy,
    configs: &'a [StreamConfig],
    pool: &'a Arc<Pool>,
    tap: TapServer,
    /// State of the clock at its last refresh.
    health: Health,
}

/// Result of the receive thread.
pub(super) struct StageResult {
    /// Cause of the end; with an error, the failure.
    pub(super) ended: Result<Cause, (Cause, RunError)>,
    /// Duration of the run.
    pub(super) elapsed: Duration,
    /// Time from the first packet to the last, in seconds.
    pub(super) seconds: f64,
}

/// State of the receive loop.
struct LoopState {
    started: Instant,
    /// Arrival of the first packets, and of the last.
    first: Option<Instant>,
    last: Instant,
    /// Times at which counters were last shown, time was last added for links, and the clock was last refreshed.
    last_shown: Instant,
    last_polled: Instant,
    last_refreshed: Instant,
    /// Time at which all counters were last published.
    last_detailed: Instant,
    /// State in the last iteration, its start, and the time in each state that is not reported yet.
    activity: StageState,
    activity_since: Instant,
    spent: [Duration; 3],
    /// Number of packets placed, and when it last changed: other packets (of other senders, stragglers) must not keep a
    /// run from ending.
    placed: u64,
    settled_ns: u64,
    /// Cause of the pending end.
    end: Option<Cause>,
}

impl LoopState {
    fn new(started: Instant) -> Self {
        Self {
            started,
            first: None,
            last: started,
            last_shown: started,
            last_polled: started,
            last_refreshed: started,
            last_detailed: started,
            activity: StageState::Starved,
            activity_since: started,
            spent: [Duration::ZERO; 3],
            placed: 0,
            settled_ns: 0,
            end: None,
        }
    }
}

impl<'a, P: PacketIo> ReceiveStage<'a, P> {
    /// Creates a stage. `receive_buffer`: size granted by the kernel, in bytes.
    pub(super) fn new(
        prepared: &'a PreparedRun<'_>,
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
            elapsed_ns: 0,
            blocked: None,
            busy_poll: settings.busy_poll.unwrap_or(false),
            clock,
            requested: RequestedEnd::of(settings),
            idle: settings.idle_s.map(Duration::from_secs_f64),
            events: 0,
            // Only a recorder reports what it has stored.
            sequential: settings.sequential.unwrap_or(false) && matches!(prepared.resolved.sink, Sink::Recording(_)),
            handed: 0,
            idle_policy: IdlePolicy::new(receive_buffer, prepared.geometry.packetization().rest, Instant::now()),
            configs: &prepared.configs,
            pool: &prepared.pool,
            tap: TapServer::new(prepared.lent_events),
            health: clock.refresh(),
        }
    }

    /// Receives until the run is over.
    pub(super) fn run(&mut self, stop: &AtomicBool, watch: &Watch) -> StageResult {
        let mut state = LoopState::new(Instant::now());
        let ended = loop {
            match self.iterate(&mut state, stop, watch) {
                Ok(None) => {}
                Ok(Some(cause)) => break Ok(cause),
                Err(error) => break Err((Cause::TransportFailed, error)),
            }
        };
        self.show(&self.receiver.total());
        self.show_details();
        self.report_times(&mut state.spent);
        let seconds = state.first.map_or(0.0, |first| (state.last - first).as_secs_f64());
        StageResult { ended, elapsed: state.started.elapsed(), seconds }
    }

    /// Handles received packets once. Returns the cause once the run is over.
    fn iterate(&mut self, state: &mut LoopState, stop: &AtomicBool, watch: &Watch) -> Result<Option<Cause>, RunError> {
        let now = Instant::now();
        state.spent[state.activity as usize] += now - state.activity_since;
        state.activity_since = now;
        let waits = self.blocked.is_some() || self.sequential && self.output.live.stored() < self.handed;
        // No shot is late and no link is silent while nothing is received.
        if !waits {
            self.elapsed_ns += (now - state.last_polled).min(MAX_POLL_GAP).as_nanos() as u64;
        }
        state.last_polled = now;
        let packets = if waits { 0 } else { self.receiver.poll(self.elapsed_ns, BATCHES, &mut self.items)? };
        if packets > 0 {
            state.first.get_or_insert(now);
            state.last = now;
            self.idle_policy.count_packets(packets);
        }
        self.hand_on(false);
        state.activity = match packets {
            _ if waits => StageState::Stalled,
            0 => StageState::Starved,
            _ => StageState::Busy,
        };
        if now - state.last_shown > Duration::from_millis(20) {
            state.last_shown = now;
            if let Some(cause) = self.check(state, waits, stop, watch) {
                return Ok(Some(cause));
            }
        }
        if packets == 0 && !self.busy_poll {
            match self.idle_policy.idle(now, now - state.last) {
                Idle::Poll => {}
                Idle::Pause(time) => std::thread::sleep(time),
                Idle::Sleep => self.receiver.io().wait(Duration::from_millis(1))?,
            }
        }
        Ok(None)
    }

    /// Updates the shown counters, and returns the cause once the run is over.
    fn check(&mut self, state: &mut LoopState, waits: bool, stop: &AtomicBool, watch: &Watch) -> Option<Cause> {
        let now = state.last_shown;
        if now - state.last_refreshed > CLOCK_INTERVAL {
            state.last_refreshed = now;
            self.health = self.clock.refresh();
        }
        let total = self.receiver.total();
        if total.placed != state.placed || waits || self.blocked.is_some() {
            (state.placed, state.settled_ns) = (total.placed, self.elapsed_ns);
        }
        let silence = Duration::from_nanos(self.elapsed_ns - state.settled_ns);
        self.show(&total);
        if now - state.last_detailed > DETAILS_INTERVAL {
            state.last_detailed = now;
            self.show_details();
        }
        if state.first.is_some() {
            self.report_times(&mut state.spent);
        } else {
            // Before the first packet the pipeline is not running.
            state.spent = [Duration::ZERO; 3];
        }
        state.end = state.end.or_else(|| self.end_cause(stop, now - state.started));
        if state.end.is_some() {
            watch.stop();
        }
        if let Some(cause) = watch.lost() {
            self.output.live.set_probe_lost(cause);
        }
        let over = if watch.has_probe() {
            // An unreachable probe does not report where it stopped.
            self.probe_end(watch, silence).or(state.end.filter(|_| watch.lost().is_some()))
        } else {
            state.end.or_else(|| self.sender_end(silence))
        };
        over.map(|cause| state.end.unwrap_or(cause))
    }

    /// Publishes the counters.
    fn show(&mut self, total: &StreamCounters) {
        self.output.live.update(total, self.receiver.io().device_counters().lost());
        self.output.live.try_set_alignment(self.joiner.status());
    }

    /// Publishes all counters, if there is an observer.
    fn show_details(&mut self) {
        let live = self.output.live;
        if live.wants_details()
            && let Some(unrecorded) = live.try_unrecorded()
        {
            live.set_details(self.details(&unrecorded));
        }
    }

    /// Returns all counters. What the recorder has not recorded was counted as handed on.
    fn details(&mut self, unrecorded: &[UnrecordedShots]) -> Details {
        let mut counters = stored_counters(self.receiver, self.configs, &self.joiner.status());
        for shots in unrecorded {
            if let Some(stream) = counters.streams.get_mut(shots.link) {
                stream.retract(shots.complete, shots.partial, shots.cause);
            }
        }
        Details {
            counters,
            latencies: (0..self.configs.len()).map(|link| self.receiver.latencies(link).clone()).collect(),
            pool: (self.pool.available(), self.pool.slots() as usize),
            clock: self.health,
        }
    }

    /// Reports the time spent in each state since the last call.
    fn report_times(&self, spent: &mut [Duration; 3]) {
        for activity in [StageState::Busy, StageState::Starved, StageState::Stalled] {
            self.output.live.receive.add_time(activity, std::mem::take(&mut spent[activity as usize]), 0.0);
        }
    }

    /// Returns the cause for which the run ends regardless of the sender.
    fn end_cause(&self, stop: &AtomicBool, elapsed: Duration) -> Option<Cause> {
        // If the file is full because all requested shots are in it, the end is not early.
        let full = if self.lacks_space() { Cause::Full } else { Cause::Shots };
        let is_full = self.output.live.is_full().then_some(full);
        is_full
            .or_else(|| stop.load(Ordering::Relaxed).then_some(Cause::Signal))
            .or_else(|| (!self.requested.continues_after(elapsed)).then_some(Cause::Time))
            .or_else(|| self.numbers_exhausted().then_some(Cause::NumbersExhausted))
    }

    /// Returns `true` if a link has used up its shot numbers. A probe has enough for the requested shots.
    fn numbers_exhausted(&self) -> bool {
        self.requested.shots.is_none() && self.receiver.numbers_exhausted()
    }

    /// Returns the cause if a sender without set-up sends no more, or enough was received.
    fn sender_end(&self, silence: Duration) -> Option<Cause> {
        let enough = self.requested.shots.is_some_and(|shots| self.events >= shots);
        let silent = self.idle.is_some_and(|idle| silence > idle);
        let stopped = self.receiver.has_stopped() && silence > STRAGGLER_TIMEOUT;
        let all = if self.requested.is_early_after(self.events) { Cause::SenderStopped } else { Cause::Shots };
        (enough || stopped)
            .then_some(all)
            .or_else(|| self.receiver.ended().map(Cause::from))
            .or_else(|| silent.then_some(Cause::Idle))
    }

    /// Returns the cause if nothing more arrives from a probe.
    fn probe_end(&self, watch: &Watch, silence: Duration) -> Option<Cause> {
        if silence > Duration::from_secs(2) && watch.lost().is_some() {
            return watch.lost();
        }
        // The probe has reported where it stopped: wait for the stragglers.
        let reports = watch.reports()?;
        let all_in =
            reports.iter().enumerate().all(|(link, report)| self.receiver.next(link) >= Some(after_last(report)));
        if !all_in && silence <= STRAGGLER_TIMEOUT {
            return None;
        }
        let sent = reports.iter().map(|report| report.shots_sent).min();
        Some(if self.requested.is_early_after(sent.unwrap_or(0)) { Cause::ProbeStopped } else { Cause::Shots })
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
        let (live, total) = (self.output.live, self.receiver.total());
        self.show(&total);
        live.set_alignment(self.joiner.status());
        if live.wants_details() {
            live.set_last_details(self.details(&live.unrecorded()));
        }
    }

    /// Returns the number of events received.
    pub(super) fn received(&self) -> u64 {
        self.events
    }

    /// Returns `true` if a requested shot had no space in the file.
    pub(super) fn lacks_space(&self) -> bool {
        self.output.live.is_full() && self.requested.shots.is_none_or(|shots| self.handed < shots)
    }

    /// Joins received items, and hands on decided events; with `all`, all events.
    fn hand_on(&mut self, all: bool) {
        self.arriving.extend(self.items.drain(..));
        let mut handed = false;
        loop {
            handed |= self.hand_on_decided(all && self.arriving.is_empty());
            if self.blocked.is_some() {
                break;
            }
            let Some(item) = self.arriving.pop_front() else { break };
            self.joiner.push(self.elapsed_ns, item);
        }
        if handed {
            (self.output.wake)();
        }
    }

    /// Hands on decided events. Returns `true` if there were any.
    fn hand_on_decided(&mut self, all: bool) -> bool {
        let mut handed = false;
        loop {
            self.account_for_unjoined();
            // A blocked event was counted and shown before.
            let is_retry = self.blocked.is_some();
            let next = match self.blocked.take() {
                Some(joined) => Some(joined),
                None => self.joiner.pop(self.elapsed_ns).or_else(|| if all { self.joiner.flush() } else { None }),
            };
            let Some(joined) = next else { break };
            if !is_retry {
                self.show_to_others(&joined);
            }
            // Without a queue shots are discarded here, which frees their buffers.
            let Some(producer) = &self.output.producer else { continue };
            handed = true;
            let is_event = matches!(joined, JoinedItem::Event(_));
            if is_event && self.output.rows_remaining == 0 {
                self.output.live.set_full();
            }
            let receiver = &mut *self.receiver;
            let mut discarded = 0;
            let mut on_drop = |event: &Event, cause: DropCause| {
                discarded += 1;
                for (stream, shot) in event.shots.iter().enumerate() {
                    if let Some(shot) = shot {
                        receiver.counters_mut(stream).retract(shot.meta.is_complete(), cause);
                    }
                }
            };
            if let Err(event) = producer.put(joined, self.output.rows_remaining > 0, &mut on_drop) {
                self.blocked = Some(JoinedItem::Event(event));
                break;
            }
            self.handed = (self.handed + u64::from(is_event)).saturating_sub(discarded);
            self.output.rows_remaining = self.output.rows_remaining + discarded - u64::from(is_event);
        }
        self.account_for_unjoined();
        handed
    }

    /// Counts an event, and shows it to those that are not the sink.
    fn show_to_others(&mut self, joined: &JoinedItem) {
        match joined {
            JoinedItem::Event(event) => {
                self.events += 1;
                self.tap.show(self.output.live.tap(), event);
                self.output.beside.iter().for_each(|beside| beside.show(event));
            }
            JoinedItem::Loss(loss) => self.output.beside.iter().for_each(|beside| beside.producer.push_loss(*loss)),
        }
    }

    /// Accounts for the shots that are in no event.
    fn account_for_unjoined(&mut self) {
        while let Some(unjoined) = self.joiner.pop_unjoined() {
            self.receiver.counters_mut(unjoined.link).retract(unjoined.shot.meta.is_complete(), unjoined.cause);
            let beside = self.output.beside.as_ref().map(|beside| &beside.producer);
            for producer in self.output.producer.iter().chain(beside) {
                producer.push_loss(unjoined.loss());
            }
        }
    }
}
