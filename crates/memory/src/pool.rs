//! Pool of equal slots of one region, with reference-counted buffers.

use crate::stack::SlotStack;
use crate::{MemoryError, Region, RegionId, Regions, Registrar, Sge};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Maximum number of slots of a pool over an existing region. Each slot needs a counter.
const MAX_SLOTS: usize = 1 << 24;

/// A fixed number of equal buffers. Taking and returning a buffer neither allocates nor locks.
///
/// Slots are reused in LIFO order, because the slot returned last is still in the caches.
#[derive(Debug)]
pub struct Pool {
    region: Arc<Region>,
    id: RegionId,
    slot_bytes: u32,
    free: SlotStack,
    /// Number of [`Buffer`]s that refer to each slot.
    holders: Box<[AtomicU32]>,
}

impl Pool {
    /// Allocates a region, registers it, and divides it into `slots` of `slot_bytes`.
    ///
    /// # Errors
    /// If `slots` or `slot_bytes` is 0, or there is not enough memory.
    pub fn new(registrar: &mut Registrar, slots: u32, slot_bytes: u32) -> Result<Arc<Self>, MemoryError> {
        if slots == 0 || slot_bytes == 0 {
            return Err(MemoryError::EmptyPool { slots, slot_bytes });
        }
        let region = Region::host(slots as usize * slot_bytes as usize)?;
        let id = registrar.add(Arc::clone(&region));
        Ok(Self::divide(region, id, slots, slot_bytes))
    }

    /// Divides a registered region into as many slots of `slot_bytes` as fit. For receivers that learn the size of a
    /// shot only from its packets.
    ///
    /// # Errors
    /// [`MemoryError::EmptyPool`] if not one slot fits.
    ///
    /// # Panics
    /// If `id` is not in `regions`.
    pub fn from_region(regions: &Regions, id: RegionId, slot_bytes: u32) -> Result<Arc<Self>, MemoryError> {
        let region = Arc::clone(regions.get(id));
        let slots = region.len().checked_div(slot_bytes as usize).unwrap_or(0).min(MAX_SLOTS) as u32;
        if slots == 0 {
            return Err(MemoryError::EmptyPool { slots, slot_bytes });
        }
        Ok(Self::divide(region, id, slots, slot_bytes))
    }

    fn divide(region: Arc<Region>, id: RegionId, slots: u32, slot_bytes: u32) -> Arc<Self> {
        let free = SlotStack::full(slots);
        let holders = (0..slots).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { region, id, slot_bytes, free, holders })
    }

    /// Takes a free buffer, or returns `None` if all are in use. Its contents are unspecified (old data).
    pub fn take(self: &Arc<Self>) -> Option<Buffer> {
        let slot = self.free.pop()?;
        self.holders[slot as usize].store(1, Ordering::Relaxed);
        Some(Buffer { pool: Arc::clone(self), slot })
    }

    /// Returns the number of free buffers.
    pub fn available(&self) -> usize {
        self.free.len()
    }
    /// Returns the total number of buffers.
    pub fn slots(&self) -> u32 {
        self.holders.len() as u32
    }
    /// Returns the length of a buffer in bytes.
    pub fn slot_bytes(&self) -> u32 {
        self.slot_bytes
    }
    /// Returns the region that holds the buffers.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

/// A reference-counted slot of a pool. Dropping the last clone returns the slot.
#[derive(Debug)]
pub struct Buffer {
    pool: Arc<Pool>,
    slot: u32,
}

impl Buffer {
    /// Returns the length of the buffer in bytes.
    pub fn len(&self) -> u32 {
        self.pool.slot_bytes
    }
    /// Always returns `false`: a pool has no empty slots.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the number of the slot in the pool.
    pub fn slot(&self) -> u32 {
        self.slot
    }
    /// Returns the scatter/gather element of `len` bytes from `offset`.
    ///
    /// # Panics
    /// If they are not inside the buffer.
    pub fn sge(&self, offset: u32, len: u32) -> Sge {
        Sge { region: self.pool.id, offset: self.region_offset(offset, len) as u64, len }
    }
    /// Copies bytes out of the buffer.
    ///
    /// # Panics
    /// If they are not inside the buffer.
    pub fn read(&self, offset: u32, to: &mut [u8]) {
        self.pool.region.read(self.region_offset(offset, to.len() as u32), to);
    }
    /// Copies bytes into the buffer.
    ///
    /// # Panics
    /// If they are not inside the buffer.
    pub fn write(&self, offset: u32, from: &[u8]) {
        self.pool.region.write(self.region_offset(offset, from.len() as u32), from);
    }
    /// Writes zeros.
    ///
    /// # Panics
    /// If they are not inside the buffer.
    pub fn zero(&self, offset: u32, len: u32) {
        self.pool.region.zero(self.region_offset(offset, len), len as usize);
    }
    /// Returns `true` if the buffer is mapped into this process, so that [`Self::address`] may be called.
    pub fn is_mapped(&self) -> bool {
        self.pool.region.is_mapped()
    }
    /// Returns the address of `offset`, for code that fills or stores `len` bytes.
    ///
    /// # Panics
    /// If they are not inside the buffer, or its region is not mapped into this process.
    pub fn address(&self, offset: u32, len: u32) -> *mut u8 {
        self.pool.region.address(self.region_offset(offset, len), len as usize)
    }

    fn region_offset(&self, offset: u32, len: u32) -> usize {
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
        // Release: accesses of this holder happen before those of the next one.
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
    fn last_drop_returns_the_slot() {
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
    fn concurrent_holders_never_share_a_slot() {
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

    /// Stands for a slot's bytes in the model: loom checks that accesses of one holder happen before those of the next.
    struct Bytes(UnsafeCell<u64>);
    // SAFETY: loom checks that no two threads touch the cell at once.
    unsafe impl Sync for Bytes {}
    // SAFETY: as above.
    unsafe impl Send for Bytes {}

    #[test]
    fn slot_is_returned_after_its_last_holder() {
        let region = Region::heap(4096).unwrap();
        loom::model(move || {
            let pool = Pool::divide(Arc::clone(&region), RegionId(0), 1, 64);
            let bytes = loom::sync::Arc::new(Bytes(UnsafeCell::new(0)));
            let read = |bytes: &Bytes| {
                bytes.0.with(|value| {
                    // SAFETY: a holder of the slot may read it.
                    unsafe { *value }
                })
            };
            let mine = pool.take().unwrap();
            let theirs = mine.clone();
            let other = {
                let bytes = loom::sync::Arc::clone(&bytes);
                loom::thread::spawn(move || {
                    read(&bytes);
                    drop(theirs);
                })
            };
            read(&bytes);
            drop(mine);
            // The slot can be taken only after both buffers are dropped, and then the new holder has exclusive access.
            if let Some(_next) = pool.take() {
                bytes.0.with_mut(|value| {
                    // SAFETY: loom panics if another holder may still read it.
                    unsafe { *value += 1 }
                });
            }
            other.join().unwrap();
            assert_eq!(pool.available(), 1);
        });
    }
}
