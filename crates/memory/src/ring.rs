//! Lock-free single-producer, single-consumer byte ring between two processes.
//!
//! The caller places the bytes and the two positions in shared memory: the tail where only the writer can write, the
//! head where only the reader can. Positions count bytes since the beginning and never wrap. Each end validates the
//! position of the other, which is untrusted: an impossible one is [`InvalidPosition`].
//!
//! Writer: 1. [`RingWriter::has_space`]; 2. write the bytes from [`RingWriter::offset`] on; 3. [`RingWriter::advance`];
//! 4. [`RingWriter::publish`]. Reader: 1. [`RingReader::available`]; 2. read from [`RingReader::offset`] on;
//! 3. [`RingReader::consume`]; 4. [`RingReader::publish`].

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The other end wrote a position that is impossible in a valid ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer wrote an invalid ring position")]
pub struct InvalidPosition;

/// Writing end (producer) of a ring.
///
/// Call order: [`Self::has_space`], write the bytes from [`Self::offset`] on, [`Self::advance`], [`Self::publish`].
///
/// ```
/// use shotline_memory::{RingReader, RingWriter};
/// use std::sync::atomic::AtomicU64;
///
/// # fn main() -> Result<(), shotline_memory::InvalidPosition> {
/// let (tail, head) = (AtomicU64::new(0), AtomicU64::new(0)); // in memory that both processes map
/// let (mut writer, mut reader) = (RingWriter::new(64), RingReader::new(64));
///
/// assert!(writer.has_space(&head, 48)?);
/// // Write 48 bytes from `writer.offset()` on.
/// writer.advance(48);
/// writer.publish(&tail);
///
/// assert_eq!(reader.available(&tail)?, 48);
/// // Read them from `reader.offset()` on.
/// reader.consume(48);
/// reader.publish(&head);
/// assert_eq!(writer.free_space(&head)?, 64);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct RingWriter {
    size: u64,
    tail: u64,
    /// Last value read of the reader's position; it is read again only when the free space does not suffice.
    head: u64,
    /// Last published tail.
    published: u64,
}

impl RingWriter {
    /// Creates the end of an empty ring of `size` bytes.
    ///
    /// # Panics
    /// If `size` is not a power of two.
    pub fn new(size: u64) -> Self {
        assert!(size.is_power_of_two(), "a ring of {size} bytes");
        Self { size, tail: 0, head: 0, published: 0 }
    }
    /// Returns the offset in the ring at which to write the next byte. From there, as many bytes as the [free
    /// space](Self::free_space) may be written, wrapping around at the end of the ring.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.tail & (self.size - 1)
    }
    /// Returns `true` if there is free space for `len` bytes. `head` is the reader's position.
    ///
    /// # Errors
    /// [`InvalidPosition`] if the reader's position moved backwards or passed the published tail.
    #[inline]
    pub fn has_space(&mut self, head: &AtomicU64, len: u64) -> Result<bool, InvalidPosition> {
        if self.size - (self.tail - self.head) < len {
            self.free_space(head)?;
        }
        Ok(self.size - (self.tail - self.head) >= len)
    }
    /// Returns the free space in bytes. `head` is the reader's position, which is always loaded;
    /// [`has_space`](Self::has_space) loads it only if the last value read does not suffice.
    ///
    /// # Errors
    /// [`InvalidPosition`] if the reader's position moved backwards or passed the published tail.
    #[inline]
    pub fn free_space(&mut self, head: &AtomicU64) -> Result<u64, InvalidPosition> {
        let seen = load(head);
        // A valid reader neither moves backwards nor passes the published tail.
        if seen < self.head || seen > self.published {
            return Err(InvalidPosition);
        }
        self.head = seen;
        Ok(self.size - (self.tail - self.head))
    }
    /// Advances the tail after `len` bytes were written. The reader sees them after [`publish`](Self::publish).
    #[inline]
    pub fn advance(&mut self, len: u64) {
        self.tail += len;
    }
    /// Publishes the tail to the reader. Returns `true` if it has moved since the last call.
    #[inline]
    pub fn publish(&mut self, tail: &AtomicU64) -> bool {
        let moved = self.published != self.tail;
        if moved {
            self.published = self.tail;
            tail.store(self.tail, Ordering::Release);
        }
        moved
    }
}

/// Reading end (consumer) of a ring.
#[derive(Debug)]
pub struct RingReader {
    size: u64,
    head: u64,
    /// Last value read of the writer's position; it is read again only when no bytes are left.
    tail: u64,
    /// Last published head.
    published: u64,
}

impl RingReader {
    /// Creates the end of an empty ring of `size` bytes.
    ///
    /// # Panics
    /// If `size` is not a power of two.
    pub fn new(size: u64) -> Self {
        assert!(size.is_power_of_two(), "a ring of {size} bytes");
        Self { size, head: 0, tail: 0, published: 0 }
    }
    /// Returns the offset in the ring of the next byte to read.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.head & (self.size - 1)
    }
    /// Returns a number of bytes that can be read; 0 only if the ring is empty. Bytes published since `tail`, the
    /// writer's position, was last loaded are not included until those before them are consumed.
    ///
    /// # Errors
    /// [`InvalidPosition`] if the writer's position moved backwards or is more than the ring's size after the published
    /// head.
    #[inline]
    pub fn available(&mut self, tail: &AtomicU64) -> Result<u64, InvalidPosition> {
        if self.tail == self.head {
            let seen = load(tail);
            // A valid writer neither moves backwards nor overtakes the published head by more than the ring's size.
            if seen < self.tail || seen - self.published > self.size {
                return Err(InvalidPosition);
            }
            self.tail = seen;
        }
        Ok(self.tail - self.head)
    }
    /// Advances the head by `len` bytes, at most to the last known tail.
    #[inline]
    pub fn consume(&mut self, len: u64) {
        self.head = self.tail.min(self.head + len);
    }
    /// Publishes the head, which frees the consumed bytes. Returns `true` if it has moved since the last call.
    #[inline]
    pub fn publish(&mut self, head: &AtomicU64) -> bool {
        let moved = self.published != self.head;
        if moved {
            self.published = self.head;
            head.store(self.head, Ordering::Release);
        }
        moved
    }
}

