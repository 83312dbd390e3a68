//! Latency from the trigger command to the last checked byte of a shot.
//!
//! [`measure`] sets a probe up as [`crate::run`] does, starts it in the mode in which each shot waits for a trigger
//! command, and then sends one command at a time: first commands without a shot, which are acknowledged at once, then
//! triggers, whose shots are assembled and proven like those of any run. A trigger without a shot is counted by its
//! outcome and never sent again.

mod commands;
mod error;
mod prepare;
mod settings;
mod timestamps;

use crate::control::{Control, ControlError};
use crate::counters::StreamCounters;
use crate::receiver::{self, Receiver, ReceiverConfig};
use crate::stream::{Item, StreamConfig};
use commands::{Commands, TIMEOUT};
pub use error::TriggerError;
use prepare::PreparedMeasurement;
pub use settings::{Settings, Wait};
use shotline_backends::{OpenedReceiver, ReceiverParameters};
use shotline_memory::Regions;
use shotline_transport::{IoError, PacketIo};
use shotline_verbs::ud::Ud;
use shotline_wire::framing::{Framing, NoSetUp};
use shotline_wire::setup::{Describe, Mode, Report, Start, Trigger, Verdict};
use shotline_wire::shot::Geometry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use timestamps::{Clock, MAX_SLEEP, PollTime, TimestampedIo};

/// Number of commands and triggers before those that count: caches, page tables and routes are cold in the first ones.
pub const WARM_UP: u32 = 20;
/// Pause between a shot and the next trigger, for the probe to become idle.
const PAUSE: Duration = Duration::from_micros(100);

/// Times of one shot, in nanoseconds since just before its trigger was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShotTimes {
    /// Landing of its first packets in their destinations, with the ICRC checked.
    pub first_ns: u64,
    /// Landing of its last packets.
    pub last_ns: u64,
    /// End of its assembly, with the CRC proven, on all links.
    pub complete_ns: u64,
}

/// Counters of triggers by outcome, including the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TriggerCounters {
    /// Triggers sent.
    pub triggers: u64,
    /// Triggers with complete, proven shots on all links.
    pub complete: u64,
    /// Triggers with incomplete shots.
    pub partial: u64,
    /// Triggers that were accepted, but without a shot.
    pub shots_lost: u64,
    /// Triggers that arrived during a shot.
    pub busy: u64,
    /// Triggers refused for another reason: the run had ended, or the number had been seen.
    pub refused: u64,
    /// Triggers with neither acknowledgement nor shot: the trigger was lost, or both of them.
    pub unanswered: u64,
    /// Triggers with shots but without acknowledgement. They are also counted as complete or partial.
    pub answers_lost: u64,
}

/// Result of one measurement.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Description of the probe.
    pub describe: Describe,
    /// Shape of the shots of each link.
    pub geometry: Geometry,
    /// Round-trip times of acknowledged commands without a shot, in nanoseconds.
    pub commands_ns: Vec<u64>,
    /// Such commands whose acknowledgement never arrived, including the warm-up.
    pub commands_lost: u64,
    /// Times of the complete shots after the warm-up, in order.
    pub shots: Vec<ShotTimes>,
    /// Counters of the triggers, by outcome.
    pub triggers: TriggerCounters,
    /// Counters of all packets and shots.
    pub counters: StreamCounters,
    /// The probe's own report for each link.
    pub sent: Vec<Report>,
}

