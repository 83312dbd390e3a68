//! Operations in flight, each with a slot of local memory.

use crate::Result;
use crate::remote::{LOOK, MAX_OPERATIONS, RemoteRegion};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shotline_memory::{Mr, Region};
use shotline_verbs::cm::Endpoint;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Number of slots: operations in flight.
const SLOTS: usize = 16;
const _: () = assert!(SLOTS <= MAX_OPERATIONS as usize);
/// Bytes of a slot. An operation of this length costs little more than its bytes over every provider.
const SLOT_BYTES: u64 = 256 << 10;

/// What the operations do.
#[derive(Clone, Copy)]
pub enum Direction {
    /// WRITE from a slot to the region.
    Write,
    /// READ from the region into a slot.
    Read,
}

/// Operations on consecutive parts of a region. They are taken in the order in which they were posted.
pub struct Pipeline<P> {
    remote: RemoteRegion<P>,
    local: Arc<Region>,
    mr: Mr,
    slot_bytes: u64,
    /// Length of each slot's operation, and `true` if it is complete.
    slots: [(u64, bool); SLOTS],
    /// Number of operations that were posted, and of those that were taken.
    posted: u64,
    taken: u64,
    ids: Vec<u64>,
}

impl<P: Endpoint> Pipeline<P> {
    /// Registers memory for the operations.
    pub fn new(mut remote: RemoteRegion<P>) -> Result<Self> {
        let slot_bytes = SLOT_BYTES.min(remote.max_operation());
        let local = Region::host(SLOTS * slot_bytes as usize)?;
        let mr = remote.register(&local)?;
        Ok(Self { remote, local, mr, slot_bytes, slots: [(0, false); SLOTS], posted: 0, taken: 0, ids: Vec::new() })
    }

    /// Returns the maximum length of an operation, in bytes.
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }
    /// Returns `true` if a slot is free.
    pub fn has_free_slot(&self) -> bool {
        self.posted - self.taken < SLOTS as u64
    }
    /// Returns `true` if all operations were taken.
    pub fn is_empty(&self) -> bool {
        self.posted == self.taken
    }

    fn slot(&self, number: u64) -> (usize, usize) {
        let slot = (number % SLOTS as u64) as usize;
        (slot, slot * self.slot_bytes as usize)
    }

    /// Copies bytes to an offset of the slot of the next operation, which must be free.
    pub fn fill(&self, offset: u64, bytes: &[u8]) {
        self.local.write(self.slot(self.posted).1 + offset as usize, bytes);
    }

    /// Posts the next operation, on an offset of the region.
    pub fn post(&mut self, direction: Direction, at: u64, bytes: u64) -> Result {
        let (slot, start) = self.slot(self.posted);
        let local = (&self.mr, start as u64);
        match direction {
            Direction::Write => self.remote.write(local, at, bytes, slot as u64)?,
            Direction::Read => self.remote.read(at, local, bytes, slot as u64)?,
        }
        self.slots[slot] = (bytes, false);
        self.posted += 1;
        Ok(())
    }

    /// Takes the oldest operation if it is complete, and frees its slot. Returns its length.
    pub fn take(&mut self) -> Option<u64> {
        self.take_with(|_, _, _| {})
    }

    /// Like [`Self::take`], and copies the bytes of the slot to `buffer`, which has their length then.
    pub fn take_bytes(&mut self, buffer: &mut Vec<u8>) -> Option<u64> {
        self.take_with(|local, start, bytes| {
            buffer.resize(bytes, 0);
            local.read(start, buffer);
        })
    }

    fn take_with(&mut self, copy: impl FnOnce(&Region, usize, usize)) -> Option<u64> {
        let (slot, start) = self.slot(self.taken);
        let (bytes, true) = self.slots[slot] else { return None };
        copy(&self.local, start, bytes as usize);
        self.slots[slot].1 = false;
        self.taken += 1;
        Some(bytes)
    }

    /// Makes progress. Returns `true` if anything was done.
    pub fn poll(&mut self) -> Result<bool> {
        let any = self.remote.poll(&mut self.ids)?;
        for slot in self.ids.drain(..) {
            self.slots[slot as usize].1 = true;
        }
        Ok(any)
    }

    /// Sleeps until a completion, until `input` can be read, or at most [`LOOK`].
    pub fn sleep(&mut self, input: Option<BorrowedFd<'_>>) -> Result {
        self.remote.check()?;
        self.remote.arm()?;
        if self.poll()? {
            return Ok(());
        }
        let fds = [self.remote.fd()].into_iter().chain(input);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // A signal ends the wait early.
        let _ = poll(&mut fds, Timespec::try_from(LOOK).ok().as_ref());
        Ok(())
    }

    /// Ends the connection cleanly.
    pub fn end(self) -> Result {
        self.remote.end()
    }
}

/// Returns `true` if a read from a descriptor does not block: there are bytes, or its end.
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&zero)), Ok(1..))
}
