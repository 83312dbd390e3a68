//! The presence of the newest shots, in a ring that one thread overwrites and another reads, without a wait.

use shotline_store::shot::Shot;
use shotline_wire::shot::Presence;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Number of newest shots that are kept.
const KEPT: u64 = 1024;
const COMPLETE: u64 = 1 << 63;
const NUMBER: u64 = (1 << 48) - 1;
/// A slot without a mark has no valid check word.
const CHECK: u64 = 0x9E37_79B9_7F4A_7C15;

/// Presence of a shot's packets, as coarse as a picture needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShotMark {
    /// Index of the link.
    pub link: u8,
    /// Number of the shot, its lower 48 bits.
    pub number: u64,
    /// Every byte arrived and the trailer is valid.
    pub complete: bool,
    /// Bit `i` is set if all packets of the i-th of 64 equal parts of the shot have arrived.
    pub parts: u64,
}

impl ShotMark {
    pub(super) fn of(link: u8, shot: &Shot) -> Self {
        let presence = &shot.meta.presence;
        let parts = if presence.is_complete() { u64::MAX } else { parts(presence) };
        Self { link: link & 0x7F, number: shot.meta.number & NUMBER, complete: shot.meta.is_complete(), parts }
    }
}

/// Returns a bit for each of 64 parts of a shot. Shots of fewer packets have parts without a packet, which share the bit
/// of the packet they lie in.
fn parts(presence: &Presence) -> u64 {
    let packets = presence.packets().max(1);
    (0..64).fold(0, |bits, part| {
        let first = part * packets / 64;
        let end = ((part + 1) * packets / 64).max(first + 1);
        bits | u64::from((first..end).all(|index| presence.contains(index))) << part
    })
}

/// The ring.
#[derive(Debug)]
pub(super) struct Marks {
    /// A mark in two words, and a check word that shows whether both are of one mark.
    slots: Box<[[AtomicU64; 3]]>,
    /// Number of marks so far.
    written: AtomicU64,
    /// Number of the next mark to read.
    read: AtomicU64,
}

impl Default for Marks {
    fn default() -> Self {
        let slots = (0..KEPT).map(|_| Default::default()).collect();
        Self { slots, written: AtomicU64::new(0), read: AtomicU64::new(0) }
    }
}

impl Marks {
    fn slot(&self, index: u64) -> &[AtomicU64; 3] {
        &self.slots[(index % KEPT) as usize]
    }

    /// Adds a mark, in place of the oldest. Called by one thread only.
    pub(super) fn push(&self, mark: ShotMark) {
        let complete = if mark.complete { COMPLETE } else { 0 };
        let words = [complete | u64::from(mark.link) << 48 | mark.number, mark.parts];
        let written = self.written.load(Relaxed);
        let [first, second, check] = self.slot(written);
        first.store(words[0], Relaxed);
        second.store(words[1], Relaxed);
        check.store(words[0] ^ words[1] ^ CHECK, Relaxed);
        self.written.store(written + 1, Release);
    }

    /// Returns the next mark. Those that were overwritten before or while they were read are skipped. Calls of several
    /// threads at the same time may return a mark twice.
    pub(super) fn pop(&self) -> Option<ShotMark> {
        let written = self.written.load(Acquire);
        let mut index = self.read.load(Relaxed).max(written.saturating_sub(KEPT));
        while index < written {
            let [first, second, check] = self.slot(index).each_ref().map(|word| word.load(Relaxed));
            index += 1;
            if first ^ second ^ CHECK == check {
                self.read.store(index, Relaxed);
                let link = (first >> 48 & 0x7F) as u8;
                return Some(ShotMark { link, number: first & NUMBER, complete: first & COMPLETE != 0, parts: second });
            }
        }
        self.read.store(index, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_marks_are_kept() {
        let marks = Marks::default();
        assert_eq!(marks.pop(), None);
        let mark = |number: u64| ShotMark { link: 3, number, complete: number.is_multiple_of(2), parts: !number };
        (0..KEPT + 10).for_each(|number| marks.push(mark(number)));
        let read: Vec<_> = std::iter::from_fn(|| marks.pop()).collect();
        assert_eq!(read, (10..KEPT + 10).map(mark).collect::<Vec<_>>());
        marks.push(mark(7));
        assert_eq!((marks.pop(), marks.pop()), (Some(mark(7)), None));
    }

    #[test]
    fn a_reader_never_sees_parts_of_two_marks() {
        let marks = Marks::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..200_000 {
                    marks.push(ShotMark { link: 0, number, complete: true, parts: number * 3 });
                }
            });
            let mut last = 0;
            while last < 199_999 {
                let Some(mark) = marks.pop() else { continue };
                assert_eq!(mark.parts, mark.number * 3);
                last = mark.number;
            }
        });
    }
}
