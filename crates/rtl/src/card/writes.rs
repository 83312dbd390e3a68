//! Posted writes of the module: their payload comes on another port, in lanes.

use super::addresses::{channel_at, is_report};
use super::dma::Dma;
use super::feeder::BLOCKS;
use super::held::Held;
use super::memory::{Memory, REFUSED};
use super::packet::BLOCK;
use super::sys::{Inputs, Outputs};
use shotline_random::SplitMix64;
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// What the bus did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write of payload.
    Write {
        /// Channel of the write.
        channel: usize,
        /// First address.
        address: u64,
        /// Bytes.
        length: usize,
    },
    /// A write of a report.
    Report {
        /// Channel of the report.
        channel: usize,
        /// Its address.
        address: u64,
        /// Its contents.
        value: u64,
    },
    /// An interrupt.
    Interrupt {
        /// Channel of the interrupt.
        channel: usize,
    },
}

impl Event {
    /// Returns the clocks that it takes on a bus of 64 bytes a clock.
    fn clocks(&self) -> u64 {
        match *self {
            Self::Write { length, .. } => length.div_ceil(64) as u64,
            Self::Report { .. } => 1,
            Self::Interrupt { .. } => 0,
        }
    }

    /// Returns the channel.
    pub fn channel(&self) -> usize {
        match *self {
            Self::Write { channel, .. } | Self::Report { channel, .. } | Self::Interrupt { channel } => channel,
        }
    }
}

/// A notice to the module, and the first clock in which it may be given.
#[derive(Debug)]
pub(crate) struct Notice {
    pub due: u64,
    pub kind: u8,
    pub channel: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    event: Event,
    block: usize,
}

/// The writes in flight, in order.
#[derive(Debug)]
pub(crate) struct Writes {
    /// Maximum length of a write.
    pub max_write: usize,
    /// Clocks from a slot to its write.
    pub latency: RangeInclusive<u64>,
    pub notices: VecDeque<Notice>,
    /// Bytes of payload whose slots were accepted, and bytes of the blocks that were accepted.
    pub payload: (u64, u64),
    /// First clock in which a bus of 64 bytes a clock has sent all writes.
    sent: u64,
    /// `None` in memory without a layout.
    channels: Option<usize>,
    random: SplitMix64,
    lanes: [VecDeque<u64>; BLOCKS],
    slots: VecDeque<(u64, Slot)>,
    held_data: Held<([u64; BLOCKS], u8)>,
    held_slots: Held<[Option<Slot>; 2]>,
}

impl Writes {
    pub fn new(channels: Option<usize>, seed: u64) -> Self {
        Self {
            max_write: 256,
            latency: 0..=40,
            notices: VecDeque::new(),
            payload: (0, 0),
            sent: 0,
            channels,
            random: SplitMix64::new(seed),
            lanes: Default::default(),
            slots: VecDeque::new(),
            held_data: Held::default(),
            held_slots: Held::default(),
        }
    }

    /// Returns `true` if writes or notices are in flight.
    pub fn is_busy(&self) -> bool {
        !(self.slots.is_empty() && self.notices.is_empty())
    }

    /// Returns `true` if a bus of 64 bytes a clock sends earlier writes.
    pub fn is_sending(&self, clock: u64) -> bool {
        clock < self.sent
    }

    /// Returns the number of blocks without a write.
    pub fn excess(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
    }

    /// Takes payload and slots of this clock.
    ///
    /// # Errors
    /// If a slot is against the rules of the interface.
    pub fn settle(&mut self, clock: u64, inputs: &Inputs, outputs: &Outputs) -> Result<(), String> {
        let data = (outputs.data_valid == 1).then_some((outputs.data, outputs.data_keep));
        self.held_data.check("word of payload", data, inputs.data_ready)?;
        if let Some((data, keep)) = data.filter(|_| inputs.data_ready) {
            for lane in (0..BLOCKS).filter(|lane| keep >> lane & 1 == 1) {
                self.lanes[lane].push_back(data[lane]);
                self.payload.1 += BLOCK as u64;
            }
        }
        let slots = [self.slot(outputs, 0)?, self.slot(outputs, 1)?];
        self.held_slots.check("slot", (slots != [None; 2]).then_some(slots), inputs.slot_ready)?;
        if inputs.slot_ready {
            self.sent = clock + slots.iter().flatten().map(|slot| slot.event.clocks()).sum::<u64>();
            for slot in slots.into_iter().flatten() {
                // An interrupt follows the write before it at once.
                let delay = self.random.between(*self.latency.start(), *self.latency.end());
                let due = if matches!(slot.event, Event::Interrupt { .. }) { clock } else { clock + delay };
                let due = self.slots.back().map_or(due, |&(before, _)| due.max(before));
                self.slots.push_back((due, slot));
                if let Event::Write { length, .. } = slot.event {
                    self.payload.0 += length as u64;
                }
            }
        }
        Ok(())
    }

