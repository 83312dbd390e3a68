//! Joins shots of several links into events: the [`Aligner`] for shots.

use crate::align::{Aligner, AlignmentStatus, Config, Event as AlignedEvent, ItemMeta, RefusalReason, Verdict};
use crate::stream::Item;
use arrayvec::ArrayVec;
use shotline_store::shot::{Event, Loss, MAX_LINKS, Shot};
use shotline_wire::shot::DropCause;
use std::collections::VecDeque;

const _: () = assert!(MAX_LINKS <= crate::align::MAX_SOURCES);

/// Output of a [`Joiner`].
#[derive(Debug)]
pub enum JoinedItem {
    /// An event with shots of at least one link, and of at least as many links as the quorum.
    Event(Box<Event>),
    /// Shots of one link that are in no event.
    Loss(Loss),
}

/// A shot that is in no event.
#[derive(Debug)]
pub struct UnjoinedShot {
    /// Index of its link.
    pub link: usize,
    /// The shot with its buffer.
    pub shot: Box<Shot>,
    /// Cause of the drop. The quorum acts as a trigger: a shot of an event below it counts as not triggered.
    pub cause: DropCause,
}

impl UnjoinedShot {
    /// Returns the loss that a recording enters for the shot.
    pub fn loss(&self) -> Loss {
        Loss { stream: self.shot.meta.stream, cause: self.cause, first: self.shot.meta.number, count: 1 }
    }
}

/// Joins links. Losses are passed on immediately, before any event that has a gap for them.
#[derive(Debug)]
pub struct Joiner {
    streams: ArrayVec<u32, MAX_LINKS>,
    aligner: Aligner<Box<Shot>>,
    losses: VecDeque<Loss>,
    unjoined: VecDeque<UnjoinedShot>,
}

impl Joiner {
    /// Creates a joiner of these streams; their order is the order of an event's shots.
    ///
    /// # Panics
    /// With no streams, with more than [`MAX_LINKS`], or if their number differs from that of the configuration.
    pub fn new(streams: &[u32], config: Config) -> Self {
        assert_eq!(streams.len(), config.sources, "a stream for each source");
        Self {
            streams: streams.iter().copied().collect(),
            aligner: Aligner::new(config),
            losses: VecDeque::with_capacity(64),
            unjoined: VecDeque::with_capacity(64),
        }
    }

    /// Adds the next item of one stream at `now_ns` of a steady clock. Call [`Self::pop`] until it returns none after
    /// each call.
    pub fn push(&mut self, now_ns: u64, item: Item) {
        let stream = match &item {
            Item::Shot(shot) => shot.meta.stream,
            Item::Loss(loss) => loss.stream,
        };
        let Some(link) = self.streams.iter().position(|other| *other == stream) else { return };
        match item {
            Item::Loss(loss) => {
                self.aligner.note_loss(link, now_ns, loss.cause, loss.first, loss.count);
                self.losses.push_back(loss);
            }
            Item::Shot(shot) => {
                let meta = &shot.meta;
                // Not every transport reports arrival times.
                let arrived_ns = if meta.arrived_tai_ns > 0 { meta.arrived_tai_ns } else { meta.completed_tai_ns };
                let meta = ItemMeta { number: meta.number, stamp_ns: meta.stamp_tai_ns, arrived_ns };
                if let Err(refused) = self.aligner.push(link, now_ns, meta, shot) {
                    let cause = match refused.reason {
                        // Numbers of a link only rise here: its item in that event was another shot.
                        RefusalReason::Late | RefusalReason::Duplicate => DropCause::Late,
                        RefusalReason::Unstamped => DropCause::BadRecord,
                        RefusalReason::Full => DropCause::NoBuffer,
                    };
                    self.unjoined.push_back(UnjoinedShot { link, shot: refused.item, cause });
                }
            }
        }
    }

    /// Returns the next loss, or the next event that is decided by this time.
    pub fn pop(&mut self, now_ns: u64) -> Option<JoinedItem> {
        self.decided(|aligner| aligner.pop(now_ns))
    }

    /// Returns the next loss or event, although links could still add to it.
    pub fn flush(&mut self) -> Option<JoinedItem> {
        self.decided(Aligner::flush)
    }

    /// Returns the next shot that is in no event.
    pub fn pop_unjoined(&mut self) -> Option<UnjoinedShot> {
        self.unjoined.pop_front()
    }

