//! Shots of several links that belong together become one event: the [`Aligner`] for shots.

use crate::align::{Aligner, Config, Event as Aligned, Mark, Verdict, Why};
use crate::live::Step;
use crate::stream::Item;
use arrayvec::ArrayVec;
use shotline_store::shot::{Event, Loss, MAX_LINKS, Shot};
use shotline_wire::shot::DropCause;
use std::collections::VecDeque;

const _: () = assert!(MAX_LINKS <= crate::align::MAX_SOURCES);

/// What is handed to sinks.
#[derive(Debug)]
pub enum Joined {
    /// At least one link has its shot, and as many as the quorum.
    Event(Box<Event>),
    /// Shots of one link that no event holds.
    Loss(Loss),
}

/// A shot that is in no event, and why.
#[derive(Debug)]
pub struct Left {
    /// Its link.
    pub link: usize,
    /// The shot.
    pub shot: Box<Shot>,
    /// Why. A quorum is a trigger of its own kind, so what misses it was not triggered.
    pub cause: DropCause,
}

impl Left {
    /// How a recording accounts for it.
    pub fn loss(&self) -> Loss {
        Loss { stream: self.shot.meta.stream, cause: self.cause, first: self.shot.meta.number, count: 1 }
    }
}

/// Joins links. Losses are handed on as they come, before any event that has a gap for them.
#[derive(Debug)]
pub struct Joiner {
    streams: ArrayVec<u32, MAX_LINKS>,
    aligner: Aligner<Box<Shot>>,
    losses: VecDeque<Loss>,
    left: VecDeque<Left>,
}

impl Joiner {
    /// Joins these streams; their order is the order of an event's shots.
    ///
    /// # Panics
    /// With no streams, more than [`MAX_LINKS`], or another number than the configuration says.
    pub fn new(streams: &[u32], config: Config) -> Self {
        assert_eq!(streams.len(), config.sources, "a stream for each source");
        Self {
            streams: streams.iter().copied().collect(),
            aligner: Aligner::new(config),
            losses: VecDeque::with_capacity(64),
            left: VecDeque::with_capacity(64),
        }
    }

    /// Takes one stream's next item at this time of a steady clock. Take everything that is decided after each.
    pub fn push(&mut self, now_ns: u64, item: Item) {
        let stream = match &item {
            Item::Shot(shot) => shot.meta.stream,
            Item::Loss(loss) => loss.stream,
        };
        let Some(link) = self.streams.iter().position(|other| *other == stream) else { return };
        match item {
            Item::Loss(loss) => {
                self.aligner.lose(link, now_ns, loss.cause, loss.first, loss.count);
                self.losses.push_back(loss);
            }
            Item::Shot(shot) => {
                let meta = &shot.meta;
                // Not every transport tells when a packet came.
                let arrived_ns = if meta.arrived_tai_ns > 0 { meta.arrived_tai_ns } else { meta.completed_tai_ns };
                let mark = Mark { number: meta.number, stamp_ns: meta.stamp_tai_ns, arrived_ns };
                if let Err(refused) = self.aligner.push(link, now_ns, mark, shot) {
                    let cause = match refused.why {
                        // Numbers of a link only rise here: whatever took its place was another shot.
                        Why::Late | Why::Duplicate => DropCause::Late,
                        Why::Unstamped => DropCause::BadRecord,
                        Why::Full => DropCause::NoBuffer,
                    };
                    self.left.push_back(Left { link, shot: refused.item, cause });
                }
            }
        }
    }

    /// The next loss, or event that is decided by this time.
    pub fn pop(&mut self, now_ns: u64) -> Option<Joined> {
        self.decided(|aligner| aligner.pop(now_ns))
    }

    /// The next loss or event, although links may still have had a part in it.
    pub fn flush(&mut self) -> Option<Joined> {
        self.decided(Aligner::flush)
    }

    /// The next shot that is in no event.
    pub fn pop_left(&mut self) -> Option<Left> {
        self.left.pop_front()
    }

    /// How the links keep in step.
    pub fn step(&self) -> Step {
        Step::of(&self.aligner, self.streams.len())
    }

