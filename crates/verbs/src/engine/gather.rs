//! Ranges of scatter/gather lists, and copying of payloads that were not received at their destination.

use super::QpCounters;
use shotline_memory::{Protection, Sge};
use shotline_transport::{PayloadDestination, PayloadLocation};

/// Iterator over a byte range of a list of elements, one piece at a time.
#[derive(Clone, Debug)]
pub(crate) struct SgeRange<'a> {
    elements: std::slice::Iter<'a, Sge>,
    skip: u32,
    len: u32,
}

/// Returns the range of `len` bytes at `offset` of a list; shorter if the list ends before.
pub(crate) fn sge_range(elements: &[Sge], offset: u32, len: u32) -> SgeRange<'_> {
    SgeRange { elements: elements.iter(), skip: offset, len }
}

impl Iterator for SgeRange<'_> {
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

impl SgeRange<'_> {
    /// Returns the range as the destination for a steer; scratch memory if it has more than two pieces or is too short.
    pub fn destination(mut self) -> PayloadDestination {
        let wanted = self.len;
        let pieces = [self.next().unwrap_or(Sge::EMPTY), self.next().unwrap_or(Sge::EMPTY)];
        let whole = wanted > 0 && pieces[0].len + pieces[1].len == wanted;
        if whole { PayloadDestination::Memory(pieces) } else { PayloadDestination::Scratch }
    }
}

/// Length in bytes from which a part of a payload is written past the cache: its operation is a long one, so the
/// application reads it when the cache has other data.
const MIN_PAST_CACHE: usize = 8 << 10;

/// Received payload of a packet.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Where a transport has put it.
    Landed(PayloadLocation),
    /// Memory of the caller.
    Bytes(&'a [u8]),
}

/// Copies `len` received bytes to `target` unless they are already there. Returns `false` if they are in memory that an
/// engine cannot read.
pub(super) fn move_payload(
    protection: &Protection,
    counters: &mut QpCounters,
    payload: Payload<'_>,
    len: u32,
    target: SgeRange<'_>,
) -> bool {
    let scratch;
    let mut from = match &payload {
        Payload::Bytes(bytes) => return copy_bytes(protection, counters, bytes, len, target),
        Payload::Landed(PayloadLocation::Memory(pieces)) => sge_range(pieces, 0, len),
        Payload::Landed(PayloadLocation::Scratch(sge)) => {
            scratch = [*sge];
            sge_range(&scratch, 0, len)
        }
        Payload::Landed(PayloadLocation::Posted(_)) => return len == 0,
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
            let count = source.len.min(piece.len);
            protection.regions().copy(Sge { len: count, ..source }, Sge { len: count, ..piece });
            source = Sge { offset: source.offset + u64::from(count), len: source.len - count, ..source };
            piece = Sge { offset: piece.offset + u64::from(count), len: piece.len - count, ..piece };
        }
    }
    counters.bytes_copied += u64::from(len);
    true
}

/// Copies the first `len` of these bytes to `target`. Returns `false` if there are fewer.
fn copy_bytes(
    protection: &Protection,
    counters: &mut QpCounters,
    bytes: &[u8],
    len: u32,
    target: SgeRange<'_>,
) -> bool {
    let Some(mut bytes) = bytes.get(..len as usize) else { return false };
    for piece in target {
        let (part, rest) = bytes.split_at(bytes.len().min(piece.len as usize));
        let region = protection.regions().get(piece.region);
        if part.len() < MIN_PAST_CACHE {
            region.write(piece.offset as usize, part);
        } else {
            region.write_past_cache(piece.offset as usize, part);
        }
        bytes = rest;
    }
    counters.bytes_copied += u64::from(len);
    true
}