    /// Returns the alignment status of the links.
    pub fn status(&self) -> AlignmentStatus {
        AlignmentStatus::of(&self.aligner, self.streams.len())
    }

    fn decided(
        &mut self,
        decided: impl Fn(&mut Aligner<Box<Shot>>) -> Option<AlignedEvent<Box<Shot>>>,
    ) -> Option<JoinedItem> {
        if let Some(loss) = self.losses.pop_front() {
            return Some(JoinedItem::Loss(loss));
        }
        loop {
            let event = decided(&mut self.aligner)?;
            if event.verdict != Verdict::Dropped {
                return Some(JoinedItem::Event(Box::new(row(event))));
            }
            for (link, part) in event.parts.into_iter().enumerate() {
                if let Ok(present) = part {
                    self.unjoined.push_back(UnjoinedShot { link, shot: present.item, cause: DropCause::NotTriggered });
                }
            }
        }
    }
}

/// Converts an event to a row of a recording. The row's number is that of the first link present; aligned by number,
/// all links have it.
fn row(event: AlignedEvent<Box<Shot>>) -> Event {
    let number = event.parts.iter().flatten().next().map_or(event.key, |present| present.meta.number);
    Event { number, shots: event.parts.into_iter().map(|part| part.ok().map(|present| *present.item)).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::align::AlignBy;
    use shotline_memory::{Pool, Registrar};
    use shotline_store::shot::ShotMeta;
    use shotline_wire::shot::{DropCounters, Presence};
    use std::sync::Arc;

    fn joiner(quorum: usize, capacity: usize) -> (Joiner, Arc<Pool>) {
        let config = Config {
            sources: 2,
            by: AlignBy::Number,
            disorder: 0,
            timeout_ns: u64::MAX,
            quorum,
            capacity,
            lock_ns: 1000,
        };
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
            drops: DropCounters::default(),
        };
        Item::Shot(Box::new(Shot { meta, buffer: pool.take().unwrap() }))
    }

    fn described(joined: Option<JoinedItem>) -> String {
        match joined {
            None => "nothing".into(),
            Some(JoinedItem::Loss(loss)) => format!("loss {}+{} of {}", loss.first, loss.count, loss.stream),
            Some(JoinedItem::Event(event)) => {
                let shots = event.shots.iter().map(|shot| shot.as_ref().map_or(0, |shot| shot.meta.stream));
                format!("event {} {:?}", event.number, shots.collect::<Vec<_>>())
            }
        }
    }

    #[test]
    fn a_loss_precedes_the_event_with_its_gap() {
        let (mut joiner, pool) = joiner(1, 8);
        joiner.push(0, shot(&pool, 9, 3));
        assert_eq!(described(joiner.pop(0)), "nothing");
        joiner.push(0, Item::Loss(Loss { stream: 5, cause: DropCause::WireGap, first: 3, count: 2 }));
        assert_eq!(described(joiner.pop(0)), "loss 3+2 of 5");
        assert_eq!(described(joiner.pop(0)), "event 3 [0, 9]");
        joiner.push(0, shot(&pool, 9, 4));
        assert_eq!(described(joiner.pop(0)), "event 4 [0, 9]");
        assert_eq!(described(joiner.flush()), "nothing");
        assert_eq!(pool.available(), pool.slots() as usize);
    }

    #[test]
    fn shots_in_no_event_are_returned_with_their_cause() {
        let (mut joiner, pool) = joiner(2, 1);
        joiner.push(0, shot(&pool, 9, 3));
        assert_eq!(described(joiner.pop(0)), "nothing");
        joiner.push(0, shot(&pool, 5, 3));
        let unjoined = [joiner.pop_unjoined().unwrap(), joiner.pop_unjoined().unwrap()];
        assert_eq!(unjoined[0].loss(), Loss { stream: 9, cause: DropCause::NotTriggered, first: 3, count: 1 });
        assert_eq!((unjoined[1].link, unjoined[1].cause), (0, DropCause::Late));
        joiner.push(0, Item::Loss(Loss { stream: 77, cause: DropCause::WireGap, first: 3, count: 2 }));
        assert_eq!(described(joiner.flush()), "nothing", "not one of the streams");
        drop(unjoined);
        assert_eq!(pool.available(), pool.slots() as usize);
    }
}
