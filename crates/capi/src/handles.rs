//! Handles: numbers that stand for objects of the library.
//!
//! A number is used once in the life of the process, so a closed handle never names another object, and a handle that was
//! never opened names none. Calls in progress share the object; it is dropped after the last of them.

use crate::status::{Failure, shotline_status};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The next number, of handles of all kinds: a handle of one kind is none of another. 0 is never used.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The open objects of one kind.
pub(crate) struct Handles<T> {
    kind: &'static str,
    open: RwLock<BTreeMap<u64, Arc<T>>>,
}

impl<T> Handles<T> {
    pub(crate) const fn new(kind: &'static str) -> Self {
        Self { kind, open: RwLock::new(BTreeMap::new()) }
    }

    /// Adds an object and returns its handle.
    pub(crate) fn insert(&self, object: T) -> u64 {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::new(object));
        id
    }

    /// Returns the object of a handle.
    pub(crate) fn get(&self, id: u64) -> Result<Arc<T>, Failure> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&id).cloned().ok_or_else(|| self.absent(id))
    }

    /// Removes a handle and returns its object. Later calls with the handle fail.
    pub(crate) fn remove(&self, id: u64) -> Result<Arc<T>, Failure> {
        let removed = self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        removed.ok_or_else(|| self.absent(id))
    }

    fn absent(&self, id: u64) -> Failure {
        let kind = self.kind;
        if id == 0 || id >= NEXT.load(Ordering::Relaxed) {
            return Failure::argument(format!(
                "expected the handle of a {kind}, found {id}, which no function returned"
            ));
        }
        closed(kind)
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
        for never in [0, u64::MAX] {
            assert!(format!("{:?}", numbers.get(never)).contains("SHOTLINE_ERROR_INVALID_ARGUMENT"));
        }
    }
}
