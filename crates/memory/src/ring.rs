//! The two ends of a ring of bytes between two processes: one writes, one reads, nobody locks.
//!
//! The bytes and the two positions lie in shared memory, wherever the user has put them: the writer's position (the
//! tail) where only the writer writes, the reader's (the head) where only the reader does. Positions count bytes since
//! the beginning and never wrap. Each end believes nothing of the other's: a position that cannot be is [`Broken`].

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The other end wrote a position that no honest one can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other end of the ring wrote an impossible position")]
pub struct Broken;

/// The writing end of a ring.
#[derive(Debug)]
pub struct RingWriter {
    size: u64,
    tail: u64,
    /// The reader's position when it was looked at last; it is looked at again only when room runs out.
    head: u64,
    published: u64,
}

impl RingWriter {
    /// An empty ring of `size` bytes.
    ///
    /// # Panics
    /// If `size` is no power of two.
    pub fn new(size: u64) -> Self {
        assert!(size.is_power_of_two(), "a ring of {size} bytes");
        Self { size, tail: 0, head: 0, published: 0 }
    }
    /// Where the next byte goes, from the ring's beginning. From there on, as many bytes as there is
    /// [room](Self::room) may be written, going round at the ring's end.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.tail & (self.size - 1)
    }
    /// Whether there is room for `len` bytes. `head` is the reader's position.
    #[inline]
    pub fn has_room(&mut self, head: &AtomicU64, len: u64) -> Result<bool, Broken> {
        if self.size - (self.tail - self.head) < len {
            self.room(head)?;
        }
        Ok(self.size - (self.tail - self.head) >= len)
    }
    /// Bytes that there is room for now.
    #[inline]
    pub fn room(&mut self, head: &AtomicU64) -> Result<u64, Broken> {
        let seen = load(head);
        // The reader neither goes back nor passes us.
        if seen < self.head || seen > self.published {
            return Err(Broken);
        }
        self.head = seen;
        Ok(self.size - (self.tail - self.head))
    }
    /// `len` bytes have been written; the reader does not see them yet.
    #[inline]
    pub fn wrote(&mut self, len: u64) {
        self.tail += len;
    }
    /// Shows the reader all that was written. Returns whether there was anything.
    #[inline]
    pub fn publish(&mut self, tail: &AtomicU64) -> bool {
        let news = self.published != self.tail;
        if news {
            self.published = self.tail;
            tail.store(self.tail, Ordering::Release);
        }
        news
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub struct RingReader {
    size: u64,
    head: u64,
    tail: u64,
    published: u64,
}

impl RingReader {
    /// An empty ring of `size` bytes.
    ///
    /// # Panics
    /// If `size` is no power of two.
    pub fn new(size: u64) -> Self {
        assert!(size.is_power_of_two(), "a ring of {size} bytes");
        Self { size, head: 0, tail: 0, published: 0 }
    }
    /// Where the next byte is, from the ring's beginning.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.head & (self.size - 1)
    }
    /// Bytes that can be read now. `tail` is the writer's position.
    #[inline]
    pub fn available(&mut self, tail: &AtomicU64) -> Result<u64, Broken> {
        if self.tail == self.head {
            let seen = load(tail);
            // The writer neither goes back nor laps us.
            if seen < self.tail || seen - self.published > self.size {
                return Err(Broken);
            }
            self.tail = seen;
        }
        Ok(self.tail - self.head)
    }
    /// `len` of the available bytes are no longer needed.
    #[inline]
    pub fn read(&mut self, len: u64) {
        self.head = self.tail.min(self.head + len);
    }
    /// Gives the writer the room of all that was read. Returns whether there was any.
    #[inline]
    pub fn publish(&mut self, head: &AtomicU64) -> bool {
        let news = self.published != self.head;
        if news {
            self.published = self.head;
            head.store(self.head, Ordering::Release);
        }
        news
    }
}

/// An acquiring load that is allowed on memory mapped for reading only: relaxed, with a fence behind it
/// (`std::sync::atomic`, "Atomic accesses to read-only memory").
#[inline]
fn load(position: &AtomicU64) -> u64 {
    let value = position.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    value
}