/// Acquire load that is allowed on read-only memory: a relaxed load followed by a fence (`std::sync::atomic`, "Atomic
/// accesses to read-only memory").
#[inline]
fn load(position: &AtomicU64) -> u64 {
    let value = position.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    value
}

/// Requests a wake-up by storing `value` before all later loads of this process. If the caller then finds the ring
/// empty, it may sleep. (Together with [`requested_wakeup`] this is Dekker's algorithm: at least one of the two ends
/// sees the store of the other.)
#[inline]
pub fn request_wakeup(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Returns the wake-up request of the other end, loaded after everything that this process has published.
#[inline]
pub fn requested_wakeup(word: &AtomicU32) -> u32 {
    fence(Ordering::SeqCst);
    word.load(Ordering::Relaxed)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_wrap_around_and_no_end_passes_the_other() {
        let (mut writer, mut reader) = (RingWriter::new(64), RingReader::new(64));
        let (tail, head) = (AtomicU64::new(0), AtomicU64::new(0));
        for round in 0..10 {
            assert_eq!(writer.has_space(&head, 65), Ok(false));
            assert_eq!((writer.has_space(&head, 48), writer.offset()), (Ok(true), round * 48 % 64));
            writer.advance(48);
            assert_eq!((writer.has_space(&head, 17), reader.available(&tail)), (Ok(false), Ok(0)));
            assert!(writer.publish(&tail) && !writer.publish(&tail));
            assert_eq!((reader.available(&tail), reader.offset()), (Ok(48), round * 48 % 64));
            reader.consume(48);
            assert!(reader.publish(&head));
        }
    }

    #[test]
    fn impossible_positions_are_refused() {
        let ends = || (RingWriter::new(64), RingReader::new(64));
        let (mut writer, mut reader) = ends();
        assert_eq!(writer.free_space(&AtomicU64::new(1)), Err(InvalidPosition));
        assert_eq!(reader.available(&AtomicU64::new(65)), Err(InvalidPosition));
        writer.advance(10);
        assert_eq!(writer.free_space(&AtomicU64::new(1)), Err(InvalidPosition));
        writer.publish(&AtomicU64::new(0));
        assert_eq!(writer.free_space(&AtomicU64::new(10)), Ok(64));
        assert_eq!(writer.free_space(&AtomicU64::new(9)), Err(InvalidPosition));
        assert_eq!(reader.available(&AtomicU64::new(10)), Ok(10));
        reader.consume(10);
        assert_eq!(reader.available(&AtomicU64::new(9)), Err(InvalidPosition));
        assert_eq!(reader.available(&AtomicU64::new(65)), Err(InvalidPosition));
        assert_eq!(reader.available(&AtomicU64::new(u64::MAX)), Err(InvalidPosition));
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p shotline-memory --lib`.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    struct Shared {
        cells: [UnsafeCell<u64>; 2],
        tail: AtomicU64,
        head: AtomicU64,
        wake_requested: AtomicU32,
    }
    // SAFETY: loom checks that no two threads touch a cell at once.
    unsafe impl Sync for Shared {}

    fn shared() -> Arc<Shared> {
        let cells = [UnsafeCell::new(0), UnsafeCell::new(0)];
        Arc::new(Shared { cells, tail: AtomicU64::new(0), head: AtomicU64::new(0), wake_requested: AtomicU32::new(0) })
    }

    #[test]
    fn no_byte_is_torn_lost_or_repeated() {
        loom::model(|| {
            let shared = shared();
            let other = Arc::clone(&shared);
            let writer = loom::thread::spawn(move || {
                let mut writer = RingWriter::new(2);
                for value in 1..=3 {
                    while !writer.has_space(&other.head, 1).unwrap() {
                        loom::thread::yield_now();
                    }
                    // SAFETY: the space is free, so the reader no longer accesses the cell.
                    other.cells[writer.offset() as usize].with_mut(|cell| unsafe { *cell = value });
                    writer.advance(1);
                    writer.publish(&other.tail);
                }
            });
            let mut reader = RingReader::new(2);
            for value in 1..=3 {
                while reader.available(&shared.tail).unwrap() == 0 {
                    loom::thread::yield_now();
                }
                // SAFETY: the value is available, so the writer no longer accesses the cell.
                let found = shared.cells[reader.offset() as usize].with(|cell| unsafe { *cell });
                assert_eq!(found, value);
                reader.consume(1);
                reader.publish(&shared.head);
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn reader_is_woken_if_it_sleeps_while_bytes_are_pending() {
        loom::model(|| {
            let shared = shared();
            let other = Arc::clone(&shared);
            let writer = loom::thread::spawn(move || {
                let mut writer = RingWriter::new(2);
                writer.advance(1);
                writer.publish(&other.tail);
                requested_wakeup(&other.wake_requested) == 1
            });
            let mut reader = RingReader::new(2);
            request_wakeup(&shared.wake_requested, 1);
            let sleeps = reader.available(&shared.tail).unwrap() == 0;
            let wakes = writer.join().unwrap();
            assert!(!sleeps || wakes, "the reader sleeps forever");
        });
    }
}
