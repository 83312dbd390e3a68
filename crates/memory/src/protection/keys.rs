//! Remote keys: random, found by one probe, and not given out again soon.

use super::RegisterError;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are random numbers already, such as remote keys and queue pair numbers: it hashes nothing. Not for
/// numbers that somebody else chooses, unless there are few of them.
pub type KeyMap<T> = HashMap<u32, T, BuildHasherDefault<Identity>>;

/// Random numbers need no hashing. (Keys are ours: a peer only chooses which one it asks for.)
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }
    fn write_u32(&mut self, key: u32) {
        // hashbrown takes bucket and tag from the low and the high end.
        self.0 = u64::from(key) << 32 | u64::from(key);
    }
}

pub(super) type KeySet = HashSet<u32, BuildHasherDefault<Identity>>;

/// Keys that were given up last and are not given out again.
const REMEMBERED: usize = 4096;

/// What each key is for, and which keys are spent.
#[derive(Debug)]
pub(super) struct Keys<T> {
    live: KeyMap<T>,
    spent: VecDeque<u32>,
    spent_set: KeySet,
}

impl<T> Keys<T> {
    pub(super) fn new() -> Self {
        Self { live: KeyMap::default(), spent: VecDeque::new(), spent_set: KeySet::default() }
    }

    /// A key that nobody has: 32 random bits, not 0, not one of those given up last.
    pub(super) fn fresh(&self) -> Result<u32, RegisterError> {
        loop {
            let mut bytes = [0; 4];
            rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
                .map_err(|_| RegisterError::Random)?;
            let key = u32::from_ne_bytes(bytes);
            if key != 0 && !self.live.contains_key(&key) && !self.spent_set.contains(&key) {
                return Ok(key);
            }
        }
    }

    pub(super) fn insert(&mut self, key: u32, value: T) {
        self.live.insert(key, value);
    }

    #[inline]
    pub(super) fn get(&self, key: u32) -> Option<&T> {
        self.live.get(&key)
    }

    /// Ends a key.
    pub(super) fn remove(&mut self, key: u32) -> Option<T> {
        let value = self.live.remove(&key)?;
        self.spent.push_back(key);
        self.spent_set.insert(key);
        if self.spent.len() > REMEMBERED
            && let Some(oldest) = self.spent.pop_front()
        {
            self.spent_set.remove(&oldest);
        }
        Some(value)
    }
}