    /// Decodes a slot and checks it.
    fn slot(&self, outputs: &Outputs, index: usize) -> Result<Option<Slot>, String> {
        if outputs.slot_valid >> index & 1 == 0 {
            return Ok(None);
        }
        let kind = outputs.slot_kind >> (2 * index) & 3;
        let address = outputs.slot_address[index];
        let length = (outputs.slot_length >> (11 * index) & 0x7FF) as usize;
        let block = usize::from(outputs.slot_block >> (3 * index) & 7);
        let channel = usize::from(outputs.slot_channel >> (8 * index) & 0xFF);
        let in_page = (address % 4096) as usize + length <= 4096 && address.is_multiple_of(8);
        let event = match kind {
            0 if in_page && (1..=self.max_write).contains(&length) => Event::Write { channel, address, length },
            1 if in_page && length == 8 && index == 0 => Event::Report { channel, address, value: outputs.slot_report },
            2 if index == 1 => Event::Interrupt { channel },
            _ => return Err(format!("slot {index}: kind {kind}, address {address:#x}, {length} bytes")),
        };
        if self.channels.is_some_and(|channels| channel >= channels) {
            return Err(format!("slot {index}: channel {channel}"));
        }
        Ok(Some(Slot { event, block: if kind == 0 { block } else { 0 } }))
    }

    /// Carries out a write of the integrated block for PCIe.
    ///
    /// # Errors
    /// If it is too long, refused, or not at an address of a channel.
    pub fn carry_out(&mut self, address: u64, bytes: &[u8], memory: &mut Memory) -> Result<Event, String> {
        let length = bytes.len();
        let channel = channel_at(address).filter(|&channel| Some(channel) < self.channels && address & REFUSED == 0);
        let Some(channel) = channel.filter(|_| length <= self.max_write) else {
            return Err(format!("write of {length} bytes at {address:#x}"));
        };
        memory.write(address, bytes);
        if is_report(address) {
            return Ok(Event::Report { channel, address, value: memory.read_u64(address) });
        }
        self.payload.0 += length as u64;
        self.payload.1 += length.next_multiple_of(BLOCK) as u64;
        Ok(Event::Write { channel, address, length })
    }

    /// Carries out the writes of this clock: at most two, and none after a report, so that it shows what came before.
    pub fn apply(&mut self, clock: u64, memory: &mut impl Dma) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(&(due, Slot { event, block })) = self.slots.front() {
            if due > clock || events.len() == 2 || matches!(events.last(), Some(Event::Report { .. })) {
                break;
            }
            match event {
                Event::Write { address, length, channel } => {
                    let Some(bytes) = self.take(block, length) else { break };
                    self.accept(clock, channel, memory.write(address, &bytes));
                }
                Event::Report { channel, address, value } => {
                    self.accept(clock, channel, memory.write_report(address, value));
                    if value >> 24 & 1 == 1 {
                        self.notice(clock, 0, channel);
                    }
                }
                Event::Interrupt { .. } => {}
            }
            self.slots.pop_front();
            events.push(event);
        }
        events
    }

    /// Takes the blocks of a write out of their lanes, if all have come.
    fn take(&mut self, first: usize, length: usize) -> Option<Vec<u8>> {
        let count = length.div_ceil(BLOCK);
        let needed = |lane: usize| (count + BLOCKS - 1 - (lane + BLOCKS - first) % BLOCKS) / BLOCKS;
        if (0..BLOCKS).any(|lane| self.lanes[lane].len() < needed(lane)) {
            return None;
        }
        let lanes = (first..first + count).map(|block| block % BLOCKS);
        let mut bytes =
            lanes.filter_map(|lane| self.lanes[lane].pop_front()).flat_map(u64::to_le_bytes).collect::<Vec<_>>();
        bytes.truncate(length);
        Some(bytes)
    }

    fn accept(&mut self, clock: u64, channel: usize, is_accepted: bool) {
        if !is_accepted {
            self.notice(clock, 1, channel);
        }
    }

    fn notice(&mut self, clock: u64, kind: u8, channel: usize) {
        let due = clock + 1 + self.random.below(20);
        self.notices.push_back(Notice { due, kind, channel });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_takes_one_block_of_each_lane_in_turn() {
        let mut writes = Writes::new(Some(1), 1);
        for block in 0..24_u64 {
            writes.lanes[(block as usize + 5) % BLOCKS].push_back(block);
        }
        assert_eq!(writes.take(5, 8 * 25), None);
        let bytes = writes.take(5, 8 * 19 + 3).unwrap();
        let expected = (0..20_u64).flat_map(u64::to_le_bytes).take(8 * 19 + 3).collect::<Vec<_>>();
        assert_eq!(bytes, expected);
        assert_eq!((writes.excess(), writes.take(1, 9).map(|bytes| bytes[8])), (4, Some(21)));
    }
}
