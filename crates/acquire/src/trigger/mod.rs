//! How long a shot takes from the trigger command to the last checked byte.
//!
//! [`measure`] sets a probe up as [`crate::run`] does, starts it in the mode in which each shot waits for a trigger
//! command, and then sends one command at a time: first commands only, whose acknowledgements come back at once, then
//! triggers, whose shots are assembled and proven like those of any run. A trigger whose shot does not come is
//! counted under what became of it and never sent again.

mod commands;
mod error;
mod noting;
mod prepare;
mod settings;

use crate::books::Books;
use crate::control::{Control, ControlError};
use crate::receiver::{self, Receiver, ReceiverConfig};
use crate::stream::{Item, StreamConfig};
use commands::{Commands, PATIENCE};
pub use error::TriggerError;
use noting::{Clock, LONGEST_SLEEP, Listened, Noting};
use prepare::Prepared;
pub use settings::{Settings, Wait};
use shotline_backends::{Opened, Wanted};
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

/// Commands and triggers before those that count: caches, page tables and routes are cold in the first ones.
pub const WARM_UP: u32 = 20;
/// Between a shot and the next trigger: the probe has time to come to rest.
const PAUSE: Duration = Duration::from_micros(100);

/// When things happened to one shot, in nanoseconds since its trigger was about to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShotTimes {
    /// Its first packets lay in their places, ICRC checked.
    pub first_ns: u64,
    /// Its last packets did.
    pub last_ns: u64,
    /// It was assembled and its CRC proven, on all links.
    pub complete_ns: u64,
}

/// What became of the triggers, warm-up included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Triggers sent.
    pub triggers: u64,
    /// Brought whole, proven shots on all links.
    pub complete: u64,
    /// Brought shots that lack something.
    pub partial: u64,
    /// Were accepted, but no shot came.
    pub shots_lost: u64,
    /// Came while a shot was under way.
    pub busy: u64,
    /// Were refused for another reason: the run was ended, or the number had been seen.
    pub refused: u64,
    /// Neither an answer nor a shot came: the trigger was lost, or both of them.
    pub unanswered: u64,
    /// Shots came without an answer. These are among the complete and the partial ones.
    pub answers_lost: u64,
}

/// What one setting has given.
#[derive(Clone, Debug)]
pub struct Point {
    /// What the probe is.
    pub describe: Describe,
    /// The shots of each link.
    pub geometry: Geometry,
    /// Round trips of acknowledged commands that take no shot, in nanoseconds.
    pub commands_ns: Vec<u64>,
    /// Such commands whose acknowledgement never came, warm-up included.
    pub commands_lost: u64,
    /// The whole shots behind the warm-up, in their order.
    pub shots: Vec<ShotTimes>,
    /// What became of each trigger.
    pub counts: Counts,
    /// All books.
    pub books: Books,
    /// The probe's own report for each link.
    pub sent: Vec<Report>,
}

/// Measures one setting, or as much of it as was done when `stop` was set. `open` makes the transport.
pub fn measure<P: PacketIo>(
    settings: &Settings,
    stop: &AtomicBool,
    open: impl FnOnce(&Wanted, &Regions) -> Result<Opened<P>, IoError>,
) -> Result<Point, TriggerError> {
    let framing = receiver::framing(settings.framing).ok_or(ControlError::from(NoSetUp(settings.framing)))?;
    let mut control = Control::open(settings.probe, settings.take_over)?;
    control.ask_until(Some(stop));
    let bind = match settings.bind {
        Some(bind) => bind,
        None => SocketAddr::new(control.local_ip()?, 0),
    };
    let mut prepared = Prepared::new(settings, &mut control)?;
    let Opened { io, local, .. } = open(&prepared.wanted(bind, framing.sealed()), &prepared.memory.regions)?;
    if framing.sealed() {
        let mut io = Ud::new(io);
        for (link, stream) in (0..).zip(&mut prepared.streams) {
            let pair = io.create()?;
            control.configure_stream(link, settings.framing, stream, local, (pair.number, pair.q_key))?;
            stream.key = pair.number;
        }
        Bench::new((settings, framing), control, prepared, io)?.run(stop)
    } else {
        for (link, stream) in (0..).zip(&mut prepared.streams) {
            control.configure_stream(link, settings.framing, stream, local, (0, 0))?;
        }
        Bench::new((settings, framing), control, prepared, io)?.run(stop)
    }
}

