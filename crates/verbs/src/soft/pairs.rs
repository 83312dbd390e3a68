//! The queue pairs of an endpoint: by place, and by number.

use crate::api::{Cq, QpConfig, Srq, VerbsError};
use crate::engine::{Books, Engine, Nanos, RecvQueue};
use crate::random::fresh_number;
use shotline_memory::Sge;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// On which list of those that want to send a queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    None,
    /// It sends next.
    Ready,
    /// It sends when there is room for more under way.
    Waiting,
}

/// One queue pair.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) engine: Engine,
    pub(super) books: Books,
    /// Memory that the engine has of the endpoint.
    pub(super) lent: Sge,
    /// Its own receives; unused where they come from a shared queue.
    pub(super) receives: RecvQueue,
    /// Whether it is on a list of those that want to send.
    pub(super) turn: Turn,
    /// What of it is in the sum of what is under way.
    pub(super) under_way: u32,
    /// That it is in its error state was told, or asked for.
    pub(super) failed: bool,
    /// When the timers look at it.
    pub(super) alarm: Option<Nanos>,
}

impl Pair {
    pub(super) fn srq(&self) -> Option<Srq> {
        self.engine.config().srq
    }
    pub(super) fn completes_at(&self, cq: Cq) -> bool {
        let config = self.engine.config();
        config.send_cq == cq || config.recv_cq == cq
    }
}

/// Random numbers need no hashing.
#[derive(Debug, Default)]
struct Identity(u64);
impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }
    fn write_u32(&mut self, number: u32) {
        // The table takes bucket and tag from the low and the high end.
        self.0 = u64::from(number) << 40 | u64::from(number);
    }
}

/// All queue pairs of an endpoint. A place stays the same as long as its queue pair lives.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    places: Vec<Option<Box<Pair>>>,
    free: Vec<u32>,
    numbers: HashMap<u32, u32, BuildHasherDefault<Identity>>,
}

impl Pairs {
    /// Makes a queue pair of this number, or of a random one.
    pub(super) fn create(&mut self, config: &QpConfig, lent: Sge, number: Option<u32>) -> Result<u32, VerbsError> {
        let number = match number {
            Some(number) if self.numbers.contains_key(&number) => {
                return Err(VerbsError::InUse { what: "queue pair's number", by: "another" });
            }
            Some(number) => number,
            None => fresh_number(|number| self.numbers.contains_key(&number))?,
        };
        let depth = if config.srq.is_some() { 0 } else { config.max_recv_wr };
        let pair = Box::new(Pair {
            engine: Engine::new(number, config, lent),
            books: Books::default(),
            lent,
            receives: RecvQueue::new(config.pd, depth, config.max_sge),
            turn: Turn::None,
            under_way: 0,
            failed: false,
            alarm: None,
        });
        let place = self.free.pop().unwrap_or(self.places.len() as u32);
        if place as usize == self.places.len() {
            self.places.push(None);
        }
        self.places[place as usize] = Some(pair);
        self.numbers.insert(number, place);
        Ok(number)
    }

    /// Forgets a queue pair. Its number is given out again only by chance.
    pub(super) fn remove(&mut self, number: u32) -> Option<Box<Pair>> {
        let place = self.numbers.remove(&number)?;
        self.free.push(place);
        self.places[place as usize].take()
    }

    pub(super) fn place(&self, number: u32) -> Option<u32> {
        self.numbers.get(&number).copied()
    }
    pub(super) fn get(&self, place: u32) -> Option<&Pair> {
        self.places.get(place as usize)?.as_deref()
    }
    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut Pair> {
        self.places.get_mut(place as usize)?.as_deref_mut()
    }
    pub(super) fn numbered(&self, number: u32) -> Option<&Pair> {
        self.get(self.place(number)?)
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Pair)> {
        self.places.iter().enumerate().filter_map(|(place, pair)| Some((place as u32, pair.as_deref()?)))
    }
}
