//! The recorder's thread.

use super::shared::Shared;
use super::unseen::Unseen;
use crate::align::ClockState;
use crate::pretrigger::{Due, PreTrigger};
use crate::stages::Spent;
use shotline_store::clocks::ClockSample;
use shotline_store::set::Finished;
use shotline_store::shot::Event;
use shotline_store::{Set, StoreError};
use shotline_wire::shot::DropCause;
use std::time::{Duration, Instant};

/// Time between two rows of the clock tables.
const CLOCKS_EVERY: Duration = Duration::from_secs(1);

/// How the recording went.
pub(super) struct Recorded {
    pub(super) finished: Finished,
    /// From the first event until everything was in the file.
    pub(super) seconds: f64,
    /// Triggers, if there was a capture.
    pub(super) triggers: Option<u64>,
}

/// The recorder, in a thread of its own.
pub(super) struct Recording<'a> {
    pub(super) set: Set,
    /// What selects the shots around triggers; none: all are recorded.
    pub(super) triggers: Option<PreTrigger>,
    pub(super) shared: Shared<'a>,
}

impl Recording<'_> {
    /// Records until the queue is closed and empty, and everything is in the file.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn record(mut self, unseen: &mut Unseen) -> Result<Recorded, StoreError> {
        let mut begun: Option<Instant> = None;
        let mut held: Option<Box<Event>> = None;
        let mut clocks_noted = Instant::now();
        let mut turned = Instant::now();
        let (mut bytes, mut taken) = (0, 0);
        loop {
            let mut busy = held.is_some() || self.set.pending() > 0;
            while held.is_none() {
                let Some(event) = self.next(unseen) else { break };
                begun.get_or_insert_with(Instant::now);
                busy = true;
                taken += 1;
                bytes += event.shots.iter().flatten().map(|shot| u64::from(shot.buffer.len())).sum::<u64>();
                held = self.offer(event);
            }
            if held.is_none() && self.shared.queue.is_finished() {
                match &mut self.triggers {
                    Some(triggers) => triggers.finish(),
                    None => break,
                }
                if self.triggers.as_ref().is_none_or(PreTrigger::is_idle) {
                    break;
                }
                continue;
            }
            let wait =
                if self.shared.queue.is_empty() || held.is_some() { Duration::from_millis(10) } else { Duration::ZERO };
            let polled = self.set.poll(Some(wait));
            let visible = self.set.visible();
            unseen.see(visible);
            self.shared.live.set_written(visible);
            polled?;
            held = held.and_then(|event| self.offer(event));
            if clocks_noted.elapsed() >= CLOCKS_EVERY {
                clocks_noted = Instant::now();
                self.note_clocks();
            }
            self.shared.live.set_stored(taken - u64::from(held.is_some()) - self.set.pending() as u64);
            let (now, stage) = (Instant::now(), &self.shared.live.store);
            if begun.is_some() {
                // While the drive works, so does this stage.
                stage.spend(if busy { Spent::Busy } else { Spent::Starved }, now - turned, self.shared.queue.filled());
                stage.passed(bytes);
            }
            turned = now;
        }
        self.note_clocks();
        self.shared.queue.take_losses().into_iter().for_each(|loss| self.set.loss(loss));
        let mut warnings = Vec::new();
        let triggers = self.triggers.as_ref().map(|triggers| note(triggers, &mut self.set, &mut warnings));
        let books = self.shared.books.get().cloned().unwrap_or_default();
        let mut finished = self.set.finish(books)?;
        finished.report.warnings.append(&mut warnings);
        Ok(Recorded { finished, seconds: begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64()), triggers })
    }

    /// Enters how the links' clocks run.
    fn note_clocks(&mut self) {
        for (index, link) in self.shared.live.step().links.iter().enumerate().filter(|(_, link)| link.clock.at_ns > 0) {
            let ClockState { at_ns, offset_ns, drift_ppb, residual_ns, locked, jumps } = link.clock;
            let stopped = link.stopped;
            let sample = ClockSample { at_tai_ns: at_ns, offset_ns, drift_ppb, residual_ns, jumps, locked, stopped };
            self.set.clock(index, &sample);
        }
    }

    /// The next event that is to be recorded.
    fn next(&mut self, unseen: &mut Unseen) -> Option<Box<Event>> {
        loop {
            if let Some(triggers) = &mut self.triggers {
                match triggers.pop() {
                    Some(Due::Record(event)) => {
                        unseen.release();
                        return Some(event);
                    }
                    Some(Due::Discard(event)) => {
                        unseen.discard();
                        self.set.give_up(&event, DropCause::NotTriggered);
                        continue;
                    }
                    None if self.shared.live.take_trigger() => {
                        triggers.signal();
                        continue;
                    }
                    None => {}
                }
            }
            let event = self.shared.queue.pop();
            if let Some(event) = &event {
                match self.triggers {
                    Some(_) => unseen.hold(event),
                    None => unseen.enter(event),
                }
            }
            // After the pop: what was lost before this event is then among them.
            self.shared.queue.take_losses().into_iter().for_each(|loss| self.set.loss(loss));
            match &mut self.triggers {
                Some(triggers) => triggers.push(event?),
                None => return event,
            }
        }
    }

    /// Gives an event to the files; it comes back if they are busy.
    fn offer(&mut self, event: Box<Event>) -> Option<Box<Event>> {
        if self.set.remaining() == 0 {
            self.shared.live.set_full();
            self.set.give_up(&event, DropCause::SinkFull);
            return None;
        }
        self.set.offer(*event).err().map(Box::new)
    }
}

/// Enters the triggers into the books, and says what could not be held. Returns how many triggers there were.
fn note(triggers: &PreTrigger, set: &mut Set, warnings: &mut Vec<String>) -> u64 {
    set.note("triggers".into(), triggers.count());
    for (index, trigger) in triggers.triggers().iter().enumerate() {
        set.note(format!("trigger_{index}_shot"), trigger.number);
        set.note(format!("trigger_{index}_tai_ns"), trigger.tai_ns);
        set.note(format!("trigger_{index}_signal"), u64::from(trigger.signal));
    }
    if let Some(short_ns) = triggers.short_ns() {
        set.note("pre_trigger_least_ns".into(), short_ns);
        warnings.push(format!(
            "the pool had room for {:.3} s before a trigger, not for all that --pre-trigger asks for: give a larger --pool",
            short_ns as f64 / 1e9
        ));
    }
    triggers.count()
}
