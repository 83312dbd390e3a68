//! Equal slots of one region, shared by reference.

use crate::stack::SlotStack;
use crate::{MemoryError, Region, RegionId, Regions, Registrar, Sge};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// More slots are of no use: each has its counter.
const MOST_SLOTS: usize = 1 << 24;

/// A fixed number of equal buffers. Taking and returning one neither allocates nor locks.
///
/// The slot returned last is handed out first: the caches still hold it.
#[derive(Debug)]
pub struct Pool {
    region: Arc<Region>,
    id: RegionId,
    slot_bytes: u32,
    free: SlotStack,
    holders: Box<[AtomicU32]>,
}

impl Pool {
    /// Makes the region, registers it, and cuts it into `slots` of `slot_bytes`.
    pub fn new(registrar: &mut Registrar, slots: u32, slot_bytes: u32) -> Result<Arc<Self>, MemoryError> {
        if slots == 0 || slot_bytes == 0 {
            return Err(MemoryError::EmptyPool { slots, slot_bytes });
        }
        let region = Region::host(slots as usize * slot_bytes as usize)?;
        let id = registrar.add(Arc::clone(&region));
        Ok(Self::cut(region, id, slots, slot_bytes))
    }

    /// Cuts a region that is registered already into as many slots of `slot_bytes` as it holds: for whoever learns
    /// a shot's size only from the shots.
    pub fn over(regions: &Regions, id: RegionId, slot_bytes: u32) -> Result<Arc<Self>, MemoryError> {
        let region = Arc::clone(regions.get(id));
        let slots = region.len().checked_div(slot_bytes as usize).unwrap_or(0).min(MOST_SLOTS) as u32;
        if slots == 0 {
            return Err(MemoryError::EmptyPool { slots, slot_bytes });
        }
        Ok(Self::cut(region, id, slots, slot_bytes))
    }

    fn cut(region: Arc<Region>, id: RegionId, slots: u32, slot_bytes: u32) -> Arc<Self> {
        let free = SlotStack::full(slots);
        let holders = (0..slots).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { region, id, slot_bytes, free, holders })
    }

    /// A buffer that nobody else holds, or none if all are out. Its bytes are whatever was there before.
    pub fn take(self: &Arc<Self>) -> Option<Buffer> {
        let slot = self.free.pop()?;
        self.holders[slot as usize].store(1, Ordering::Relaxed);
        Some(Buffer { pool: Arc::clone(self), slot })
    }

    /// Buffers that are free now.
    pub fn available(&self) -> usize {
        self.free.len()
    }
    /// Buffers in all.
    pub fn slots(&self) -> u32 {
        self.holders.len() as u32
    }
    /// Bytes of each.
    pub fn slot_bytes(&self) -> u32 {
        self.slot_bytes
    }
    /// The region that they are cut from.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

/// One slot of a pool, held by reference: a clone is another holder, and the last drop returns the slot.
#[derive(Debug)]
pub struct Buffer {
    pool: Arc<Pool>,
    slot: u32,
}

impl Buffer {
    /// Bytes of the buffer.
    pub fn len(&self) -> u32 {
        self.pool.slot_bytes
    }
    /// Never: a pool has no empty slots.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Its number in the pool.
    pub fn slot(&self) -> u32 {
        self.slot
    }
    /// `len` bytes from `offset`, as a scatter/gather element.
    ///
    /// # Panics
    /// If they are not inside the buffer.
    pub fn sge(&self, offset: u32, len: u32) -> Sge {
        Sge { region: self.pool.id, offset: self.position(offset, len) as u64, len }
    }
    /// Copies bytes out. Panics outside the buffer.
    pub fn read(&self, offset: u32, to: &mut [u8]) {
        self.pool.region.read(self.position(offset, to.len() as u32), to);
    }
    /// Copies bytes in. Panics outside the buffer.
    pub fn write(&self, offset: u32, from: &[u8]) {
        self.pool.region.write(self.position(offset, from.len() as u32), from);
    }
    /// Writes zeros. Panics outside the buffer.
    pub fn zero(&self, offset: u32, len: u32) {
        self.pool.region.zero(self.position(offset, len), len as usize);
    }
    /// The address of `offset`, for a party that fills or stores the buffer. Panics outside it.
    pub fn address(&self, offset: u32, len: u32) -> *mut u8 {
        self.pool.region.address(self.position(offset, len), len as usize)
    }

