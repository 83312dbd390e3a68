//! Parts of scatter/gather lists, and payloads that have to be moved.

use super::Books;
use shotline_memory::{Protection, Sge};
use shotline_transport::{Landed, To};

/// Some bytes of a list of elements, piece by piece.
#[derive(Clone, Debug)]
pub(crate) struct Part<'a> {
    elements: std::slice::Iter<'a, Sge>,
    skip: u32,
    len: u32,
}

/// `len` bytes of a list from `offset`; fewer where the list is shorter.
pub(crate) fn part(elements: &[Sge], offset: u32, len: u32) -> Part<'_> {
    Part { elements: elements.iter(), skip: offset, len }
}

impl Iterator for Part<'_> {
    type Item = Sge;

    fn next(&mut self) -> Option<Sge> {
        while self.len > 0 {
            let sge = *self.elements.next()?;
            if self.skip >= sge.len {
                self.skip -= sge.len;
                continue;
            }
            let (offset, len) = (sge.offset + u64::from(self.skip), (sge.len - self.skip).min(self.len));
            (self.skip, self.len) = (0, self.len - len);
            return Some(Sge { offset, len, ..sge });
        }
        None
    }
}

impl Part<'_> {
    /// The place as a steer names it, if it is of at most two pieces and as long as asked for.
    pub fn place(mut self) -> To {
        let wanted = self.len;
        let pieces = [self.next().unwrap_or(Sge::EMPTY), self.next().unwrap_or(Sge::EMPTY)];
        let whole = wanted > 0 && pieces[0].len + pieces[1].len == wanted;
        if whole { To::Memory(pieces) } else { To::Scratch }
    }
}

/// Puts `len` bytes that have landed where they belong, if they are not there already. False: they lie nowhere that an
/// engine may read.
pub(super) fn settle(protection: &Protection, books: &mut Books, landed: Landed, len: u32, target: Part<'_>) -> bool {
    let scratch;
    let mut from = match &landed {
        Landed::Memory(pieces) => part(pieces, 0, len),
        Landed::Scratch(sge) => {
            scratch = [*sge];
            part(&scratch, 0, len)
        }
        Landed::Slot(_) => return len == 0,
    };
    if from.clone().map(|piece| piece.len).sum::<u32>() < len {
        return false;
    }
    if from.clone().eq(target.clone()) {
        return true;
    }
    let mut source = Sge::EMPTY;
    for mut piece in target {
        while piece.len > 0 {
            if source.len == 0 {
                let Some(next) = from.next() else { return true };
                source = next;
            }
            let now = source.len.min(piece.len);
            protection.regions().copy(Sge { len: now, ..source }, Sge { len: now, ..piece });
            source = Sge { offset: source.offset + u64::from(now), len: source.len - now, ..source };
            piece = Sge { offset: piece.offset + u64::from(now), len: piece.len - now, ..piece };
        }
    }
    books.bytes_copied += u64::from(len);
    true
}