/// Measures with these settings until done, or until `stop` is set. `open` creates the transport.
///
/// # Errors
/// If the settings do not fit the probe, the probe or the transport fails, or the counters do not match.
pub fn measure<P: PacketIo>(
    settings: &Settings,
    stop: &AtomicBool,
    open: impl FnOnce(&ReceiverParameters, &Regions) -> Result<OpenedReceiver<P>, IoError>,
) -> Result<Measurement, TriggerError> {
    let framing = receiver::framing(settings.framing).ok_or(ControlError::from(NoSetUp(settings.framing)))?;
    let mut control = Control::open(settings.probe, settings.take_over)?;
    control.set_cancel_flag(Some(stop));
    let bind = match settings.bind {
        Some(bind) => bind,
        None => SocketAddr::new(control.local_ip()?, 0),
    };
    let mut prepared = PreparedMeasurement::new(settings, &mut control)?;
    let OpenedReceiver { io, local, .. } =
        open(&prepared.receiver_parameters(bind, framing.has_icrc()), &prepared.memory.regions)?;
    if framing.has_icrc() {
        let mut io = Ud::new(io);
        for (link, stream) in (0..).zip(&mut prepared.streams) {
            let pair = io.create()?;
            control.configure_stream(link, settings.framing, stream, local, (pair.number, pair.q_key))?;
            stream.key = pair.number;
        }
        Session::new((settings, framing), control, prepared, io)?.run(stop)
    } else {
        for (link, stream) in (0..).zip(&mut prepared.streams) {
            control.configure_stream(link, settings.framing, stream, local, (0, 0))?;
        }
        Session::new((settings, framing), control, prepared, io)?.run(stop)
    }
}

/// Measurement with a probe that waits for triggers.
struct Session<'a, P> {
    settings: Settings,
    control: Control<'a>,
    commands: Commands,
    receiver: Receiver<TimestampedIo<P>>,
    clock: Clock,
    /// Time of the receiver's shots: pauses of this program do not count.
    poll_time: PollTime,
    /// Maximum wait for a shot, including its sampling.
    timeout_ns: u64,
    items: Vec<Item>,
    measurement: Measurement,
}

impl<'a, P: PacketIo> Session<'a, P> {
    /// Checks that the probe acknowledges, while it is idle and cannot mistake a command for a trigger, and starts it.
    fn new(
        (settings, framing): (&Settings, Arc<dyn Framing>),
        mut control: Control<'a>,
        prepared: PreparedMeasurement,
        io: P,
    ) -> Result<Self, TriggerError> {
        let PreparedMeasurement { describe, geometry, streams, pool, memory } = prepared;
        match control.trigger(Trigger { command_only: true, ..Trigger::new(0) }) {
            Err(ControlError::Silent { probe, .. }) => return Err(TriggerError::NoAcknowledgement { probe }),
            answered => answered?,
        };
        let clock = Clock(Instant::now());
        let io = TimestampedIo::new(io, clock);
        let config = ReceiverConfig {
            framing,
            streams: streams.clone(),
            pool,
            regions: memory.regions.clone(),
            spare: memory.spare,
            clock: None,
        };
        let mut receiver = Receiver::new(io, config);
        // A probe that may be waiting for triggers must be stopped, with as many repetitions as necessary.
        control.set_cancel_flag(None);
        let first_shot = control.start(Start { mode: Mode::ExternalTrigger, shots: 0 })?;
        for (index, config) in streams.into_iter().enumerate() {
            receiver.reconfigure(index, StreamConfig { first_shot: Some(first_shot), ..config });
        }
        let sampling_ns = match geometry.sample_rate_hz() {
            0 => 0,
            rate => u64::from(geometry.samples()) * 1_000_000_000 / u64::from(rate),
        };
        let measurement = Measurement {
            describe,
            geometry,
            commands_ns: Vec::with_capacity(settings.count as usize),
            commands_lost: 0,
            shots: Vec::with_capacity(settings.count as usize),
            triggers: TriggerCounters::default(),
            counters: StreamCounters::default(),
            sent: Vec::new(),
        };
        let commands = Commands::open(settings.probe, settings.wait, clock, control.with_token(Trigger::new(0)))?;
        Ok(Self {
            settings: *settings,
            control,
            commands,
            receiver,
            clock,
            poll_time: PollTime::new(clock),
            timeout_ns: TIMEOUT.as_nanos() as u64 + sampling_ns,
            items: Vec::with_capacity(16),
            measurement,
        })
    }