    fn position(&self, offset: u32, len: u32) -> usize {
        let size = self.pool.slot_bytes;
        assert!(offset <= size && len <= size - offset, "{offset}+{len} is outside a buffer of {size} bytes");
        self.slot as usize * size as usize + offset as usize
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        self.pool.holders[self.slot as usize].fetch_add(1, Ordering::Relaxed);
        Self { pool: Arc::clone(&self.pool), slot: self.slot }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Release: what this holder did to the bytes happens before the next taker's use of them.
        if self.pool.holders[self.slot as usize].fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            self.pool.free.push(self.slot);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_holder_returns_the_slot_and_no_slot_is_out_twice() {
        let mut registrar = Registrar::new();
        let pool = Pool::new(&mut registrar, 2, 4096).unwrap();
        let (a, b) = (pool.take().unwrap(), pool.take().unwrap());
        assert_ne!(a.slot(), b.slot());
        assert!(pool.take().is_none());
        let c = a.clone();
        drop(a);
        assert!(pool.take().is_none());
        drop(c);
        assert!(pool.take().is_some());
    }

    #[test]
    fn holders_on_many_threads_never_share_a_slot_by_mistake() {
        let mut registrar = Registrar::new();
        let pool = Pool::new(&mut registrar, 3, 64).unwrap();
        std::thread::scope(|scope| {
            for mark in 1..=4_u8 {
                let pool = &pool;
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let Some(buffer) = pool.take() else { continue };
                        buffer.write(0, &[mark; 64]);
                        let other = buffer.clone();
                        drop(buffer);
                        let mut seen = [0; 64];
                        other.read(0, &mut seen);
                        assert_eq!(seen, [mark; 64]);
                    }
                });
            }
        });
        assert_eq!(pool.available(), 3);
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p shotline-memory --lib`.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::cell::UnsafeCell;

    /// What loom checks in the place of a slot's bytes: that its uses by one holder happen before those by the next.
    struct Bytes(UnsafeCell<u64>);
    // SAFETY: loom checks that no two threads touch the cell at once.
    unsafe impl Sync for Bytes {}
    // SAFETY: as above.
    unsafe impl Send for Bytes {}

    #[test]
    fn no_interleaving_returns_a_slot_before_its_last_holder_is_done() {
        let region = Region::heap(4096).unwrap();
        loom::model(move || {
            let pool = Pool::cut(Arc::clone(&region), RegionId(0), 1, 64);
            let bytes = loom::sync::Arc::new(Bytes(UnsafeCell::new(0)));
            let look = |bytes: &Bytes| {
                bytes.0.with(|value| {
                    // SAFETY: who holds the slot may look.
                    unsafe { *value }
                })
            };
            let mine = pool.take().unwrap();
            let theirs = mine.clone();
            let other = {
                let bytes = loom::sync::Arc::clone(&bytes);
                loom::thread::spawn(move || {
                    look(&bytes);
                    drop(theirs);
                })
            };
            look(&bytes);
            drop(mine);
            // Only when both have let it go it can be taken, and then its bytes are the taker's alone.
            if let Some(_next) = pool.take() {
                bytes.0.with_mut(|value| {
                    // SAFETY: loom panics if a holder may still look.
                    unsafe { *value += 1 }
                });
            }
            other.join().unwrap();
            assert_eq!(pool.available(), 1);
        });
    }
}
