//! Shots lost with a failed sink: those handed to it that readers of the file do not see.

use super::error::RunError;
use arrayvec::ArrayVec;
use shotline_store::set::UnrecordedShots;
use shotline_store::shot::{Event, MAX_LINKS};
use shotline_wire::shot::DropCause;
use std::collections::VecDeque;

/// Error of a sink, and the shots that are lost with it.
pub(super) struct SinkFailure {
    pub(super) error: RunError,
    pub(super) discarded: Vec<UnrecordedShots>,
}

/// For each link of an event: `true` if its shot is complete; none if the event has no shot of the link.
type Links = ArrayVec<Option<bool>, MAX_LINKS>;

/// Events that were taken from the queue and are not visible in the file yet.
#[derive(Default)]
pub(super) struct Unwritten {
    /// Events that wait for a trigger, oldest first.
    buffered: VecDeque<Links>,
    /// Events on their way into the file, oldest first.
    events: VecDeque<Links>,
    /// Number of rows that readers see.
    seen: u64,
    /// Shots that no trigger selected.
    discarded: Vec<UnrecordedShots>,
}

impl Unwritten {
    /// Adds an event that goes into the file.
    pub(super) fn push(&mut self, event: &Event) {
        self.events.push_back(links(event));
    }

    /// Adds an event that waits for a trigger.
    pub(super) fn hold(&mut self, event: &Event) {
        self.buffered.push_back(links(event));
    }

    /// Notes that the oldest event that waits for a trigger goes into the file.
    pub(super) fn release(&mut self) {
        self.events.extend(self.buffered.pop_front());
    }

    /// Notes that no trigger selected the oldest event that waits for one.
    pub(super) fn discard(&mut self) {
        if let Some(links) = self.buffered.pop_front() {
            add(&mut self.discarded, &links, DropCause::NotTriggered);
        }
    }

    /// Notes that readers see this number of rows.
    pub(super) fn set_visible(&mut self, rows: u64) {
        let more = (rows.saturating_sub(self.seen) as usize).min(self.events.len());
        self.events.drain(..more);
        self.seen += more as u64;
    }

    /// Returns the shots that no file has, by link and cause.
    pub(super) fn into_discarded(self) -> Vec<UnrecordedShots> {
        let mut all = self.discarded;
        for links in self.events.iter().chain(&self.buffered) {
            add(&mut all, links, DropCause::SinkError);
        }
        all
    }
}

fn links(event: &Event) -> Links {
    event.shots.iter().take(MAX_LINKS).map(|shot| shot.as_ref().map(|shot| shot.meta.is_complete())).collect()
}

/// Counts the shots of an event as discarded.
fn add(all: &mut Vec<UnrecordedShots>, links: &Links, cause: DropCause) {
    for (link, complete) in links.iter().enumerate() {
        let Some(complete) = complete else { continue };
        let known = all.iter().position(|shots| (shots.link, shots.cause) == (link, cause)).unwrap_or_else(|| {
            all.push(UnrecordedShots { link, cause, complete: 0, partial: 0 });
            all.len() - 1
        });
        *if *complete { &mut all[known].complete } else { &mut all[known].partial } += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::{Pool, Registrar};
    use shotline_store::shot::{Shot, ShotMeta};
    use shotline_wire::shot::{DropCounters, Presence};
    use std::sync::Arc;

    /// Creates an event of two links, of which the first has a shot, complete or not.
    fn event(pool: &Arc<Pool>, complete: bool) -> Event {
        let mut presence = Presence::empty(1);
        presence.insert(0);
        let meta = ShotMeta {
            stream: 0,
            number: 0,
            stamp_tai_ns: 0,
            arrived_tai_ns: 0,
            completed_tai_ns: 0,
            flags: 0,
            record_good: complete,
            valid_bytes: 0,
            presence: Arc::new(presence),
            drops: DropCounters::default(),
        };
        let shot = Shot { meta, buffer: pool.take().unwrap() };
        Event { number: 0, shots: [Some(shot), None].into_iter().collect() }
    }

    /// Returns the discarded shots, as (link, cause, complete, partial).
    fn discarded(unwritten: Unwritten) -> Vec<(usize, DropCause, u64, u64)> {
        unwritten
            .into_discarded()
            .iter()
            .map(|shots| (shots.link, shots.cause, shots.complete, shots.partial))
            .collect()
    }

    #[test]
    fn shots_without_a_visible_row_are_discarded() {
        let pool = Pool::new(&mut Registrar::new(), 16, 64).unwrap();
        let mut unwritten = Unwritten::default();
        [true, true, false, true].iter().for_each(|complete| unwritten.push(&event(&pool, *complete)));
        unwritten.set_visible(1);
        unwritten.set_visible(1);
        assert_eq!(discarded(unwritten), [(0, DropCause::SinkError, 2, 1)]);
    }

    #[test]
    fn shots_that_wait_for_a_trigger_are_discarded_too() {
        let pool = Pool::new(&mut Registrar::new(), 16, 64).unwrap();
        let mut unwritten = Unwritten::default();
        [false, true, true, false].iter().for_each(|complete| unwritten.hold(&event(&pool, *complete)));
        unwritten.discard();
        unwritten.release();
        unwritten.release();
        unwritten.set_visible(1);
        let [cause, none] = [DropCause::SinkError, DropCause::NotTriggered];
        assert_eq!(discarded(unwritten), [(0, none, 0, 1), (0, cause, 1, 1)]);
    }
}