/// A probe that waits for triggers, and the receiver of its shots.
struct Bench<'a, P> {
    settings: Settings,
    control: Control<'a>,
    commands: Commands,
    receiver: Receiver<Noting<P>>,
    clock: Clock,
    /// The receiver's time.
    listened: Listened,
    /// For a shot to come, sampling included.
    patience_ns: u64,
    items: Vec<Item>,
    point: Point,
}

impl<'a, P: PacketIo> Bench<'a, P> {
    /// Asks the probe whether it acknowledges, while it is at rest and could not take a command for a trigger, and
    /// starts it.
    fn new(
        (settings, framing): (&Settings, Arc<dyn Framing>),
        mut control: Control<'a>,
        prepared: Prepared,
        io: P,
    ) -> Result<Self, TriggerError> {
        let Prepared { describe, geometry, streams, pool, memory } = prepared;
        match control.trigger(Trigger { command_only: true, ..Trigger::new(0) }) {
            Err(ControlError::Silent { probe, .. }) => return Err(TriggerError::NoAcknowledgement { probe }),
            answered => answered?,
        };
        let clock = Clock(Instant::now());
        let io = Noting::new(io, clock);
        let config = ReceiverConfig {
            framing,
            streams: streams.clone(),
            pool,
            regions: memory.regions.clone(),
            spare: memory.spare,
            clock: None,
        };
        let mut receiver = Receiver::new(io, config);
        // A probe that may wait for triggers is stopped, however often it must be asked.
        control.ask_until(None);
        let first_shot = control.start(Start { mode: Mode::ExternalTrigger, shots: 0 })?;
        for (index, config) in streams.into_iter().enumerate() {
            receiver.reconfigure(index, StreamConfig { first_shot: Some(first_shot), ..config });
        }
        let sampling_ns = match geometry.sample_rate_hz() {
            0 => 0,
            rate => u64::from(geometry.samples()) * 1_000_000_000 / u64::from(rate),
        };
        let point = Point {
            describe,
            geometry,
            commands_ns: Vec::with_capacity(settings.count as usize),
            commands_lost: 0,
            shots: Vec::with_capacity(settings.count as usize),
            counts: Counts::default(),
            books: Books::default(),
            sent: Vec::new(),
        };
        let commands = Commands::open(settings.probe, settings.wait, clock, control.signed(Trigger::new(0)))?;
        Ok(Self {
            settings: *settings,
            control,
            commands,
            receiver,
            clock,
            listened: Listened::new(clock),
            patience_ns: PATIENCE.as_nanos() as u64 + sampling_ns,
            items: Vec::with_capacity(16),
            point,
        })
    }

    fn run(mut self, stop: &AtomicBool) -> Result<Point, TriggerError> {
        let measured = self.all(stop);
        // Also after an error the probe is not left waiting for triggers that nobody will send.
        let sent: Result<Vec<_>, _> = (0..self.settings.links).map(|link| self.control.stop(link)).collect();
        measured?;
        self.point.sent = sent?;
        let ends: Vec<_> = self.point.sent.iter().map(|report| Some(report.next_shot)).collect();
        self.receiver.finish(&ends, &mut self.items);
        self.point.books = self.receiver.total();
        self.point.books.balance()?;
        Ok(self.point)
    }

    fn all(&mut self, stop: &AtomicBool) -> Result<(), TriggerError> {
        let stopped = || stop.load(Ordering::Relaxed);
        let rounds = self.settings.count + WARM_UP;
        for round in (0..rounds).take_while(|_| !stopped()) {
            match self.command()? {
                Some(ns) if round >= WARM_UP => self.point.commands_ns.push(ns),
                Some(_) => {}
                None => {
                    self.point.commands_lost += 1;
                    // A command may be lost. If the probe is, so are all that follow, and each would be waited for.
                    self.control.status(0)?;
                }
            }
        }
        for round in (0..rounds).take_while(|_| !stopped()) {
            self.pause();
            if let Some(times) = self.shot()?.filter(|_| round >= WARM_UP) {
                self.point.shots.push(times);
            }
        }
        Ok(())
    }

    /// The round trip of a command that takes no shot; none if its answer never came.
    fn command(&mut self) -> Result<Option<u64>, TriggerError> {
        let command = Trigger { command_only: true, ..self.commands.next() };
        let sent_ns = self.clock.ns();
        self.commands.send(&command)?;
        let answer = self.commands.answer(&command)?;
        let took = self.clock.ns() - sent_ns;
        Ok(answer.map(|_| took))
    }

