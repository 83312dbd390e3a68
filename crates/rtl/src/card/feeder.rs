//! Source of packets on the packed bus.

use super::expected::Expected;
use super::packet::Packet;
use super::source::{Source, Used};
use super::sys::{Inputs, Outputs};
use shotline_random::SplitMix64;
use std::collections::VecDeque;

/// Blocks in a word.
pub(crate) const BLOCKS: usize = 8;

/// A word of the packed bus.
#[derive(Debug)]
struct Word {
    data: [u64; BLOCKS],
    /// The packet that begins in it, and its block.
    first: Option<(Packet, usize)>,
}

/// Puts packets on the packed bus, each at the first free block that the bus allows.
///
/// All bits that do not belong to a packet are random.
#[derive(Debug)]
pub struct Feeder {
    /// Probability, in 65536, that no word is offered in a clock.
    pub idle: u16,
    /// Maximum of free blocks before a packet; the number is random.
    pub max_gap: u8,
    random: SplitMix64,
    /// Packets with the first clock in which each may be sent.
    queue: VecDeque<(u64, Packet)>,
    /// The packet in progress, and its next block.
    current: Option<(Packet, usize)>,
    offered: Option<Word>,
    words: u64,
}

impl Feeder {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            idle: 0,
            max_gap: 0,
            random: SplitMix64::new(seed),
            queue: VecDeque::new(),
            current: None,
            offered: None,
            words: 0,
        }
    }

    /// Queues a packet that must not be sent before a clock.
    pub(crate) fn push(&mut self, from: u64, packet: Packet) {
        self.queue.push_back((from, packet));
    }

    /// Returns the number of packets that have not begun although they may.
    pub fn late(&self, clock: u64) -> usize {
        self.queue.partition_point(|&(from, _)| from <= clock)
    }

    /// Makes the next word, if there is one.
    fn word(&mut self, clock: u64) -> Option<Word> {
        let noise = self.random.next_u64();
        let mut word = Word { data: [0, 1, 2, 3, 4, 5, 6, 7].map(|lane| noise.rotate_left(lane * 7)), first: None };
        let free = self.fill(&mut word, 0);
        let is_due = self.queue.front().is_some_and(|&(from, _)| from <= clock);
        let block = free + self.random.below(u64::from(self.max_gap) + 1) as usize;
        if self.current.is_none() && is_due && block < BLOCKS {
            let (_, packet) = self.queue.pop_front()?;
            word.first = Some((packet, block));
            self.current = Some((packet, 0));
            self.fill(&mut word, block);
        }
        (free > 0 || word.first.is_some()).then_some(word)
    }

    /// Copies the packet in progress into a word, and returns the block after it.
    fn fill(&mut self, word: &mut Word, from: usize) -> usize {
        let Some((packet, next)) = self.current else { return from };
        let count = (packet.blocks() - next).min(BLOCKS - from);
        for block in 0..count {
            word.data[from + block] = packet.block(next + block);
        }
        let next = next + count;
        self.current = (next < packet.blocks()).then_some((packet, next));
        from + count
    }
}

impl Source for Feeder {
    fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.current.is_none() && self.offered.is_none()
    }

    fn words(&self) -> u64 {
        self.words
    }

    fn drive(&mut self, clock: u64, inputs: &mut Inputs) {
        if self.offered.is_none() && !(self.idle > 0 && self.random.below(1 << 16) < u64::from(self.idle)) {
            self.offered = self.word(clock);
        }
        let noise = self.random.next_u64();
        (inputs.first_block, inputs.channel, inputs.length) =
            (noise as u8 % BLOCKS as u8, (noise >> 8) as u8, (noise >> 50) as u16);
        let Some(word) = &self.offered else {
            inputs.first = noise >> 16 & 1 == 1;
            return;
        };
        inputs.valid = true;
        inputs.data = word.data;
        inputs.first = word.first.is_some();
        if let Some((packet, block)) = word.first {
            (inputs.first_block, inputs.channel, inputs.length) = (block as u8, packet.channel, packet.length);
        }
    }

    fn settle(&mut self, outputs: &Outputs) {
        if outputs.ready == 1 && self.offered.take().is_some() {
            self.words += 1;
        }
    }

    fn take(&mut self, expected: &mut Expected, used: &Used<'_>, count: usize) -> Result<(), String> {
        expected.take(used.memory, used.buffers, count, used.settings)
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::BLOCK;
    use super::*;

    /// Returns the number of words that packets need if they follow each other without a gap.
    fn words(lengths: impl Iterator<Item = u16>) -> usize {
        let mut end = 0_usize;
        let mut begun = None;
        for length in lengths {
            // At most one packet begins in a word.
            if begun == Some(end / BLOCKS) {
                end = end.next_multiple_of(BLOCKS);
            }
            begun = Some(end / BLOCKS);
            end += usize::from(length).div_ceil(BLOCK);
        }
        end.div_ceil(BLOCKS)
    }

    #[test]
    fn words_hold_each_packet_once_with_one_beginning() {
        let mut feeder = Feeder::new(1);
        let lengths = [1, 8, 9, 63, 64, 65, 76, 1, 1, 1, 16_383, 200, 40, 40];
        let packets = lengths.iter().zip(0..).map(|(&length, number)| Packet { channel: 3, number, length });
        packets.clone().for_each(|packet| feeder.push(0, packet));
        let (mut blocks, mut count) = (Vec::<u64>::new(), 0);
        let mut left = 0;
        while !feeder.is_empty() {
            let mut inputs = Inputs::default();
            feeder.drive(0, &mut inputs);
            assert!(inputs.valid);
            let first = if inputs.first { usize::from(inputs.first_block) } else { BLOCKS };
            let end = left.min(BLOCKS);
            assert!(first >= end);
            blocks.extend(&inputs.data[..end]);
            left -= end;
            if inputs.first {
                let length = usize::from(inputs.length).div_ceil(BLOCK);
                let now = length.min(BLOCKS - first);
                blocks.extend(&inputs.data[first..first + now]);
                left = length - now;
            }
            count += 1;
            feeder.settle(&Outputs { ready: 1, ..Outputs::default() });
        }
        let expected = packets.flat_map(|packet| (0..packet.blocks()).map(move |index| packet.block(index)));
        assert!(expected.eq(blocks));
        assert_eq!(count, words(lengths.into_iter()));
        assert_eq!(feeder.words(), count as u64);
    }
}
