//! The board: state that an endpoint publishes to its peer, in shared memory that only the endpoint can write.
//!
//! Each side has one board and maps the other's read-only, which the kernel enforces by the seal `F_SEAL_FUTURE_WRITE`:
//! a peer cannot change this side's state. Values from the peer's board are read once, and masked or checked.

use rustix::fd::{BorrowedFd, OwnedFd};
use shotline_memory::{MemoryError, Region};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Maximum number of queue pairs, and of receive queues, of an endpoint.
pub(super) const MAX_QUEUES: usize = 2048;
/// Maximum number of remote keys of an endpoint.
pub(super) const MAX_KEYS: usize = 16_384;
/// Size of the message ring in bytes.
pub(super) const RING_BYTES: u64 = 1 << 20;

/// Identifies the memory as a board, and its version.
const MAGIC: u64 = u64::from_be_bytes(*b"shtlShm2");

// Layout of the board: offsets and sizes in bytes. Frequently written words have a cache line each. The ring follows
// it.
const TAIL: usize = 64;
const HEAD: usize = 128;
const WAKE: usize = 192;
const CHANGES: usize = 256;
const PAIRS: usize = 4096;
const PAIR_BYTES: usize = 64;
const RECEIVES: usize = PAIRS + MAX_QUEUES * PAIR_BYTES;
const LIVE: usize = RECEIVES + MAX_QUEUES * 4;
const BOARD_BYTES: usize = (LIVE + MAX_KEYS * 4).next_multiple_of(4096);
const TOTAL_BYTES: usize = BOARD_BYTES + RING_BYTES as usize;

/// Words of a queue pair's line (64 bytes) on the board.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(super) enum Word {
    /// Number of the queue pair; 0 if the line is unused.
    Number,
    /// Number of the connected queue pair of the peer.
    Peer,
    /// [`READY`] if it can receive.
    State,
    /// Access rights of the peer through it.
    Access,
    /// Its protection domain.
    Domain,
    /// Its receive queue.
    Receives,
    /// RNR timer in nanoseconds: a sender that finds no receive posted waits for this time per RNR retry.
    RnrTimer,
    /// 1 if it is strict: invalid operations of the peer put it in its error state, as the standard requires.
    Strict,
    /// Sequence number of the next expected message: all earlier ones have arrived.
    Expected,
    /// Sequence number of the refused message, if `RefusalCode` is not 0.
    Refused,
    /// Reason of the refusal, a code of [`super::receive`].
    RefusalCode,
}

/// Value of [`Word::State`] if the queue pair can receive.
pub(super) const READY: u32 = 1;

/// The board of one side.
#[derive(Debug)]
pub(super) struct Board {
    base: NonNull<u8>,
    region: Arc<Region>,
}

// SAFETY: the pointer is into the region, which may be shared and sent; the words are accessed by atomic operations and
// the ring's bytes by raw copies.
unsafe impl Send for Board {}

impl Board {
    /// Creates the board of this side.
    pub(super) fn new() -> Result<Self, MemoryError> {
        let region = Region::memfd("shotline-board", TOTAL_BYTES)?;
        // From now on it cannot be mapped for writing; our own mapping exists already.
        region.seal(true)?;
        let board = Self::over(region);
        board.long(0).store(MAGIC, Ordering::Release);
        Ok(board)
    }

    /// Maps the peer's board. Returns `None` if the memory is not a board.
    pub(super) fn of_peer(fd: OwnedFd) -> Option<Self> {
        let region = Region::from_fd(fd, false).ok()?;
        let board = (region.len() == TOTAL_BYTES).then(|| Self::over(region))?;
        (board.long(0).load(Ordering::Relaxed) == MAGIC).then_some(board)
    }

    fn over(region: Arc<Region>) -> Self {
        let base = NonNull::new(region.address(0, TOTAL_BYTES)).expect("a mapping is not at 0");
        Self { base, region }
    }

    /// Returns the file descriptor, to be passed to the peer.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.region.fd().expect("a board is a memfd")
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset + 4 <= BOARD_BYTES);
        // SAFETY: the callers' offsets are constants plus checked indices, so in bounds and aligned; the mapping lives
        // as long as `self`. A peer's board is only loaded from, four or eight bytes at once (`long`): on the 64-bit
        // targets that this builds for, both are plain loads, which read-only memory allows.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }
    #[inline]
    fn long(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset + 8 <= BOARD_BYTES);
        // SAFETY: as for `word`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Returns the position of this side's writer in its ring.
    #[inline]
    pub(super) fn tail(&self) -> &AtomicU64 {
        self.long(TAIL)
    }
    /// Returns the position of this side's reader in the other's ring.
    #[inline]
    pub(super) fn head(&self) -> &AtomicU64 {
        self.long(HEAD)
    }
    /// Returns the wake-up word: odd while the owner requests a wake-up, at most one per value.
    #[inline]
    pub(super) fn wake(&self) -> &AtomicU32 {
        self.word(WAKE)
    }
    /// Returns a counter that is incremented when a queue pair changes.
    pub(super) fn changes(&self) -> &AtomicU32 {
        self.word(CHANGES)
    }
    /// Returns a word of a queue pair's line.
    #[inline]
    pub(super) fn pair(&self, slot: usize, word: Word) -> &AtomicU32 {
        assert!(slot < MAX_QUEUES);
        self.word(PAIRS + slot * PAIR_BYTES + 4 * word as usize)
    }
    /// Returns the number of messages that were counted against a receive queue since its creation, plus the number of
    /// receives posted now, modulo 2^32.
    #[inline]
    pub(super) fn receives(&self, slot: usize) -> &AtomicU32 {
        assert!(slot < MAX_QUEUES);
        self.word(RECEIVES + 4 * slot)
    }
    /// Returns the valid remote key in a slot; 0 if there is none.
    #[inline]
    pub(super) fn live(&self, slot: usize) -> &AtomicU32 {
        assert!(slot < MAX_KEYS);
        self.word(LIVE + 4 * slot)
    }
    /// Loads a word with acquire ordering, by a relaxed load and a fence.
    #[inline]
    pub(super) fn load(word: &AtomicU32) -> u32 {
        let value = word.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        value
    }

    /// Returns the region, the offset in it of this position in the ring, and the number of bytes until the ring's end.
    #[inline]
    pub(super) fn ring(&self, offset: u64) -> (&Region, usize, usize) {
        let offset = (offset & (RING_BYTES - 1)) as usize;
        (&self.region, BOARD_BYTES + offset, RING_BYTES as usize - offset)
    }
}
