//! A lock-free stack of slot numbers.
//!
//! LIFO order, because the slot returned last is still in the caches: measured, a receiver that takes the oldest slot
//! instead is a fifth slower (docs/performance.md).

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Marks the end of the list.
const NONE: u32 = u32::MAX;

/// Treiber stack over an array: each free slot has the number of the one below it. The head holds a modification count
/// together with the slot, so that a head that was popped and pushed again in the meantime differs from the old one
/// (the ABA problem).
#[derive(Debug)]
pub(crate) struct SlotStack {
    head: AtomicU64,
    below: Box<[AtomicU32]>,
    len: AtomicU32,
}

impl SlotStack {
    /// Creates a stack of `slots` slots, the first on top.
    pub(crate) fn full(slots: u32) -> Self {
        let below = (1..=slots).map(|next| AtomicU32::new(if next == slots { NONE } else { next })).collect();
        Self { head: AtomicU64::new(if slots == 0 { u64::from(NONE) } else { 0 }), below, len: AtomicU32::new(slots) }
    }

    /// Pops the slot pushed last.
    pub(crate) fn pop(&self) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let slot = head as u32;
            if slot == NONE {
                return None;
            }
            // The value is stale if another thread pops the slot concurrently, but then the exchange fails.
            let below = self.below[slot as usize].load(Ordering::Relaxed);
            match self.head.compare_exchange_weak(head, advance(head, below), Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => {
                    self.len.fetch_sub(1, Ordering::Relaxed);
                    return Some(slot);
                }
                Err(current) => head = current,
            }
        }
    }

    /// Pushes a slot. Only the holder of a popped slot may call this.
    pub(crate) fn push(&self, slot: u32) {
        self.len.fetch_add(1, Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            self.below[slot as usize].store(head as u32, Ordering::Relaxed);
            // Release: accesses of this holder happen before those of the next one.
            match self.head.compare_exchange_weak(head, advance(head, slot), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(current) => head = current,
            }
        }
    }

    /// Returns the number of slots, which may be out of date while other threads push and pop.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }
}

/// Returns the next head: the modification count plus one, and this slot on top.
fn advance(head: u64, slot: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(slot)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_are_popped_in_lifo_order() {
        let stack = SlotStack::full(3);
        assert_eq!([stack.pop(), stack.pop(), stack.pop(), stack.pop()], [Some(0), Some(1), Some(2), None]);
        stack.push(1);
        stack.push(2);
        assert_eq!((stack.len(), stack.pop(), stack.pop(), stack.pop()), (2, Some(2), Some(1), None));
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p shotline-memory --lib`: every interleaving with up to three preemptions.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;

    #[test]
    fn no_slot_has_two_holders_or_is_lost() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let stack = Arc::new(SlotStack::full(2));
            let out = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
            let work = |stack: Arc<SlotStack>, out: Arc<[AtomicUsize; 2]>| {
                for _ in 0..2 {
                    if let Some(slot) = stack.pop() {
                        let holders = &out[slot as usize];
                        assert_eq!(holders.fetch_add(1, Ordering::Relaxed), 0, "slot {slot} has two holders");
                        holders.fetch_sub(1, Ordering::Relaxed);
                        stack.push(slot);
                    }
                }
            };
            let other = {
                let (stack, out) = (Arc::clone(&stack), Arc::clone(&out));
                loom::thread::spawn(move || work(stack, out))
            };
            work(Arc::clone(&stack), out);
            other.join().unwrap();
            let mut all = [stack.pop(), stack.pop()];
            all.sort_unstable();
            assert_eq!((all, stack.pop()), ([Some(0), Some(1)], None));
        });
    }
}
