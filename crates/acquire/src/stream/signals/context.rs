//! Context packets and packet counts: what samples mean, and which packets were never sent.

use shotline_memory::Buffer;
use shotline_wire::block::Description;
use shotline_wire::framing::SampleContext;
use shotline_wire::shot::Geometry;
use std::collections::VecDeque;
use std::ops::Range;

/// Maximum number of pending meanings, and of ranges of packets that were never sent: the oldest are discarded.
const MAX_RANGES: usize = 64;
/// Maximum number of blocks that a context may be ahead of its samples.
const MAX_BLOCKS_AHEAD: u64 = 64;
/// Modulus of packet counts.
const MODULUS: u64 = 16;

/// State of a stream from its context packets and packet counts.
#[derive(Debug, Default)]
pub(super) struct Context {
    /// Meaning of the block that was closed last.
    meaning: SampleContext,
    /// Newer meanings with the block from which on they apply, ascending.
    later: VecDeque<(u64, SampleContext)>,
    /// Position of the newest packet in the stream, and its count.
    newest: Option<(u64, u8)>,
    /// The newest block with a packet.
    block: Option<u64>,
    /// The newest block before which the sender reported lost samples.
    lost_before: Option<u64>,
    /// Positions of packets that were never sent, ascending.
    unsent: VecDeque<Range<u64>>,
    /// Number of packets in all of these ranges, including those discarded from `unsent`.
    packets_unsent: u64,
}

impl Context {
    pub(super) fn new(meaning: SampleContext) -> Self {
        Self { meaning, ..Self::default() }
    }

    /// Adds a context packet, which applies from block `from` on. A stamp far ahead of all received packets is
    /// invalid, and is ignored.
    pub(super) fn note_meaning(&mut self, from: u64, meaning: SampleContext, lost: bool) {
        if self.block.is_some_and(|newest| from > newest.saturating_add(MAX_BLOCKS_AHEAD)) {
            return;
        }
        let at = self.later.partition_point(|(other, _)| *other <= from);
        let older = at.checked_sub(1).map_or(self.meaning, |before| self.later[before].1);
        match at.checked_sub(1).map(|before| &mut self.later[before]) {
            Some((same, known)) if *same == from => *known = meaning.or(older),
            _ => self.later.insert(at, (from, meaning.or(older))),
        }
        if self.later.len() > MAX_RANGES {
            self.later.pop_front();
        }
        if lost {
            self.lost_before = self.lost_before.max(Some(from));
        }
    }

    /// Returns the meaning of a block's samples; blocks must be queried in order.
    pub(super) fn meaning_of(&mut self, block: u64) -> SampleContext {
        while let Some((_, meaning)) = self.later.front().copied().filter(|(from, _)| *from <= block) {
            self.meaning = meaning;
            self.later.pop_front();
        }
        self.meaning
    }

    /// Adds a packet of samples: of `block`, at `position` in the stream, with this count.
    ///
    /// Positions follow from stamps: the distance from the newest packet gives the number of packets missing in
    /// between. The counts give, modulo 16, how many of these were sent. Multiples of 16 packets are
    /// ambiguous: they count as never sent if the sender reported lost samples there.
    pub(super) fn note_count(&mut self, block: u64, position: u64, count: u8) {
        self.block = self.block.max(Some(block));
        let Some((before, count_before)) = self.newest else {
            self.newest = Some((position, count));
            return;
        };
        let Some(step) = position.checked_sub(before).filter(|step| *step > 0) else { return };
        self.newest = Some((position, count));
        let missing = step - 1;
        let sent = u64::from(count.wrapping_sub(count_before).wrapping_sub(1)) % MODULUS;
        let is_ambiguous = missing % MODULUS == sent;
        let unsent = match missing.checked_sub(sent) {
            Some(unsent) if unsent > 0 && (!is_ambiguous || self.lost_before == Some(block)) => unsent,
            _ => return,
        };
        // Packets that were sent and lost in the network are assumed to be the oldest.
        self.unsent.push_back(position - unsent..position);
        self.packets_unsent += unsent;
        if self.unsent.len() > MAX_RANGES {
            self.unsent.pop_front();
        }
    }

    /// Returns `true` if the packet at this position was never sent.
    pub(super) fn is_unsent(&self, position: u64) -> bool {
        self.unsent.iter().any(|range| range.contains(&position))
    }