    fn run(mut self, stop: &AtomicBool) -> Result<Measurement, TriggerError> {
        let measured = self.measure_all(stop);
        // After an error, too, the probe must not keep waiting for triggers.
        let sent: Result<Vec<_>, _> = (0..self.settings.links).map(|link| self.control.stop(link)).collect();
        measured?;
        self.measurement.sent = sent?;
        let ends: Vec<_> = self.measurement.sent.iter().map(|report| Some(report.next_shot)).collect();
        self.receiver.finish(&ends, &mut self.items);
        self.measurement.counters = self.receiver.total();
        self.measurement.counters.balance()?;
        Ok(self.measurement)
    }

    fn measure_all(&mut self, stop: &AtomicBool) -> Result<(), TriggerError> {
        let stopped = || stop.load(Ordering::Relaxed);
        let rounds = self.settings.count + WARM_UP;
        for round in (0..rounds).take_while(|_| !stopped()) {
            match self.command()? {
                Some(ns) if round >= WARM_UP => self.measurement.commands_ns.push(ns),
                Some(_) => {}
                None => {
                    self.measurement.commands_lost += 1;
                    // A single command may be lost. If the probe is unreachable, all following commands would time out.
                    self.control.status(0)?;
                }
            }
        }
        for round in (0..rounds).take_while(|_| !stopped()) {
            self.pause();
            if let Some(times) = self.shot()?.filter(|_| round >= WARM_UP) {
                self.measurement.shots.push(times);
            }
        }
        Ok(())
    }

    /// Returns the round-trip time of a command without a shot; none if its acknowledgement never arrived.
    fn command(&mut self) -> Result<Option<u64>, TriggerError> {
        let command = Trigger { command_only: true, ..self.commands.next() };
        let sent_ns = self.clock.ns();
        self.commands.send(&command)?;
        let verdict = self.commands.wait_for_verdict(&command)?;
        let round_trip_ns = self.clock.ns() - sent_ns;
        Ok(verdict.map(|_| round_trip_ns))
    }

    /// Sends one trigger and counts its outcome; returns the times of a complete shot.
    fn shot(&mut self) -> Result<Option<ShotTimes>, TriggerError> {
        let trigger = self.commands.next();
        self.receiver.io().first_ns = None;
        let sent_ns = self.clock.ns();
        self.commands.send(&trigger)?;
        let received = self.await_shot()?;
        let now_ns = self.clock.ns();
        // Read the acknowledgement only now, so that waiting for the shot needs no further system call.
        let verdict = self.commands.wait_for_verdict(&trigger)?;
        let outcome = Outcome::of(verdict, received);
        self.measurement.triggers.count(outcome, verdict.is_none());
        if outcome != Outcome::Complete {
            self.resynchronise()?;
        }
        let TimestampedIo { first_ns, last_ns, .. } = *self.receiver.io();
        Ok(first_ns.filter(|_| outcome == Outcome::Complete).map(|first_ns| ShotTimes {
            first_ns: first_ns - sent_ns,
            last_ns: last_ns - sent_ns,
            complete_ns: now_ns - sent_ns,
        }))
    }

    /// Waits for the next shot of every link, until the timeout.
    fn await_shot(&mut self) -> Result<Option<ReceivedShot>, TriggerError> {
        let deadline_ns = self.poll_time.ns() + self.timeout_ns;
        let mut received: Option<ReceivedShot> = None;
        let mut links = 0;
        loop {
            let now_ns = self.poll_time.ns();
            let packets = self.receiver.poll(now_ns, 1, &mut self.items)?;
            for item in self.items.drain(..) {
                let Item::Shot(shot) = item else { continue };
                let complete = shot.meta.is_complete() && received.is_none_or(|received| received.complete);
                received = Some(ReceivedShot { shot: shot.meta.number, complete });
                links += 1;
            }
            if links >= self.settings.links {
                return Ok(received);
            }
            if now_ns > deadline_ns {
                // Some links have no shot: it is incomplete.
                return Ok(received.map(|received| ReceivedShot { complete: false, ..received }));
            }
            if packets == 0 {
                match self.settings.wait {
                    Wait::Poll => std::hint::spin_loop(),
                    Wait::Sleep => self.receiver.io().wait(MAX_SLEEP)?,
                }
            }
        }
    }

