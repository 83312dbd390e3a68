//! Remote keys: random, looked up by one hash probe, and not reused soon.

use super::RegisterError;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// A map without hashing, for keys that are random numbers, such as remote keys and queue pair numbers. Not for numbers
/// that a peer chooses, unless there are few of them.
pub type KeyMap<T> = HashMap<u32, T, BuildHasherDefault<Identity>>;

/// Identity hasher for random numbers. This process generates the keys; a peer only chooses which one it looks up.
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
        // hashbrown takes the bucket from the low bits and the tag from the high bits.
        self.0 = u64::from(key) << 32 | u64::from(key);
    }
}

pub(super) type KeySet = HashSet<u32, BuildHasherDefault<Identity>>;

/// Number of most recently removed keys that are not reused.
const MAX_RETIRED: usize = 4096;

/// Keys in use with their values, and recently removed keys.
#[derive(Debug)]
pub(super) struct Keys<T> {
    live: KeyMap<T>,
    retired: VecDeque<u32>,
    retired_set: KeySet,
}

impl<T> Keys<T> {
    pub(super) fn new() -> Self {
        Self { live: KeyMap::default(), retired: VecDeque::new(), retired_set: KeySet::default() }
    }

    /// Returns an unused key: 32 random bits, not 0, and not recently removed.
    pub(super) fn fresh(&self) -> Result<u32, RegisterError> {
        loop {
            let mut bytes = [0; 4];
            rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
                .map_err(|_| RegisterError::Random)?;
            let key = u32::from_ne_bytes(bytes);
            if key != 0 && !self.live.contains_key(&key) && !self.retired_set.contains(&key) {
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

    /// Removes a key.
    pub(super) fn remove(&mut self, key: u32) -> Option<T> {
        let value = self.live.remove(&key)?;
        self.retired.push_back(key);
        self.retired_set.insert(key);
        if self.retired.len() > MAX_RETIRED
            && let Some(oldest) = self.retired.pop_front()
        {
            self.retired_set.remove(&oldest);
        }
        Some(value)
    }
}
