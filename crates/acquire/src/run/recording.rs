//! Recorder thread of a run.

use super::shared::Shared;
use super::unwritten::Unwritten;
use crate::align::ClockState;
use crate::pretrigger::{Decision, PreTrigger};
use crate::stages::StageState;
use shotline_store::clocks::ClockSample;
use shotline_store::set::RunResult;
use shotline_store::shot::Event;
use shotline_store::{RunRecorder, StoreError};
use shotline_wire::shot::DropCause;
use std::time::{Duration, Instant};

/// Interval of the rows in the clock tables.
const CLOCK_ROW_INTERVAL: Duration = Duration::from_secs(1);

/// Result of a recording.
pub(super) struct RecordingResult {
    pub(super) finished: RunResult,
    /// Time from the first event until everything was in the file.
    pub(super) seconds: f64,
    /// Number of triggers, for a pre-trigger capture.
    pub(super) triggers: Option<u64>,
}

/// The recorder, in its own thread.
pub(super) struct Recording<'a> {
    pub(super) set: RunRecorder,
    /// Selection of the shots around triggers; none: all are recorded.
    pub(super) triggers: Option<PreTrigger>,
    pub(super) shared: Shared<'a>,
}

impl Recording<'_> {
    /// Records until the queue is closed and empty, and everything is in the file.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn record(mut self, unwritten: &mut Unwritten) -> Result<RecordingResult, StoreError> {
        let mut started: Option<Instant> = None;
        let mut buffered: Option<Box<Event>> = None;
        let mut clocks_noted = Instant::now();
        let mut last_iteration = Instant::now();
        let (mut bytes, mut taken) = (0, 0);
        loop {
            let mut busy = buffered.is_some() || self.set.pending() > 0;
            while buffered.is_none() {
                let Some(event) = self.next(unwritten) else { break };
                started.get_or_insert_with(Instant::now);
                busy = true;
                taken += 1;
                bytes += event.shots.iter().flatten().map(|shot| u64::from(shot.buffer.len())).sum::<u64>();
                buffered = self.offer(event);
            }
            if buffered.is_none() && self.shared.queue.is_finished() {
                match &mut self.triggers {
                    Some(triggers) => triggers.finish(),
                    None => break,
                }
                if self.triggers.as_ref().is_none_or(PreTrigger::is_idle) {
                    break;
                }
                continue;
            }
            let wait = if self.shared.queue.is_empty() || buffered.is_some() {
                Duration::from_millis(10)
            } else {
                Duration::ZERO
            };
            let polled = self.set.poll(Some(wait));
            let visible = self.set.visible();
            unwritten.set_visible(visible);
            self.shared.live.set_written(visible);
            self.shared.live.set_unrecorded(self.set.unrecorded());
            self.show_triggers();
            polled?;
            buffered = buffered.and_then(|event| self.offer(event));
            if clocks_noted.elapsed() >= CLOCK_ROW_INTERVAL {
                clocks_noted = Instant::now();
                self.note_clocks();
            }
            self.shared.live.set_stored(taken - u64::from(buffered.is_some()) - self.set.pending() as u64);
            let (now, stage) = (Instant::now(), &self.shared.live.store);
            if started.is_some() {
                // The stage counts as busy while the drive works.
                stage.add_time(
                    if busy { StageState::Busy } else { StageState::Starved },
                    now - last_iteration,
                    self.shared.queue.filled(),
                );
                stage.set_bytes(bytes);
            }
            last_iteration = now;
        }
        self.note_clocks();
        self.show_triggers();
        self.shared.queue.take_losses().into_iter().for_each(|loss| self.set.loss(loss));
        let mut warnings = Vec::new();
        let triggers = self.triggers.as_ref().map(|triggers| record_triggers(triggers, &mut self.set, &mut warnings));
        let counters = self.shared.counters.get().cloned().unwrap_or_default();
        let mut finished = self.set.finish(counters)?;
        finished.report.warnings.append(&mut warnings);
        Ok(RecordingResult {
            finished,
            seconds: started.map_or(0.0, |started| started.elapsed().as_secs_f64()),
            triggers,
        })
    }

    /// Records the state of the links' clocks.
    fn note_clocks(&mut self) {
        for (index, link) in
            self.shared.live.alignment().links.iter().enumerate().filter(|(_, link)| link.clock.at_ns > 0)
        {
            let ClockState { at_ns, offset_ns, drift_ppb, residual_ns, locked, jumps } = link.clock;
            let stopped = link.stopped;
            let sample = ClockSample { at_tai_ns: at_ns, offset_ns, drift_ppb, residual_ns, jumps, locked, stopped };
            self.set.clock(index, &sample);
        }
    }

    fn show_triggers(&self) {
        if let Some(triggers) = &self.triggers {
            self.shared.live.set_triggers(triggers.count());
        }
    }

    /// Returns the next event to record.
    fn next(&mut self, unwritten: &mut Unwritten) -> Option<Box<Event>> {
        loop {
            if let Some(triggers) = &mut self.triggers {
                match triggers.pop() {
                    Some(Decision::Record(event)) => {
                        unwritten.release();
                        return Some(event);
                    }
                    Some(Decision::Discard(event)) => {
                        unwritten.discard();
                        self.set.discard(&event, DropCause::NotTriggered);
                        continue;
                    }
                    None if self.shared.live.take_trigger() => {
                        triggers.handle_signal();
                        continue;
                    }
                    None => {}
                }
            }
            let event = self.shared.queue.pop();
            if let Some(event) = &event {
                match self.triggers {
                    Some(_) => unwritten.hold(event),
                    None => unwritten.push(event),
                }
            }
            // Taken after the pop, so that losses before this event are included.
            self.shared.queue.take_losses().into_iter().for_each(|loss| self.set.loss(loss));
            match &mut self.triggers {
                Some(triggers) => triggers.push(event?),
                None => return event,
            }
        }
    }

    /// Offers an event to the files; returns it if they are busy.
    fn offer(&mut self, event: Box<Event>) -> Option<Box<Event>> {
        if self.set.remaining() == 0 {
            self.shared.live.set_full();
            self.set.discard(&event, DropCause::SinkFull);
            return None;
        }
        self.set.offer(*event).err().map(Box::new)
    }
}

/// Records the triggers in the counters, and warns if the configured time did not fit. Returns the number of triggers.
fn record_triggers(triggers: &PreTrigger, set: &mut RunRecorder, warnings: &mut Vec<String>) -> u64 {
    set.add_counter("triggers".into(), triggers.count());
    for (index, trigger) in triggers.triggers().iter().enumerate() {
        set.add_counter(format!("trigger_{index}_shot"), trigger.number);
        set.add_counter(format!("trigger_{index}_tai_ns"), trigger.tai_ns);
        set.add_counter(format!("trigger_{index}_signal"), u64::from(trigger.signal));
    }
    if let Some(shortest_ns) = triggers.shortest_ns() {
        set.add_counter("pre_trigger_min_ns".into(), shortest_ns);
        warnings.push(format!(
            "the pool had space for {:.3} s before a trigger, less than --pre-trigger: use a larger --pool",
            shortest_ns as f64 / 1e9
        ));
    }
    triggers.count()
}