    /// One trigger, and what became of it; the times of a whole shot.
    fn shot(&mut self) -> Result<Option<ShotTimes>, TriggerError> {
        let trigger = self.commands.next();
        self.receiver.io().first_ns = None;
        let sent_ns = self.clock.ns();
        self.commands.send(&trigger)?;
        let came = self.await_shot()?;
        let now_ns = self.clock.ns();
        // Asked for only now, so that waiting for the shot costs no call more.
        let verdict = self.commands.answer(&trigger)?;
        let outcome = Outcome::of(verdict, came);
        self.point.counts.book(outcome, verdict.is_none());
        if outcome != Outcome::Complete {
            self.resynchronise()?;
        }
        let Noting { first_ns, last_ns, .. } = *self.receiver.io();
        Ok(first_ns.filter(|_| outcome == Outcome::Complete).map(|first_ns| ShotTimes {
            first_ns: first_ns - sent_ns,
            last_ns: last_ns - sent_ns,
            complete_ns: now_ns - sent_ns,
        }))
    }

    /// The next shot of every link, unless the patience is spent before.
    fn await_shot(&mut self) -> Result<Option<Came>, TriggerError> {
        let deadline_ns = self.listened.ns() + self.patience_ns;
        let mut came: Option<Came> = None;
        let mut links = 0;
        loop {
            let now_ns = self.listened.ns();
            let packets = self.receiver.poll(now_ns, 1, &mut self.items)?;
            for item in self.items.drain(..) {
                let Item::Shot(shot) = item else { continue };
                let whole = shot.meta.is_complete() && came.is_none_or(|came| came.whole);
                came = Some(Came { shot: shot.meta.number, whole });
                links += 1;
            }
            if links >= self.settings.links {
                return Ok(came);
            }
            if now_ns > deadline_ns {
                // Some links only: something is missing.
                return Ok(came.map(|came| Came { whole: false, ..came }));
            }
            if packets == 0 {
                match self.settings.wait {
                    Wait::Poll => std::hint::spin_loop(),
                    Wait::Sleep => self.receiver.io().wait(LONGEST_SLEEP)?,
                }
            }
        }
    }

    /// After a trigger without its whole shot: the next one begins with the shot that the probe says is next, and what
    /// may still come of older ones is late.
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

/// The shot that followed a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Came {
    shot: u64,
    whole: bool,
}

/// What became of a trigger.
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
    fn of(verdict: Option<Verdict>, came: Option<Came>) -> Self {
        let came = match (verdict, came) {
            (Some(Verdict::Busy), _) => return Self::Busy,
            // Another shot is not an answer to this trigger: somebody else triggers, too.
            (Some(Verdict::Accepted { shot }), came) => came.filter(|came| came.shot == shot),
            (None, came) => came,
            (Some(_), _) => return Self::Refused,
        };
        match came {
            Some(Came { whole: true, .. }) => Self::Complete,
            Some(_) => Self::Partial,
            None if verdict.is_some() => Self::ShotLost,
            None => Self::Unanswered,
        }
    }
}

impl Counts {
    fn book(&mut self, outcome: Outcome, no_answer: bool) {
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
    fn a_trigger_counts_under_what_became_of_it_and_a_foreign_shot_is_not_its_own() {
        let whole = |shot| Some(Came { shot, whole: true });
        let accepted = Some(Verdict::Accepted { shot: 5 });
        for (verdict, came, outcome) in [
            (accepted, whole(5), Outcome::Complete),
            (None, whole(5), Outcome::Complete),
            (accepted, Some(Came { shot: 5, whole: false }), Outcome::Partial),
            (accepted, whole(4), Outcome::ShotLost),
            (accepted, None, Outcome::ShotLost),
            (Some(Verdict::Busy), None, Outcome::Busy),
            (Some(Verdict::Busy), whole(4), Outcome::Busy),
            (Some(Verdict::NotRunning), None, Outcome::Refused),
            (Some(Verdict::Repeated), whole(5), Outcome::Refused),
            (None, None, Outcome::Unanswered),
        ] {
            assert_eq!(Outcome::of(verdict, came), outcome, "{verdict:?} {came:?}");
        }
    }

    #[test]
    fn every_trigger_is_in_exactly_one_count() {
        use Outcome::{Busy, Complete, Partial, Refused, ShotLost, Unanswered};
        let mut counts = Counts::default();
        for outcome in [Complete, Partial, ShotLost, Busy, Refused, Unanswered] {
            counts.book(outcome, outcome == Partial || outcome == Unanswered);
        }
        let Counts { triggers, complete, partial, shots_lost, busy, refused, unanswered, answers_lost } = counts;
        assert_eq!(triggers, complete + partial + shots_lost + busy + refused + unanswered);
        assert_eq!([complete, partial, shots_lost, busy, refused, unanswered, answers_lost], [1; 7]);
    }
}
