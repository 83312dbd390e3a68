//! Handles: numbers that stand for objects of the library.
//!
//! A number is used once in the life of the process, so a closed handle never names another object, and a handle that was
//! never opened names none. Calls in progress share the object; it is dropped after the last of them.

use crate::process::forks;
use crate::status::{Failure, shotline_status};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// The next number, of handles of all kinds: a handle of one kind is none of another. 0 is never used.
static NEXT: AtomicU64 = AtomicU64::new(1);
/// The number of a handle is in its lower bits, and the process that has opened it ([`forks`]) in the others.
const NUMBER_BITS: u32 = 48;

/// Parts of a table.
const SHARDS: usize = 16;

/// The open objects of one kind.
pub(crate) struct Handles<T> {
    kind: &'static str,
    /// Returns the error of a handle that is closed.
    closed: fn(&str) -> Failure,
    /// Those of the process that has loaded the library.
    first: Table<T>,
}

/// The open objects of one kind and one process.
///
/// A child process begins another table: other threads of its parent may have held locks of the parent's at the fork,
/// which no thread of the child releases. The parent's objects are neither used nor dropped there.
struct Table<T> {
    process: u64,
    shards: [Shard<T>; SHARDS],
    next: OnceLock<Box<Self>>,
}

/// Objects by their handles, of which each part has some: threads that use different handles rarely wait for each other.
/// Two parts do not share a cache line.
#[repr(align(64))]
struct Shard<T>(RwLock<BTreeMap<u64, Arc<T>>>);

impl<T> Table<T> {
    const fn new(process: u64) -> Self {
        Self { process, shards: [const { Shard(RwLock::new(BTreeMap::new())) }; SHARDS], next: OnceLock::new() }
    }

    fn shard(&self, id: u64) -> &RwLock<BTreeMap<u64, Arc<T>>> {
        &self.shards[(id % SHARDS as u64) as usize].0
    }
}

impl<T> Handles<T> {
    pub(crate) const fn new(kind: &'static str) -> Self {
        Self::closed_as(kind, closed)
    }

    /// As [`Self::new`], with another error for closed handles.
    pub(crate) const fn closed_as(kind: &'static str, closed: fn(&str) -> Failure) -> Self {
        Self { kind, closed, first: Table::new(0) }
    }

    /// Returns the table of this process.
    fn table(&self) -> &Table<T> {
        let process = forks();
        let mut table = &self.first;
        while table.process < process {
            table = table.next.get_or_init(|| Box::new(Table::new(table.process + 1)));
        }
        table
    }

    /// Returns the table that may have a handle.
    fn table_of(&self, id: u64) -> Result<&Table<T>, Failure> {
        let (table, process) = (self.table(), id >> NUMBER_BITS);
        match process.cmp(&table.process) {
            std::cmp::Ordering::Equal => Ok(table),
            std::cmp::Ordering::Less if id != 0 => {
                let words = format!("this {} belongs to the parent process: open it after the fork", self.kind);
                Err(Failure::new(shotline_status::SHOTLINE_ERROR_FORKED, words))
            }
            _ => Err(self.absent(id)),
        }
    }

    /// Returns the error of a handle that is in no table.
    fn absent(&self, id: u64) -> Failure {
        let (kind, number) = (self.kind, id & ((1 << NUMBER_BITS) - 1));
        let was_returned = id >> NUMBER_BITS <= forks() && (1..NEXT.load(Ordering::Relaxed)).contains(&number);
        if was_returned {
            return (self.closed)(kind);
        }
        Failure::argument(format!("expected the handle of a {kind}, found {id}, which no function returned"))
    }

    /// Adds an object and returns its handle.
    pub(crate) fn insert(&self, object: T) -> u64 {
        self.insert_shared(Arc::new(object))
    }

    /// Adds a handle of an object that may have others.
    pub(crate) fn insert_shared(&self, object: Arc<T>) -> u64 {
        let table = self.table();
        let id = table.process << NUMBER_BITS | NEXT.fetch_add(1, Ordering::Relaxed);
        table.shard(id).write().unwrap_or_else(PoisonError::into_inner).insert(id, object);
        id
    }

    /// Returns the object of a handle.
    pub(crate) fn get(&self, id: u64) -> Result<Arc<T>, Failure> {
        let open = self.table_of(id)?.shard(id).read().unwrap_or_else(PoisonError::into_inner);
        open.get(&id).cloned().ok_or_else(|| self.absent(id))
    }

    /// Removes a handle and returns its object. Later calls with the handle fail.
    pub(crate) fn remove(&self, id: u64) -> Result<Arc<T>, Failure> {
        let removed = self.table_of(id)?.shard(id).write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        removed.ok_or_else(|| self.absent(id))
    }

    /// Removes all handles of this process, and returns their objects.
    pub(crate) fn remove_all(&self) -> Vec<Arc<T>> {
        let take = |shard: &Shard<T>| std::mem::take(&mut *shard.0.write().unwrap_or_else(PoisonError::into_inner));
        self.table().shards.iter().map(take).flat_map(BTreeMap::into_values).collect()
    }
}

/// Error of a handle that is closed.
pub(crate) fn closed(kind: &str) -> Failure {
    Failure::new(
        shotline_status::SHOTLINE_ERROR_CLOSED,
        format!("this {kind} is closed: open it again, or end the threads that use it before it is closed"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_valid_from_insert_to_remove_only() {
        let (numbers, texts) = (Handles::new("number"), Handles::new("text"));
        let (seven, text) = (numbers.insert(7), texts.insert("seven"));
        assert_eq!((*numbers.get(seven).unwrap(), *texts.get(text).unwrap()), (7, "seven"));
        assert!(numbers.get(text).is_err());
        let held = numbers.get(seven).unwrap();
        numbers.remove(seven).unwrap();
        assert_eq!(*held, 7);
        for closed in [numbers.get(seven), numbers.remove(seven)] {
            assert!(format!("{closed:?}").contains("SHOTLINE_ERROR_CLOSED"));
        }
        assert_ne!(numbers.insert(8), seven);
        for never in [0, u64::MAX, 1 << NUMBER_BITS | seven] {
            assert!(format!("{:?}", numbers.get(never)).contains("SHOTLINE_ERROR_INVALID_ARGUMENT"));
        }
    }

    #[test]
    fn an_object_is_dropped_after_its_last_handle() {
        let objects = Handles::new("object");
        let object = Arc::new(());
        let first = objects.insert_shared(Arc::clone(&object));
        let second = objects.insert_shared(objects.get(first).unwrap());
        drop(objects.remove(first));
        assert_eq!((Arc::strong_count(&object), objects.get(second).is_ok()), (2, true));
        drop(objects.remove(second));
        assert_eq!(Arc::strong_count(&object), 1);
        let many: Vec<_> = (0..100).map(|_| objects.insert_shared(Arc::clone(&object))).collect();
        assert_eq!(objects.remove_all().len(), 100);
        assert!(many.into_iter().all(|id| objects.get(id).is_err()));
        assert_eq!(Arc::strong_count(&object), 1);
    }
}
