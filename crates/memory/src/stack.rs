//! A lock-free stack of slot numbers.
//!
//! Last in, first out, because the slot returned last is the one that the caches still hold: measured, a
//! receiver that takes the oldest slot instead is a fifth slower (docs/performance.md).

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// No slot: the end of the chain.
const NONE: u32 = u32::MAX;

/// Treiber's stack over an array: each free slot names the one below it. The head carries a count of all
/// changes beside the slot, so that a head that was popped and pushed again meanwhile is not taken for the old
/// one (the ABA problem).
#[derive(Debug)]
pub(crate) struct SlotStack {
    head: AtomicU64,
    below: Box<[AtomicU32]>,
    len: AtomicU32,
}

impl SlotStack {
    /// All of `slots`, the first on top.
    pub(crate) fn full(slots: u32) -> Self {
        let below = (1..=slots).map(|next| AtomicU32::new(if next == slots { NONE } else { next })).collect();
        Self { head: AtomicU64::new(if slots == 0 { u64::from(NONE) } else { 0 }), below, len: AtomicU32::new(slots) }
    }

    /// Takes the slot returned last.
    pub(crate) fn pop(&self) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let slot = head as u32;
            if slot == NONE {
                return None;
            }
            // May be stale if another thread takes the slot just now; then the exchange fails.
            let below = self.below[slot as usize].load(Ordering::Relaxed);
            match self.head.compare_exchange_weak(head, advance(head, below), Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => {
                    self.len.fetch_sub(1, Ordering::Relaxed);
                    return Some(slot);
                }
                Err(now) => head = now,
            }
        }
    }

    /// Returns a slot, which must be out: only its holder may call this.
    pub(crate) fn push(&self, slot: u32) {
        self.len.fetch_add(1, Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            self.below[slot as usize].store(head as u32, Ordering::Relaxed);
            // Release: what the holder did to the slot happens before the next holder's use of it.
            match self.head.compare_exchange_weak(head, advance(head, slot), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// How many there are; while others push and pop, how many there were a moment ago.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }
}

/// The next head: one more change, this slot on top.
fn advance(head: u64, slot: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(slot)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_slot_returned_last_comes_first_and_each_is_out_once() {
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
    fn no_interleaving_gives_a_slot_to_two_holders_or_loses_one() {
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
