//! Shots of several links that share a number become one event.

use crate::stream::Item;
use arrayvec::ArrayVec;
use shotline_store::shot::{Event, Loss, MAX_LINKS, Shot};
use std::collections::VecDeque;

/// What is handed to sinks.
#[derive(Debug)]
pub enum Joined {
    /// At least one link has its shot.
    Event(Box<Event>),
    /// Shots of one link that no event holds.
    Loss(Loss),
}

/// Joins links by shot number. Each link's items come in the order of their numbers and without holes, so
/// an event is decided as soon as every link has passed its number.
#[derive(Debug)]
pub struct Joiner {
    links: Vec<Link>,
    ready: VecDeque<Joined>,
}

#[derive(Debug)]
struct Link {
    stream: u32,
    items: VecDeque<Item>,
}

impl Link {
    fn first(&self) -> Option<u64> {
        self.items.front().map(|item| match item {
            Item::Shot(shot) => shot.meta.number,
            Item::Loss(loss) => loss.first,
        })
    }

    /// Takes this link's part of event `number`.
    fn take(&mut self, number: u64) -> Part {
        match self.items.front_mut() {
            Some(Item::Loss(loss)) if loss.first == number => {
                let one = Loss { count: 1, ..*loss };
                loss.first += 1;
                loss.count -= 1;
                if loss.count == 0 {
                    self.items.pop_front();
                }
                Part::Lost(one)
            }
            Some(Item::Shot(shot)) if shot.meta.number == number => match self.items.pop_front() {
                Some(Item::Shot(shot)) => Part::Shot(shot),
                _ => Part::Nothing,
            },
            _ => Part::Nothing,
        }
    }
}

enum Part {
    Shot(Box<Shot>),
    Lost(Loss),
    /// The link joined later, or has ended.
    Nothing,
}

impl Joiner {
    /// Joins these streams; their order is the order of an event's shots.
    ///
    /// # Panics
    /// With more than [`MAX_LINKS`] streams.
    pub fn new(streams: &[u32]) -> Self {
        assert!(streams.len() <= MAX_LINKS, "{} links, an event holds {MAX_LINKS}", streams.len());
        let link = |stream: &u32| Link { stream: *stream, items: VecDeque::with_capacity(64) };
        Self { links: streams.iter().map(link).collect(), ready: VecDeque::with_capacity(64) }
    }

    /// Takes one stream's next item.
    pub fn push(&mut self, item: Item) {
        let stream = match &item {
            Item::Shot(shot) => shot.meta.stream,
            Item::Loss(loss) => loss.stream,
        };
        if let Some(link) = self.links.iter_mut().find(|link| link.stream == stream) {
            link.items.push_back(item);
        }
    }

    /// The next event or loss that is decided.
    pub fn pop(&mut self) -> Option<Joined> {
        if self.ready.is_empty() && self.links.iter().all(|link| !link.items.is_empty()) {
            self.join();
        }
        self.ready.pop_front()
    }

    /// The next event or loss, although links without items may still have had a part in it.
    pub fn flush(&mut self) -> Option<Joined> {
        if self.ready.is_empty() {
            self.join();
        }
        self.ready.pop_front()
    }

    fn join(&mut self) {
        let Some(number) = self.links.iter().filter_map(Link::first).min() else { return };
        let any_shot = self
            .links
            .iter()
            .any(|link| matches!(link.items.front(), Some(Item::Shot(shot)) if shot.meta.number == number));
        if !any_shot {
            // Nobody has a shot before the first one or the end of the shortest run: pass the runs on whole.
            for link in &mut self.links {
                if matches!(link.items.front(), Some(Item::Loss(loss)) if loss.first == number)
                    && let Some(Item::Loss(loss)) = link.items.pop_front()
                {
                    self.ready.push_back(Joined::Loss(loss));
                }
            }
            // A run of one link may cover shots that another has: those stay with the shorter runs.
            return self.split_runs();
        }
        let mut event = Event { number, shots: ArrayVec::new() };
        for link in &mut self.links {
            event.shots.push(match link.take(number) {
                Part::Shot(shot) => Some(*shot),
                Part::Lost(loss) => {
                    self.ready.push_back(Joined::Loss(loss));
                    None
                }
                Part::Nothing => None,
            });
        }
        self.ready.push_back(Joined::Event(Box::new(event)));
    }

    /// Runs passed on whole must not reach beyond the next shot of another link, or that event would list
    /// the link as absent without its loss: shorten them and give the rest back.
    fn split_runs(&mut self) {
        let next_shot = self.links.iter().filter_map(Link::first).min();
        for joined in &mut self.ready {
            let Joined::Loss(loss) = joined else { continue };
            let Some(limit) = next_shot.filter(|limit| loss.first < *limit && *limit < loss.first + loss.count) else {
                continue;
            };
            let kept = limit - loss.first;
            let rest = Loss { first: limit, count: loss.count - kept, ..*loss };
            loss.count = kept;
            if let Some(link) = self.links.iter_mut().find(|link| link.stream == rest.stream) {
                link.items.push_front(Item::Loss(rest));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shotline_memory::{Pool, Registrar};
    use shotline_store::shot::ShotMeta;
    use shotline_wire::shot::{DropCause, Drops, Presence};
    use std::collections::BTreeMap;

    proptest! {
        /// Whatever each link lost, every number of every link is handed on exactly once, and shots of one
        /// number share an event.
        #[test]
        fn every_number_of_every_link_leaves_exactly_once(
            lost in proptest::collection::vec(proptest::collection::vec(any::<bool>(), 24), 1..4)
        ) {
            let pool = Pool::new(&mut Registrar::new(), 128, 64).unwrap();
            let streams: Vec<u32> = (0..lost.len() as u32).collect();
            let mut joiner = Joiner::new(&streams);
            for (stream, lost) in lost.iter().enumerate() {
                let mut run = None::<Loss>;
                for (number, is_lost) in lost.iter().enumerate() {
                    if *is_lost {
                        run.get_or_insert(Loss {
                            stream: stream as u32, cause: DropCause::WireGap, first: number as u64, count: 0,
                        }).count += 1;
                        continue;
                    }
                    run.take().into_iter().for_each(|run| joiner.push(Item::Loss(run)));
                    let meta = ShotMeta {
                        stream: stream as u32, number: number as u64, stamp_tai_ns: 0, arrived_tai_ns: 0, completed_tai_ns: 0, flags: 0, record_good: true,
                        valid_bytes: 0, presence: Presence::empty(1), drops: Drops::default(),
                    };
                    joiner.push(Item::Shot(Box::new(Shot { meta, buffer: pool.take().unwrap() })));
                }
                run.take().into_iter().for_each(|run| joiner.push(Item::Loss(run)));
            }
            let mut left = BTreeMap::new();
            let mut last = None;
            while let Some(joined) = joiner.pop().or_else(|| joiner.flush()) {
                match joined {
                    Joined::Event(event) => {
                        prop_assert!(last < Some(event.number));
                        last = Some(event.number);
                        for shot in event.shots.iter().flatten() {
                            prop_assert_eq!(shot.meta.number, event.number);
                            *left.entry((shot.meta.stream as usize, event.number as usize)).or_insert(0) += 1;
                        }
                    }
                    Joined::Loss(loss) => for number in loss.first..loss.first + loss.count {
                        prop_assert!(lost[loss.stream as usize][number as usize]);
                        *left.entry((loss.stream as usize, number as usize)).or_insert(0) += 1;
                    },
                }
            }
            prop_assert_eq!(left.len(), lost.len() * 24);
            prop_assert!(left.values().all(|times| *times == 1));
        }
    }
}