    /// Returns the ranges of packets that were never sent.
    pub(super) fn unsent(&self) -> impl Iterator<Item = &Range<u64>> {
        self.unsent.iter()
    }

    /// Writes a block's description to its slot, in place of a trailer from the sender.
    pub(super) fn describe(&mut self, block: u64, geometry: &Geometry, buffer: &Buffer) -> SampleContext {
        let meaning = self.meaning_of(block);
        let description = Description {
            centre_hz: meaning.centre_hz.unwrap_or(0.0),
            overrun: self.packets_unsent / u64::from(geometry.packets()),
            ..Description::default()
        };
        buffer.write(geometry.trailer_offset(), &description.emit());
        meaning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(centre_hz: f64) -> SampleContext {
        SampleContext { centre_hz: Some(centre_hz), locked: None }
    }

    #[test]
    fn a_meaning_applies_from_its_block_to_the_next_meaning() {
        let mut context = Context::new(at(1.0));
        context.note_meaning(5, at(5.0), false);
        context.note_meaning(3, SampleContext { centre_hz: None, locked: Some(true) }, false);
        let found: Vec<_> = (0..7).map(|block| context.meaning_of(block)).collect();
        assert_eq!(
            found.iter().map(|meaning| meaning.centre_hz.unwrap()).collect::<Vec<_>>(),
            [1., 1., 1., 1., 1., 5., 5.]
        );
        assert_eq!(found.iter().map(|meaning| meaning.locked).collect::<Vec<_>>()[2..4], [None, Some(true)]);
    }

    #[test]
    fn repeated_meanings_are_merged_and_far_stamps_ignored() {
        let mut context = Context::new(at(1.0));
        context.note_count(2, 10, 0);
        context.note_meaning(3, at(3.0), false);
        for _ in 0..10 * MAX_RANGES {
            context.note_meaning(4, at(4.0), false);
        }
        context.note_meaning(2 + MAX_BLOCKS_AHEAD + 1, at(9.0), true);
        assert_eq!((context.later.len(), context.lost_before), (2, None));
        assert_eq!([2, 3, 4, 1000].map(|block| context.meaning_of(block).centre_hz), [1.0, 3.0, 4.0, 4.0].map(Some));
    }

    /// Returns the ranges found to be never sent, in blocks of `packets` packets of which some are not sent and others
    /// are lost.
    fn unsent(packets: u64, unsent: Range<u64>, lost: Range<u64>, reports: bool) -> Vec<(u64, u64)> {
        let (mut context, mut count) = (Context::default(), 14_u8);
        for position in 0..10 * packets {
            if unsent.contains(&position) {
                continue;
            }
            if reports && position == unsent.end {
                context.note_meaning(position / packets, SampleContext::default(), true);
            }
            count = (count + 1) % 16;
            if !lost.contains(&position) {
                context.note_count(position / packets, position, count);
            }
        }
        context.unsent().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn counts_distinguish_unsent_from_lost_packets() {
        for lost in [0..0, 7..8, 7..23, 7..40] {
            assert_eq!(unsent(5, 0..0, lost, false), [], "all of them were sent");
        }
        for lost in [0..0, 2..4, 38..41] {
            assert_eq!(unsent(5, 10..20, lost, false), [(10, 20)]);
        }
        // With adjacent losses, the number of packets never sent is exact modulo 16.
        assert_eq!(unsent(5, 10..20, 8..10, false), [(10, 20)]);
        assert_eq!(unsent(5, 10..20, 20..23, false), [(13, 23)]);
    }

    #[test]
    fn reported_losses_resolve_ambiguous_counts() {
        assert_eq!(unsent(16, 16..48, 0..0, true), [(16, 48)]);
        assert_eq!(unsent(16, 16..48, 0..0, false), []);
        assert_eq!(unsent(16, 16..48, 5..7, true), [(16, 48)]);
    }

    #[test]
    fn reordered_packets_are_no_losses() {
        let mut context = Context::default();
        for (position, count) in [(0, 0), (2, 2), (1, 1), (3, 3), (3, 3), (4, 4)] {
            context.note_count(0, position, count);
        }
        assert_eq!(context.unsent().count(), 0);
    }
}