    fn decided(&mut self, decided: impl Fn(&mut Aligner<Box<Shot>>) -> Option<Aligned<Box<Shot>>>) -> Option<Joined> {
        if let Some(loss) = self.losses.pop_front() {
            return Some(Joined::Loss(loss));
        }
        loop {
            let event = decided(&mut self.aligner)?;
            if event.verdict != Verdict::Dropped {
                return Some(Joined::Event(Box::new(row(event))));
            }
            for (link, part) in event.parts.into_iter().enumerate() {
                if let Ok(here) = part {
                    self.left.push_back(Left { link, shot: here.item, cause: DropCause::NotTriggered });
                }
            }
        }
    }
}

/// A recording's row. Its number is that of the first link that is there; by number it is that of all.
fn row(event: Aligned<Box<Shot>>) -> Event {
    let number = event.parts.iter().flatten().next().map_or(event.key, |here| here.mark.number);
    Event { number, shots: event.parts.into_iter().map(|part| part.ok().map(|here| *here.item)).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::align::By;
    use shotline_memory::{Pool, Registrar};
    use shotline_store::shot::ShotMeta;
    use shotline_wire::shot::{Drops, Presence};
    use std::sync::Arc;

    fn joiner(quorum: usize, capacity: usize) -> (Joiner, Arc<Pool>) {
        let config =
            Config { sources: 2, by: By::Number, disorder: 0, patience_ns: u64::MAX, quorum, capacity, lock_ns: 1000 };
        (Joiner::new(&[5, 9], config), Pool::new(&mut Registrar::new(), 128, 8).unwrap())
    }

    fn shot(pool: &Arc<Pool>, stream: u32, number: u64) -> Item {
        let meta = ShotMeta {
            stream,
            number,
            stamp_tai_ns: 0,
            arrived_tai_ns: 0,
            completed_tai_ns: 0,
            flags: 0,
            record_good: true,
            valid_bytes: 0,
            presence: Arc::new(Presence::empty(1)),
            drops: Drops::default(),
        };
        Item::Shot(Box::new(Shot { meta, buffer: pool.take().unwrap() }))
    }

    fn told(joined: Option<Joined>) -> String {
        match joined {
            None => "nothing".into(),
            Some(Joined::Loss(loss)) => format!("loss {}+{} of {}", loss.first, loss.count, loss.stream),
            Some(Joined::Event(event)) => {
                let shots = event.shots.iter().map(|shot| shot.as_ref().map_or(0, |shot| shot.meta.stream));
                format!("event {} {:?}", event.number, shots.collect::<Vec<_>>())
            }
        }
    }

    #[test]
    fn a_loss_comes_before_the_event_that_has_a_gap_for_it() {
        let (mut joiner, pool) = joiner(1, 8);
        joiner.push(0, shot(&pool, 9, 3));
        assert_eq!(told(joiner.pop(0)), "nothing");
        joiner.push(0, Item::Loss(Loss { stream: 5, cause: DropCause::WireGap, first: 3, count: 2 }));
        assert_eq!(told(joiner.pop(0)), "loss 3+2 of 5");
        assert_eq!(told(joiner.pop(0)), "event 3 [0, 9]");
        joiner.push(0, shot(&pool, 9, 4));
        assert_eq!(told(joiner.pop(0)), "event 4 [0, 9]");
        assert_eq!(told(joiner.flush()), "nothing");
        assert_eq!(pool.available(), pool.slots() as usize);
    }

    #[test]
    fn what_is_in_no_event_is_left_with_its_cause() {
        let (mut joiner, pool) = joiner(2, 1);
        joiner.push(0, shot(&pool, 9, 3));
        assert_eq!(told(joiner.pop(0)), "nothing");
        joiner.push(0, shot(&pool, 5, 3));
        let left = [joiner.pop_left().unwrap(), joiner.pop_left().unwrap()];
        assert_eq!(left[0].loss(), Loss { stream: 9, cause: DropCause::NotTriggered, first: 3, count: 1 });
        assert_eq!((left[1].link, left[1].cause), (0, DropCause::Late));
        joiner.push(0, Item::Loss(Loss { stream: 77, cause: DropCause::WireGap, first: 3, count: 2 }));
        assert_eq!(told(joiner.flush()), "nothing", "no stream of ours");
        drop(left);
        assert_eq!(pool.available(), pool.slots() as usize);
    }
}
