//! One-sided operations over emulated paths, where a copy takes the time of its path.
//!
//! They are copied in parts, so that a call of a verb waits only about as long as a datagram of another provider may:
//! the remaining parts follow in later calls.

use super::keys::PeerKey;
use super::pair::Payload;
use shotline_memory::{PathDirection, Region, Regions};

/// Time, in ns, for which the copies of one call may occupy paths: as long as copies may run ahead of a path.
const TURN_NS: u64 = 100_000;
/// Length in bytes of the shortest part but the last, of which parts are multiples: the largest payload of a datagram.
const PART_BYTES: u64 = 4096;

/// Time that is left to the copies of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    left_ns: u64,
    /// The operation has waited for others: it was requested before the path was free.
    was_queued: bool,
}

impl Turn {
    /// Begins a call.
    pub(super) const fn new() -> Self {
        Self { left_ns: TURN_NS, was_queued: false }
    }
    /// Returns `true` if no more may be copied in this call.
    pub(super) const fn is_over(self) -> bool {
        self.left_ns == 0
    }

    /// Ends the copies of the call.
    const OVER: Self = Self { left_ns: 0, was_queued: false };

    /// Continues the turn with an operation that was just posted, or one of the queue.
    pub(super) const fn of_operation(self, was_queued: bool) -> Self {
        Self { was_queued, ..self }
    }

    /// Uses the time that `bytes` take of the `within` bytes that fit.
    fn after(self, bytes: u64, within: u64) -> Self {
        let used = u128::from(self.left_ns) * u128::from(bytes) / u128::from(within.max(1));
        let used = u64::try_from(used).unwrap_or(u64::MAX).max(1);
        Self { left_ns: self.left_ns.saturating_sub(used), ..self }
    }
}

/// A part that was copied.
pub(super) struct Part {
    pub(super) bytes: u64,
    /// What is left of the turn.
    pub(super) turn: Turn,
}

/// Returns `true` if all memory of the operation is mapped into this process: it is copied at once.
#[inline]
pub(super) fn is_direct(regions: &Regions, key: &PeerKey, payload: Payload<'_>) -> bool {
    let is_local = match payload {
        Payload::Inline(_) => true,
        Payload::Elements(elements) => elements.iter().all(|sge| regions.get(sge.region).is_mapped()),
    };
    is_local && key.region.is_mapped()
}

/// Copies the next part of a WRITE (`direction` is that of the peer's memory) or READ of `len` bytes, of which
/// `progress` are copied already. It is as long as the turn allows on the slowest of the paths.
#[cold]
pub(super) fn copy_part(
    regions: &Regions,
    (key, offset): (&PeerKey, usize),
    direction: PathDirection,
    payload: Payload<'_>,
    (progress, len): (u64, u64),
    turn: Turn,
) -> Part {
    if turn.is_over() {
        return Part { bytes: 0, turn };
    }
    let reverse = match direction {
        PathDirection::Write => PathDirection::Read,
        PathDirection::Read => PathDirection::Write,
    };
    let follows = turn.was_queued || progress > 0;
    let within = |region: &Region, direction| {
        let Some(path) = region.emulated_memory().map(|memory| memory.path()) else { return u64::MAX };
        if follows {
            path.follow(direction);
        }
        path.model().bytes_within(direction, turn.left_ns)
    };
    let elements = match payload {
        Payload::Inline(_) => &[][..],
        Payload::Elements(elements) => elements,
    };
    let local = elements.iter().map(|sge| within(regions.get(sge.region), reverse));
    let within = local.fold(within(&key.region, direction), u64::min);
    let bytes = (within - within % PART_BYTES).max(PART_BYTES).min(len - progress);
    copy(regions, (key, offset), direction, payload, (progress, bytes));
    let is_whole = progress + bytes == len;
    Part { bytes, turn: if is_whole { turn.after(bytes, within) } else { Turn::OVER } }
}

/// Copies `len` bytes of a payload, from byte `skip` on.
fn copy(
    regions: &Regions,
    (key, offset): (&PeerKey, usize),
    direction: PathDirection,
    payload: Payload<'_>,
    (mut skip, mut len): (u64, u64),
) {
    let mut offset = offset + skip as usize;
    match payload {
        Payload::Inline(bytes) => key.region.write(offset, &bytes[skip as usize..][..len as usize]),
        Payload::Elements(elements) => {
            for sge in elements {
                let from = skip.min(u64::from(sge.len));
                let piece = (u64::from(sge.len) - from).min(len);
                (skip, len) = (skip - from, len - piece);
                let (local, at, piece) = (regions.get(sge.region), (sge.offset + from) as usize, piece as usize);
                match direction {
                    _ if piece == 0 => {}
                    PathDirection::Write => key.region.copy_from(offset, local, at, piece),
                    PathDirection::Read => local.copy_from(at, &key.region, offset, piece),
                }
                offset += piece;
            }
        }
    }
}