    /// After a trigger without a complete shot: continues with the next shot that the probe reports, so that packets of
    /// older ones are late.
    fn resynchronise(&mut self) -> Result<(), TriggerError> {
        let next = self.control.status(0)?.next_shot;
        self.receiver.finish(&vec![Some(next); self.settings.links.into()], &mut self.items);
        self.items.clear();
        Ok(())
    }

    fn pause(&self) {
        match self.settings.wait {
            Wait::Sleep => std::thread::sleep(PAUSE),
            Wait::Poll => {
                let end = self.clock.ns() + PAUSE.as_nanos() as u64;
                while self.clock.ns() < end {
                    std::hint::spin_loop();
                }
            }
        }
    }
}

/// Shot that followed a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReceivedShot {
    shot: u64,
    complete: bool,
}

/// Outcome of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Complete,
    Partial,
    ShotLost,
    Busy,
    Refused,
    Unanswered,
}

impl Outcome {
    fn of(verdict: Option<Verdict>, received: Option<ReceivedShot>) -> Self {
        let received = match (verdict, received) {
            (Some(Verdict::Busy), _) => return Self::Busy,
            // Another shot is not the result of this trigger: there is a second source of triggers.
            (Some(Verdict::Accepted { shot }), received) => received.filter(|received| received.shot == shot),
            (None, received) => received,
            (Some(_), _) => return Self::Refused,
        };
        match received {
            Some(ReceivedShot { complete: true, .. }) => Self::Complete,
            Some(_) => Self::Partial,
            None if verdict.is_some() => Self::ShotLost,
            None => Self::Unanswered,
        }
    }
}

impl TriggerCounters {
    fn count(&mut self, outcome: Outcome, no_answer: bool) {
        self.triggers += 1;
        let count = match outcome {
            Outcome::Complete => &mut self.complete,
            Outcome::Partial => &mut self.partial,
            Outcome::ShotLost => &mut self.shots_lost,
            Outcome::Busy => &mut self.busy,
            Outcome::Refused => &mut self.refused,
            Outcome::Unanswered => &mut self.unanswered,
        };
        *count += 1;
        if no_answer && outcome != Outcome::Unanswered {
            self.answers_lost += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trigger_counts_by_outcome_ignoring_other_shots() {
        let complete = |shot| Some(ReceivedShot { shot, complete: true });
        let accepted = Some(Verdict::Accepted { shot: 5 });
        for (verdict, received, outcome) in [
            (accepted, complete(5), Outcome::Complete),
            (None, complete(5), Outcome::Complete),
            (accepted, Some(ReceivedShot { shot: 5, complete: false }), Outcome::Partial),
            (accepted, complete(4), Outcome::ShotLost),
            (accepted, None, Outcome::ShotLost),
            (Some(Verdict::Busy), None, Outcome::Busy),
            (Some(Verdict::Busy), complete(4), Outcome::Busy),
            (Some(Verdict::NotRunning), None, Outcome::Refused),
            (Some(Verdict::Repeated), complete(5), Outcome::Refused),
            (None, None, Outcome::Unanswered),
        ] {
            assert_eq!(Outcome::of(verdict, received), outcome, "{verdict:?} {received:?}");
        }
    }

    #[test]
    fn every_trigger_is_in_exactly_one_counter() {
        use Outcome::{Busy, Complete, Partial, Refused, ShotLost, Unanswered};
        let mut counters = TriggerCounters::default();
        for outcome in [Complete, Partial, ShotLost, Busy, Refused, Unanswered] {
            counters.count(outcome, outcome == Partial || outcome == Unanswered);
        }
        let TriggerCounters { triggers, complete, partial, shots_lost, busy, refused, unanswered, answers_lost } =
            counters;
        assert_eq!(triggers, complete + partial + shots_lost + busy + refused + unanswered);
        assert_eq!([complete, partial, shots_lost, busy, refused, unanswered, answers_lost], [1; 7]);
    }
}