/// Says "wake me" after everything this process has looked at so far, and before all that it looks at next: whoever
/// then finds nothing may sleep. (With [`wanted_after`] Dekker's algorithm: one of the two sees the other.)
#[inline]
pub fn asleep_after(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// What the other end asks for, seen after all that this process has published so far.
#[inline]
pub fn wanted_after(word: &AtomicU32) -> u32 {
    fence(Ordering::SeqCst);
    word.load(Ordering::Relaxed)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_round_and_neither_end_passes_the_other() {
        let (mut writer, mut reader) = (RingWriter::new(64), RingReader::new(64));
        let (tail, head) = (AtomicU64::new(0), AtomicU64::new(0));
        for round in 0..10 {
            assert_eq!(writer.has_room(&head, 65), Ok(false));
            assert_eq!((writer.has_room(&head, 48), writer.offset()), (Ok(true), round * 48 % 64));
            writer.wrote(48);
            assert_eq!((writer.has_room(&head, 17), reader.available(&tail)), (Ok(false), Ok(0)));
            assert!(writer.publish(&tail) && !writer.publish(&tail));
            assert_eq!((reader.available(&tail), reader.offset()), (Ok(48), round * 48 % 64));
            reader.read(48);
            assert!(reader.publish(&head));
        }
    }

    #[test]
    fn positions_that_cannot_be_are_refused() {
        let ends = || (RingWriter::new(64), RingReader::new(64));
        let (mut writer, mut reader) = ends();
        assert_eq!(writer.room(&AtomicU64::new(1)), Err(Broken));
        assert_eq!(reader.available(&AtomicU64::new(65)), Err(Broken));
        writer.wrote(10);
        assert_eq!(writer.room(&AtomicU64::new(1)), Err(Broken));
        writer.publish(&AtomicU64::new(0));
        assert_eq!(writer.room(&AtomicU64::new(10)), Ok(64));
        assert_eq!(writer.room(&AtomicU64::new(9)), Err(Broken));
        assert_eq!(reader.available(&AtomicU64::new(10)), Ok(10));
        reader.read(10);
        assert_eq!(reader.available(&AtomicU64::new(9)), Err(Broken));
        assert_eq!(reader.available(&AtomicU64::new(65)), Err(Broken));
        assert_eq!(reader.available(&AtomicU64::new(u64::MAX)), Err(Broken));
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
        wants: AtomicU32,
    }
    // SAFETY: loom checks that no two threads touch a cell at once.
    unsafe impl Sync for Shared {}

    fn shared() -> Arc<Shared> {
        let cells = [UnsafeCell::new(0), UnsafeCell::new(0)];
        Arc::new(Shared { cells, tail: AtomicU64::new(0), head: AtomicU64::new(0), wants: AtomicU32::new(0) })
    }

    #[test]
    fn no_interleaving_tears_loses_or_repeats_a_byte() {
        loom::model(|| {
            let shared = shared();
            let other = Arc::clone(&shared);
            let writer = loom::thread::spawn(move || {
                let mut writer = RingWriter::new(2);
                for value in 1..=3 {
                    while !writer.has_room(&other.head, 1).unwrap() {
                        loom::thread::yield_now();
                    }
                    // SAFETY: there is room, so the reader is done with the cell.
                    other.cells[writer.offset() as usize].with_mut(|cell| unsafe { *cell = value });
                    writer.wrote(1);
                    writer.publish(&other.tail);
                }
            });
            let mut reader = RingReader::new(2);
            for value in 1..=3 {
                while reader.available(&shared.tail).unwrap() == 0 {
                    loom::thread::yield_now();
                }
                // SAFETY: it is available, so the writer is done with the cell.
                let found = shared.cells[reader.offset() as usize].with(|cell| unsafe { *cell });
                assert_eq!(found, value);
                reader.read(1);
                reader.publish(&shared.head);
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn no_interleaving_lets_the_reader_sleep_over_a_byte_without_being_woken() {
        loom::model(|| {
            let shared = shared();
            let other = Arc::clone(&shared);
            let writer = loom::thread::spawn(move || {
                let mut writer = RingWriter::new(2);
                writer.wrote(1);
                writer.publish(&other.tail);
                wanted_after(&other.wants) == 1
            });
            let mut reader = RingReader::new(2);
            asleep_after(&shared.wants, 1);
            let sleeps = reader.available(&shared.tail).unwrap() == 0;
            let wakes = writer.join().unwrap();
            assert!(!sleeps || wakes, "asleep for ever");
        });
    }
}
