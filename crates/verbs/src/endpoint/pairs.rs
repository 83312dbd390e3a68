//! The queue pairs of an endpoint, by index and by number.

use crate::api::{Cq, QpConfig, Srq, VerbsError};
use crate::engine::{Engine, Nanos, QpCounters, RecvQueue};
use crate::random::fresh_number;
use shotline_memory::Sge;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Send list that a queue pair is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    Idle,
    /// Sends next.
    Ready,
    /// Sends once the packets in flight are below the endpoint's limit.
    Waiting,
}

/// A queue pair with its counters and schedule.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) engine: Engine,
    pub(super) counters: QpCounters,
    /// The engine's memory, allocated from the endpoint's arena.
    pub(super) memory: Sge,
    /// Its receive queue; unused if it has a shared one.
    pub(super) receives: RecvQueue,
    /// Send queue of the datapath that it is assigned to, while it is connected.
    pub(super) queue: Option<u32>,
    pub(super) schedule: Schedule,
    /// Its packets in the endpoint's sum of packets in flight.
    pub(super) in_flight: u32,
    /// The error state was reported, or requested by the application.
    pub(super) failed: bool,
    /// Time of its earliest entry in the timer heap.
    pub(super) alarm: Option<Nanos>,
}

impl Pair {
    pub(super) fn srq(&self) -> Option<Srq> {
        self.engine.config().srq
    }
    /// Returns the index of its send queue; datagrams use the first one.
    pub(super) fn list(&self) -> usize {
        self.queue.unwrap_or(0) as usize
    }
    pub(super) fn completes_at(&self, cq: Cq) -> bool {
        let config = self.engine.config();
        config.send_cq == cq || config.recv_cq == cq
    }
}

/// Hasher for queue pair numbers, which are random already.
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
        // The hash table takes the bucket from the low bits and the tag from the high bits.
        self.0 = u64::from(number) << 40 | u64::from(number);
    }
}

/// All queue pairs of an endpoint. An index is valid for the life of its queue pair.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    slots: Vec<Option<Box<Pair>>>,
    free: Vec<u32>,
    numbers: HashMap<u32, u32, BuildHasherDefault<Identity>>,
}

impl Pairs {
    /// Creates a queue pair with this number, or with a random one.
    pub(super) fn create(&mut self, config: &QpConfig, memory: Sge, number: Option<u32>) -> Result<u32, VerbsError> {
        let number = match number {
            Some(number) if self.numbers.contains_key(&number) => {
                return Err(VerbsError::InUse { what: "queue pair number", by: "another queue pair" });
            }
            Some(number) => number,
            None => fresh_number(|number| self.numbers.contains_key(&number))?,
        };
        let depth = if config.srq.is_some() { 0 } else { config.max_recv_wr };
        let pair = Box::new(Pair {
            engine: Engine::new(number, config, memory),
            counters: QpCounters::default(),
            memory,
            receives: RecvQueue::new(config.pd, depth, config.max_sge),
            queue: None,
            schedule: Schedule::Idle,
            in_flight: 0,
            failed: false,
            alarm: None,
        });
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        if index as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[index as usize] = Some(pair);
        self.numbers.insert(number, index);
        Ok(number)
    }

    /// Removes a queue pair. Its number is reused only by chance.
    pub(super) fn remove(&mut self, number: u32) -> Option<Box<Pair>> {
        let index = self.numbers.remove(&number)?;
        self.free.push(index);
        self.slots[index as usize].take()
    }

    pub(super) fn index_of(&self, number: u32) -> Option<u32> {
        self.numbers.get(&number).copied()
    }
    pub(super) fn get(&self, index: u32) -> Option<&Pair> {
        self.slots.get(index as usize)?.as_deref()
    }
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Pair> {
        self.slots.get_mut(index as usize)?.as_deref_mut()
    }
    pub(super) fn by_number(&self, number: u32) -> Option<&Pair> {
        self.get(self.index_of(number)?)
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Pair)> {
        self.slots.iter().enumerate().filter_map(|(index, pair)| Some((index as u32, pair.as_deref()?)))
    }
}
