//! Packets of context and packet counts, where no trailer says it: what samples mean, and which packets were never sent.

use shotline_memory::Buffer;
use shotline_wire::block::Description;
use shotline_wire::framing::Meaning;
use shotline_wire::shot::Geometry;
use std::collections::VecDeque;
use std::ops::Range;

/// Meanings of blocks to come, and ranges that were left out, at most: the oldest go first.
const MOST: usize = 64;
/// Blocks that a context may be ahead of its samples.
const NEAR: u64 = 64;
/// Packet counts are modulo this.
const MODULUS: u64 = 16;

/// What packets of context and counts have said of a stream.
#[derive(Debug, Default)]
pub(super) struct Context {
    /// Of the block that was closed last.
    meaning: Meaning,
    /// From which block on something newer is true, ascending.
    later: VecDeque<(u64, Meaning)>,
    /// The newest packet by its position in the stream, and its count.
    newest: Option<(u64, u8)>,
    /// The newest block of which a packet has come.
    block: Option<u64>,
    /// The newest block before which the sender says that it has lost samples.
    lost_before: Option<u64>,
    /// Packets that were never sent, by their positions, ascending.
    left_out: VecDeque<Range<u64>>,
    /// Number of packets in all of these ranges, those that `left_out` has forgotten included.
    packets_left_out: u64,
}

impl Context {
    pub(super) fn new(meaning: Meaning) -> Self {
        Self { meaning, ..Self::default() }
    }

    /// A packet of context: what it says is true from block `from` on. A stamp that is far from what has come is no time
    /// of this stream, and is not believed.
    pub(super) fn note_meaning(&mut self, from: u64, meaning: Meaning, lost: bool) {
        if self.block.is_some_and(|newest| from > newest.saturating_add(NEAR)) {
            return;
        }
        let at = self.later.partition_point(|(other, _)| *other <= from);
        let older = at.checked_sub(1).map_or(self.meaning, |before| self.later[before].1);
        match at.checked_sub(1).map(|before| &mut self.later[before]) {
            Some((same, known)) if *same == from => *known = meaning.or(older),
            _ => self.later.insert(at, (from, meaning.or(older))),
        }
        if self.later.len() > MOST {
            self.later.pop_front();
        }
        if lost {
            self.lost_before = self.lost_before.max(Some(from));
        }
    }

    /// What the samples of a block mean; blocks are asked for in their order.
    pub(super) fn meaning_of(&mut self, block: u64) -> Meaning {
        while let Some((_, meaning)) = self.later.front().copied().filter(|(from, _)| *from <= block) {
            self.meaning = meaning;
            self.later.pop_front();
        }
        self.meaning
    }

