//! What a sink that fails leaves behind: shots that were handed to it, and that readers of the file do not see.

use super::error::RunError;
use arrayvec::ArrayVec;
use shotline_store::set::GivenUp;
use shotline_store::shot::{Event, MAX_LINKS};
use shotline_wire::shot::DropCause;
use std::collections::VecDeque;

/// Why a sink ended, and the shots that are lost with it.
pub(super) struct Failed {
    pub(super) error: RunError,
    pub(super) given_up: Vec<GivenUp>,
}

/// Of each link of an event, whether its shot is complete; none if the event has no shot of the link.
type Links = ArrayVec<Option<bool>, MAX_LINKS>;

/// Events that were taken from the queue and are not seen in the file yet.
#[derive(Default)]
pub(super) struct Unseen {
    /// Those that wait for a trigger, oldest first.
    held: VecDeque<Links>,
    /// Those on their way into the file, oldest first.
    events: VecDeque<Links>,
    /// Rows that readers see.
    seen: u64,
    /// Shots that no trigger asked for.
    discarded: Vec<GivenUp>,
}

impl Unseen {
    /// Enters an event that goes into the file.
    pub(super) fn enter(&mut self, event: &Event) {
        self.events.push_back(links(event));
    }

    /// Enters an event that waits for a trigger.
    pub(super) fn hold(&mut self, event: &Event) {
        self.held.push_back(links(event));
    }

    /// Notes that the oldest event that waits for a trigger goes into the file.
    pub(super) fn release(&mut self) {
        self.events.extend(self.held.pop_front());
    }

    /// Notes that no trigger asked for the oldest event that waits for one.
    pub(super) fn discard(&mut self) {
        if let Some(links) = self.held.pop_front() {
            add(&mut self.discarded, &links, DropCause::NotTriggered);
        }
    }

    /// Notes that readers see this number of rows.
    pub(super) fn see(&mut self, rows: u64) {
        let more = (rows.saturating_sub(self.seen) as usize).min(self.events.len());
        self.events.drain(..more);
        self.seen += more as u64;
    }

    /// The shots that no file has, by link and cause.
    pub(super) fn give_up(self) -> Vec<GivenUp> {
        let mut all = self.discarded;
        for links in self.events.iter().chain(&self.held) {
            add(&mut all, links, DropCause::SinkError);
        }
        all
    }
}

fn links(event: &Event) -> Links {
    event.shots.iter().take(MAX_LINKS).map(|shot| shot.as_ref().map(|shot| shot.meta.is_complete())).collect()
}

/// Counts the shots of an event as given up.
fn add(all: &mut Vec<GivenUp>, links: &Links, cause: DropCause) {
    for (link, complete) in links.iter().enumerate() {
        let Some(complete) = complete else { continue };
        let known = all.iter().position(|given| (given.link, given.cause) == (link, cause)).unwrap_or_else(|| {
            all.push(GivenUp { link, cause, complete: 0, partial: 0 });
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
    use shotline_wire::shot::{Drops, Presence};
    use std::sync::Arc;

    /// An event of two links, of which the first has a shot, complete or not.
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
            drops: Drops::default(),
        };
        let shot = Shot { meta, buffer: pool.take().unwrap() };
        Event { number: 0, shots: [Some(shot), None].into_iter().collect() }
    }

    /// What is given up, as (link, cause, complete, partial).
    fn given_up(unseen: Unseen) -> Vec<(usize, DropCause, u64, u64)> {
        unseen.give_up().iter().map(|given| (given.link, given.cause, given.complete, given.partial)).collect()
    }

    #[test]
    fn shots_that_no_row_shows_are_given_up() {
        let pool = Pool::new(&mut Registrar::new(), 16, 64).unwrap();
        let mut unseen = Unseen::default();
        [true, true, false, true].iter().for_each(|complete| unseen.enter(&event(&pool, *complete)));
        unseen.see(1);
        unseen.see(1);
        assert_eq!(given_up(unseen), [(0, DropCause::SinkError, 2, 1)]);
    }

    #[test]
    fn shots_that_wait_for_a_trigger_are_given_up_too() {
        let pool = Pool::new(&mut Registrar::new(), 16, 64).unwrap();
        let mut unseen = Unseen::default();
        [false, true, true, false].iter().for_each(|complete| unseen.hold(&event(&pool, *complete)));
        unseen.discard();
        unseen.release();
        unseen.release();
        unseen.see(1);
        let [cause, none] = [DropCause::SinkError, DropCause::NotTriggered];
        assert_eq!(given_up(unseen), [(0, none, 0, 1), (0, cause, 1, 1)]);
    }
}
