//! The board: what one endpoint shows its peer, in shared memory that only it can write.
//!
//! Each side has one board and maps the other's for reading; the seal F_SEAL_FUTURE_WRITE has the kernel see to it. So
//! nothing that a peer writes can change anything of ours; what we read of it is masked, checked, and read once.

use rustix::fd::{BorrowedFd, OwnedFd};
use shotline_memory::{MemoryError, Region};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Queue pairs, and receive queues, that an endpoint can have.
pub(super) const QUEUES: usize = 2048;
/// Remote keys that an endpoint can have.
pub(super) const KEYS: usize = 16_384;
/// Bytes of messages on their way.
pub(super) const RING: u64 = 1 << 20;

/// Says what the memory is, and which version of it.
const MAGIC: u64 = u64::from_be_bytes(*b"shtlShm1");

// Positions of the parts. What is written often has a cache line of its own.
const TAIL: usize = 64;
const HEAD: usize = 128;
const WAKE: usize = 192;
const CHANGES: usize = 256;
const PAIRS: usize = 4096;
const PAIR: usize = 64;
const RECEIVES: usize = PAIRS + QUEUES * PAIR;
const LIVE: usize = RECEIVES + QUEUES * 4;
const BYTES: usize = (LIVE + KEYS * 4).next_multiple_of(4096);
const ALL: usize = BYTES + RING as usize;

/// What a queue pair's line on the board says; its words by number.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(super) enum Word {
    /// Its number, 0: none.
    Number,
    /// The peer's queue pair that it is connected to.
    Peer,
    /// [`READY`] if it receives.
    State,
    /// What the peer may do through it.
    Access,
    /// Its protection domain.
    Domain,
    /// Its receive queue.
    Receives,
    /// How long a peer waits that found no receive posted, in nanoseconds.
    RnrTimer,
    /// 1: it follows the standard's rules for what is wrong.
    Strict,
    /// The number of the message that it expects next: all before it have arrived.
    Expected,
    /// Which message was refused, if `Verdict` is not 0.
    Refused,
    /// Why: a code of [`super::receive`].
    Verdict,
}

/// The queue pair receives.
pub(super) const READY: u32 = 1;

/// One side's board.
#[derive(Debug)]
pub(super) struct Board {
    base: NonNull<u8>,
    region: Arc<Region>,
}

// SAFETY: the pointer is into the region, which may be shared and sent; the words are reached by atomic operations and
// the ring's bytes by raw copies.
unsafe impl Send for Board {}

impl Board {
    /// A board of one's own.
    pub(super) fn new() -> Result<Self, MemoryError> {
        let region = Region::memfd("shotline-board", ALL)?;
        // From now on nobody can map it for writing; our own mapping is there already.
        region.seal(true)?;
        let board = Self::over(region);
        board.long(0).store(MAGIC, Ordering::Release);
        Ok(board)
    }

    /// The peer's board. None if it is not one.
    pub(super) fn of_peer(fd: OwnedFd) -> Option<Self> {
        let region = Region::from_fd(fd, false).ok()?;
        let board = (region.len() == ALL).then(|| Self::over(region))?;
        (board.long(0).load(Ordering::Relaxed) == MAGIC).then_some(board)
    }

    fn over(region: Arc<Region>) -> Self {
        let base = NonNull::new(region.address(0, ALL)).expect("a mapping is not at 0");
        Self { base, region }
    }

    /// To hand over.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.region.fd().expect("a board is a memfd")
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at + 4 <= BYTES);
        // SAFETY: the callers' positions are constants plus checked numbers, so inside the board and aligned; the
        // mapping lives as long as `self`. A peer's board is only loaded from, four or eight bytes at once (`long`): on
        // the 64-bit targets that this builds for, both are plain loads, which read-only memory allows.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }
    #[inline]
    fn long(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at + 8 <= BYTES);
        // SAFETY: as for `word`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// Position of its writer in its ring.
    #[inline]
    pub(super) fn tail(&self) -> &AtomicU64 {
        self.long(TAIL)
    }
    /// Position of its reader in the other's ring.
    #[inline]
    pub(super) fn head(&self) -> &AtomicU64 {
        self.long(HEAD)
    }
    /// Odd: its owner wants to be woken, once per number.
    #[inline]
    pub(super) fn wake(&self) -> &AtomicU32 {
        self.word(WAKE)
    }
    /// Changes when a queue pair does.
    pub(super) fn changes(&self) -> &AtomicU32 {
        self.word(CHANGES)
    }
    /// A word of a queue pair's line.
    #[inline]
    pub(super) fn pair(&self, slot: usize, word: Word) -> &AtomicU32 {
        assert!(slot < QUEUES);
        self.word(PAIRS + slot * PAIR + 4 * word as usize)
    }
    /// Messages that a receive queue has taken and could take, since the beginning, modulo 2^32.
    #[inline]
    pub(super) fn receives(&self, slot: usize) -> &AtomicU32 {
        assert!(slot < QUEUES);
        self.word(RECEIVES + 4 * slot)
    }
    /// The remote key in a slot, 0 when it has ended.
    #[inline]
    pub(super) fn live(&self, slot: usize) -> &AtomicU32 {
        assert!(slot < KEYS);
        self.word(LIVE + 4 * slot)
    }
    /// An acquiring load that is allowed on memory mapped for reading only.
    #[inline]
    pub(super) fn seen(word: &AtomicU32) -> u32 {
        let value = word.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        value
    }

    /// The board's memory and the position in it of a byte of the ring, with how many bytes follow until its end.
    #[inline]
    pub(super) fn ring(&self, offset: u64) -> (&Region, usize, usize) {
        let offset = (offset & (RING - 1)) as usize;
        (&self.region, BYTES + offset, RING as usize - offset)
    }
}