    /// A packet of samples: of `block`, at `position` in the stream, with this count.
    ///
    /// Positions come from stamps: how far one is behind the newest says how many packets are missing between them. The
    /// counts say, modulo 16, how many of these were sent. Where that leaves open whether the sender left out a multiple
    /// of 16, it did if it says that it has lost samples there.
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
        let open = missing % MODULUS == sent;
        let left_out = match missing.checked_sub(sent) {
            Some(left_out) if left_out > 0 && (!open || self.lost_before == Some(block)) => left_out,
            _ => return,
        };
        // What was sent and lost on the way is taken to be the oldest.
        self.left_out.push_back(position - left_out..position);
        self.packets_left_out += left_out;
        if self.left_out.len() > MOST {
            self.left_out.pop_front();
        }
    }

    /// Whether the packet at this position was never sent.
    pub(super) fn is_left_out(&self, position: u64) -> bool {
        self.left_out.iter().any(|range| range.contains(&position))
    }

    /// The ranges of packets that were never sent.
    pub(super) fn left_out(&self) -> impl Iterator<Item = &Range<u64>> {
        self.left_out.iter()
    }

    /// Writes a block's description to its slot, as the trailer that the sender did not send.
    pub(super) fn describe(&mut self, block: u64, geometry: &Geometry, buffer: &Buffer) -> Meaning {
        let meaning = self.meaning_of(block);
        let description = Description {
            centre_hz: meaning.centre_hz.unwrap_or(0.0),
            overrun: self.packets_left_out / u64::from(geometry.packets()),
            ..Description::default()
        };
        buffer.write(geometry.trailer_offset(), &description.emit());
        meaning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(centre_hz: f64) -> Meaning {
        Meaning { centre_hz: Some(centre_hz), locked: None }
    }

    #[test]
    fn a_meaning_holds_from_its_block_until_the_next_one() {
        let mut context = Context::new(at(1.0));
        context.note_meaning(5, at(5.0), false);
        context.note_meaning(3, Meaning { centre_hz: None, locked: Some(true) }, false);
        let found: Vec<_> = (0..7).map(|block| context.meaning_of(block)).collect();
        assert_eq!(
            found.iter().map(|meaning| meaning.centre_hz.unwrap()).collect::<Vec<_>>(),
            [1., 1., 1., 1., 1., 5., 5.]
        );
        assert_eq!(found.iter().map(|meaning| meaning.locked).collect::<Vec<_>>()[2..4], [None, Some(true)]);
    }

    #[test]
    fn what_is_told_often_takes_no_more_room_and_a_stamp_from_far_away_is_not_believed() {
        let mut context = Context::new(at(1.0));
        context.note_count(2, 10, 0);
        context.note_meaning(3, at(3.0), false);
        for _ in 0..10 * MOST {
            context.note_meaning(4, at(4.0), false);
        }
        context.note_meaning(2 + NEAR + 1, at(9.0), true);
        assert_eq!((context.later.len(), context.lost_before), (2, None));
        assert_eq!([2, 3, 4, 1000].map(|block| context.meaning_of(block).centre_hz), [1.0, 3.0, 4.0, 4.0].map(Some));
    }

    /// What is left out when of a stream of blocks of `packets` some are never sent and others lost.
    fn left_out(packets: u64, unsent: Range<u64>, lost: Range<u64>, tells: bool) -> Vec<(u64, u64)> {
        let (mut context, mut count) = (Context::default(), 14_u8);
        for position in 0..10 * packets {
            if unsent.contains(&position) {
                continue;
            }
            if tells && position == unsent.end {
                context.note_meaning(position / packets, Meaning::default(), true);
            }
            count = (count + 1) % 16;
            if !lost.contains(&position) {
                context.note_count(position / packets, position, count);
            }
        }
        context.left_out().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn what_was_never_sent_is_told_from_what_was_lost_by_the_counts() {
        for lost in [0..0, 7..8, 7..23, 7..40] {
            assert_eq!(left_out(5, 0..0, lost, false), [], "all of them were sent");
        }
        for lost in [0..0, 2..4, 38..41] {
            assert_eq!(left_out(5, 10..20, lost, false), [(10, 20)]);
        }
        // Losses next to it: how many were never sent is exact, modulo 16.
        assert_eq!(left_out(5, 10..20, 8..10, false), [(10, 20)]);
        assert_eq!(left_out(5, 10..20, 20..23, false), [(13, 23)]);
    }

    #[test]
    fn where_counts_leave_it_open_the_senders_word_counts() {
        assert_eq!(left_out(16, 16..48, 0..0, true), [(16, 48)]);
        assert_eq!(left_out(16, 16..48, 0..0, false), []);
        assert_eq!(left_out(16, 16..48, 5..7, true), [(16, 48)]);
    }

    #[test]
    fn packets_out_of_order_are_not_taken_for_losses() {
        let mut context = Context::default();
        for (position, count) in [(0, 0), (2, 2), (1, 1), (3, 3), (3, 3), (4, 4)] {
            context.note_count(0, position, count);
        }
        assert_eq!(context.left_out().count(), 0);
    }
}
